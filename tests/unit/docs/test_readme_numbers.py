"""Every number of the README's findings is one of the shipped tables, which come of the records."""

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EVIDENCE = ROOT / "artifact" / "evidence"
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
MAPPINGS = ("native", "factorized", "tail_weighted", "search_exposure")
HOSTS = ("evotune: pairs", "entropic: score")
COPIES, EACH_ONCE = "valid_parent_copies", "valid_only_performance_of_programs"


def shipped(table: str) -> dict[tuple[str, str], str]:
    """The cells of a shipped table by row and column."""
    text = (EVIDENCE / f"{table}.csv").read_text(encoding="utf-8")
    return {(row["row"], row["column"]): row["value"] for row in csv.DictReader(text.splitlines())}


def of_frozen(table: str, question: str, column: str, names: Sequence[str] = MAPPINGS) -> list[str]:
    """One column of a question's comparisons with frozen."""
    cells = shipped(f"report/{table}")
    return [cells[f"{question}/{name} minus frozen", column] for name in names]


def listed(values: Sequence[str], form: str) -> str:
    """``1, 2 and 3``."""
    told = [format(float(value), form) for value in values]
    return f"{', '.join(told[:-1])} and {told[-1]}"


def pair(column: str) -> float:
    """A cell of native and factorized on the groups of the main cohort."""
    return float(shipped("main/report/replay_pairs")["cohort/native, factorized", column])


def sentences() -> dict[str, str]:
    """What the README has to say, by what it is about, from the shipped tables."""
    powers = of_frozen("outcomes", "main.endpoint", "Smallest effect recorded")
    least, most = min(map(float, powers)), max(map(float, powers))
    elsewhere = of_frozen("outcomes", "hosts.endpoint", "Smallest effect recorded", HOSTS)
    valid = of_frozen("outcomes", "hosts.validity", "Estimate", HOSTS)
    excluded = of_frozen("outcomes", "main.endpoint", "Verdict high")
    once = of_frozen("besides", f"main.distinct+{EACH_ONCE}", "Estimate")
    longer, side = shipped("report/continued"), "main/anchor/frozen"
    first, last = (int(longer[side, f"{end} further"]) for end in ("Fewest", "Most"))
    changes = shipped("main/report/reward_changes")
    ten = [f"{float(changes[name, 'Times ten (%)']):.0f} %" for name in ("native", "factorized")]
    cubed = [float(changes[name, "Cubed (%)"]) for name in MAPPINGS]
    main = shipped("report/outcomes")
    mean, low, high = (
        float(main["main.mapping/factorized minus native", name]) for name in ("Estimate", "Low", "High")
    )
    return {
        "groups": f"On the same {int(pair('Groups')):,} groups",
        "equal": f"(to 0.001) in {pair('Equivalent (%)'):.1f} %",
        "construction": f"{int(pair('By construction')):,} of {int(pair('Equivalent')):,} by construction",
        "near": f"Within 0.05 are {pair('Within 0.05 (%)'):.1f} %",
        "order": f"in another order {pair('Order changes (%)'):.1f} %",
        "median": f"the median difference is {pair('Median difference'):.3f}",
        "mapping": f"Over whole runs the mean valid score was {mean:.4f} [{low:+.4f}, {high:+.4f}] higher",
        "other hosts": f"on other hosts validity rose by {listed(valid, '.1f')} points",
        "each once": f"scores still rise, by {listed(once, '.4f')}",
        "excluded": f"gains above {listed(excluded, '.4f')} are excluded",
        "ten": f"Multiplying by ten changes {ten[0]} of native's groups, {ten[1]} of factorized's",
        "cubed": f"cubing changes {min(cubed):.0f} to {max(cubed):.0f} %",
        "power": f"{least:.3f} to {most:.3f} would likely have been seen",
        "power elsewhere": f"(on other hosts {listed(elsewhere, '.3f')})",
        "ceiling": f"for {first} to {last} groups, gained {float(longer[side, 'Gain']):.4f}",
    }


@pytest.mark.parametrize("about", sentences())
def test_the_number_is_that_of_the_table(about: str) -> None:
    """Each sentence of a finding has the number that the shipped table has, rounded."""
    assert sentences()[about] in README


def test_a_shift_changes_no_group() -> None:
    """Of no mapping, which is what the second finding says."""
    changes = shipped("main/report/reward_changes")
    assert {float(changes[name, "Shift (%)"]) for name in MAPPINGS} == {0.0}
    assert "Adding the frontier to the rewards changes no group's advantages" in README


def test_what_fell_and_rose_did_so() -> None:
    """Programs narrowed and copies rose in three of four, valid shares and both means of scores in all."""
    verdicts = {
        name: of_frozen(table, question, "Verdict")
        for name, table, question in (
            ("distinct", "outcomes", "main.distinct"),
            ("copies", "besides", f"main.distinct+{COPIES}"),
            ("once", "besides", f"main.distinct+{EACH_ONCE}"),
            ("endpoint", "outcomes", "main.endpoint"),
        )
    }
    three = [0, 1, 3]
    assert [n for n, said in enumerate(verdicts["distinct"]) if said == "below zero"] == three
    assert [n for n, said in enumerate(verdicts["copies"]) if said == "above zero"] == three
    assert set(verdicts["once"]) == {"above zero"}
    assert set(verdicts["endpoint"]) == {"undecided"}
    assert "Distinct programs fell and copies of a parent rose under three of four." in README

"""Every number of the README's findings is one of the shipped tables, which come of the records."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EVIDENCE = ROOT / "artifact" / "evidence"
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
MAPPINGS = ("native", "factorized", "tail_weighted", "search_exposure")
INTERVAL = ("Estimate", "Low", "High")
COPIES, EACH_ONCE = "valid_parent_copies", "valid_only_performance_of_programs"
NOT_COPIED = "valid_rate_without_copies"
# Mappings that have all seeds of the pretrained models' main study.
WHOLE = ("native", "factorized", "search_exposure")
# The columns of the pretrained models' table, and their digits.
SHOWN = {"validity": ".1f", f"distinct+{COPIES}": ".1f", f"distinct+{NOT_COPIED}": ".1f", "endpoint": ".4f"}


def shipped(table: str) -> dict[tuple[str, str], str]:
    """The cells of a shipped table by row and column."""
    text = (EVIDENCE / f"{table}.csv").read_text(encoding="utf-8")
    return {(row["row"], row["column"]): row["value"] for row in csv.DictReader(text.splitlines())}


def of_frozen(table: str, question: str, column: str, names: Sequence[str] = MAPPINGS) -> list[str]:
    """One column of a question's comparisons with frozen."""
    cells = shipped(f"report/{table}")
    return [cells[f"{question}/{name} minus frozen", column] for name in names]


def pair(column: str) -> float:
    """A cell of native and factorized on the groups of the main cohort."""
    return float(shipped("main/report/replay_pairs")["cohort/native, factorized", column])


def sentences() -> dict[str, str]:
    """What the README has to say, by what it is about, from the shipped tables."""
    excluded = max(float(high) for high in of_frozen("outcomes", "main.endpoint", "Verdict high"))
    changes = shipped("main/report/reward_changes")
    cubed = [float(changes[name, "Cubed (%)"]) for name in MAPPINGS]
    main = shipped("report/outcomes")
    mean, low, high = (
        float(main["main.mapping/factorized minus native", name]) for name in ("Estimate", "Low", "High")
    )
    return {
        "groups": f"On the same {int(pair('Groups')):,} groups",
        "equal": f"(to 0.001) in {pair('Equivalent (%)'):.1f} %",
        "construction": f"{int(pair('By construction')):,} of {int(pair('Equivalent')):,} by construction",
        "mapping": f"The mean valid score was {mean:.4f} [{low:+.4f}, {high:+.4f}] higher",
        "excluded": f"gains above {excluded:.4f} are excluded",
        "cubed": f"cubing changes {min(cubed):.0f} to {max(cubed):.0f} %",
        "ceiling": f"went on gained {float(shipped('report/continued')['main/anchor/frozen', 'Gain']):.4f}",
    }


def pretrained_rows() -> dict[str, str]:
    """The table of the pretrained models' main study, and what stands around it."""
    cells = {**shipped("pretrained/report/outcomes"), **shipped("pretrained/report/besides")}
    most = max(MAPPINGS, key=lambda name: int(seeds_of(cells, name)))
    means = [
        f"{float(cells[f'main.{question}/{most} minus frozen', 'Second']):{shown}}"
        for question, shown in SHOWN.items()
    ]
    runs = runs_of("pretrained-1.5b")
    trained, frozen = (
        "{:.1f} % [{:.1f}, {:.1f}]".format(*(float(cells[f"main.ties_zero{of}", name]) for name in INTERVAL))
        for of in ("/factorized", "+flat_groups_of_factorized/frozen")
    )
    of_both = "pretrained-1.5b/cohort/factorized minus pretrained-0.5b/cohort/factorized"
    fewer = float(cells[f"size.zero/{of_both}", "Second"])
    ours = float(shipped("main/report/signal")["factorized", "Zero advantage (%)"])
    shorter = [
        sum(
            int(value)
            for (row, column), value in shipped("pretrained/report/final_bests").items()
            if column == f"Shorter {size}" and row.startswith("pretrained-1.5b: ") and " minus " not in row
        )
        for size in (50, 100, 200)
    ]
    return {
        "runs": f"{runs} of 40 runs",
        "frozen": f"| frozen ({seeds_of(cells, most)}), in % | {' | '.join(means)} |",
        **{
            name: f"| {name} ({seeds_of(cells, name)}) | {' | '.join(differences(cells, name))} |"
            for name in MAPPINGS
        },
        "ties": f"under factorized: {trained}; frozen's, mapped so, {frozen} (paper: 60.7 %",
        "smaller": of_the_smaller(cells),
        "small": f"0.5B: {fewer:.1f} %, small model: {ours:.1f} %).",
        "held out": f"{shorter[0]} of {runs} final bests beats its search's seed program "
        f"(100 nodes: {shorter[1]}, 200: {shorter[2]})",
        "excluded": "gains of the best above {:.4f}, {:.4f} and {:.4f} are excluded".format(
            *(float(cells[f"main.endpoint/{name} minus frozen", "Verdict high"]) for name in WHOLE)
        ),
    }


def of_the_smaller(cells: dict[tuple[str, str], str]) -> str:
    """What the smaller pretrained model did, by the study that sets the two sizes side by side."""
    larger, smaller = "pretrained-1.5b/cohort", "pretrained-0.5b/cohort"
    rows = [
        [f"size.{question}/{larger}/{name} minus {smaller}/{name}" for name in ("frozen", *MAPPINGS[:2])]
        for question in ("validity", f"distinct+{COPIES}", f"distinct+{NOT_COPIED}")
    ]
    (seeds,) = {cells[row, "Seeds"] for of in rows for row in of}
    valid, copies, others = ([float(cells[row, "Second"]) for row in of] for of in rows)
    return (
        f"The 0.5B ({runs_of('pretrained-0.5b')} of 40 runs, the same verdicts), frozen, native, factorized "
        + f"({seeds} seeds): "
        + "valid {:.1f}, {:.1f}, {:.1f} %, ".format(*valid)
        + "copies\\* {:.1f}, {:.1f}, {:.1f} %, ".format(*copies)
        + "valid without\\* {:.1f}, {:.1f}, {:.1f} %.".format(*others)
    )


def runs_of(profile: str) -> int:
    """How many runs of a pretrained model's cohort are packed."""
    return len([path for path in (EVIDENCE / "pretrained" / profile / "cohort").iterdir() if path.is_dir()])


def seeds_of(cells: dict[tuple[str, str], str], name: str) -> str:
    """How many seeds each comparison of a mapping with frozen has."""
    (seeds,) = {cells[f"main.{question}/{name} minus frozen", "Seeds"] for question in SHOWN}
    return seeds


def differences(cells: dict[tuple[str, str], str], name: str) -> Iterator[str]:
    """One mapping's differences from frozen, with their intervals where there is more than one seed."""
    for question, shown in SHOWN.items():
        estimate, *ends = (cells[f"main.{question}/{name} minus frozen", part] for part in INTERVAL)
        interval = f" [{', '.join(f'{float(end):+{shown}}' for end in ends)}]" if all(ends) else ""
        yield f"{float(estimate):+{shown}}{interval}"


@pytest.mark.parametrize("about", pretrained_rows())
def test_a_number_of_the_pretrained_models_is_that_of_the_table(about: str) -> None:
    """Each has the number that the shipped table has, of as many seeds as are said."""
    assert pretrained_rows()[about] in README


def test_whole_mappings_have_the_verdicts_that_are_told() -> None:
    """Of the pretrained models: more valid answers, no better best; the others wait for seeds."""
    cells = shipped("pretrained/report/outcomes")
    for study in ("main", "small"):
        verdicts = {
            question: {cells[f"{study}.{question}/{name} minus frozen", "Verdict"] for name in WHOLE}
            for question in ("validity", "endpoint")
        }
        assert verdicts == {"validity": {"above zero"}, "endpoint": {"undecided"}}
    assert "Verdicts (native, factorized, search_exposure): more answers are valid" in README
    assert "of 40 runs, the same verdicts)" in README


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

"""Every number of the README's findings and of the threats is one of the shipped tables."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.figures import read_figures

from search_to_signal.records.amendments import closed_studies, read_amendments
from search_to_signal.records.manifest import Accelerator
from search_to_signal.records.plan import Question, read_plan
from search_to_signal.study.deviations import read_recorded_runs

ROOT = Path(__file__).parents[3]
EVIDENCE = ROOT / "artifact" / "evidence"
README, THREATS = (
    " ".join((ROOT / page).read_text(encoding="utf-8").split()) for page in ("README.md", "docs/threats.md")
)
MAPPINGS = ("native", "factorized", "tail_weighted", "search_exposure")
INTERVAL = ("Estimate", "Low", "High")
COPIES, EACH_ONCE = "valid_parent_copies", "valid_only_performance_of_programs"
USABLE, OF_USABLE, MEDIAN = (
    f"distinct+{name}" for name in ("usable_rate", "valid_of_usable", "valid_only_median")
)
PARENTS = f"distinct+{COPIES}"
SHARES = (PARENTS, "distinct+valid_rate_without_copies", "distinct+admitted_with_other_numbers")
NEW_FORMS, COPIED_SCORES = "distinct+new_forms_with_new_scores", "distinct+valid_parent_scores"
PROGRAMS, CALLS = "endpoint+fewest_programs", "endpoint+fewest_calls"
TAIL = "tail_weighted minus frozen"


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
    assert set(of_frozen("outcomes", "main.endpoint", "Verdict")) == {"undecided"}
    excluded = max(float(high) for high in of_frozen("outcomes", "main.endpoint", "Verdict high"))
    changes = shipped("main/report/reward_changes")
    cubed = [float(changes[name, "Cubed (%)"]) for name in MAPPINGS]
    main = shipped("report/outcomes")
    mean, low, high = (
        float(main["main.mapping/factorized minus native", name]) for name in ("Estimate", "Low", "High")
    )
    native = (float(main["main.endpoint/native minus frozen", name]) for name in INTERVAL)
    return {
        "native's best": "excluded, native's {:+.4f} [{:+.4f}, {:+.4f}]".format(*native),
        "groups": f"On the same {int(pair('Groups')):,} groups",
        "equal": f"(to 0.001) in {pair('Equivalent (%)'):.1f} %",
        "construction": f"{int(pair('By construction')):,} of {int(pair('Equivalent')):,} by construction",
        "mapping": f"The mean valid score was {mean:.4f} [{low:+.4f}, {high:+.4f}] higher",
        "excluded": f"gain is undecided, above {excluded:.4f} excluded",
        "cubed": f"cubing changes {min(cubed):.0f} to {max(cubed):.0f} %",
        "ceiling": f"went on gained {float(shipped('report/continued')['main/anchor/frozen', 'Gain']):.4f}",
    }


def published(key: str) -> float:
    """One of the paper's numbers, from the shipped ledger."""
    text = (EVIDENCE / "pretrained/report/claims/claims.csv").read_text(encoding="utf-8")
    (value,) = (row["published"] for row in csv.DictReader(text.splitlines()) if row["id"] == key)
    return float(value)


def pretrained_sentences() -> dict[str, str]:
    """What stands around the table of the pretrained models' main study, from the shipped tables."""
    cells = {**shipped("pretrained/report/outcomes"), **shipped("pretrained/report/besides")}
    return {
        "runs": f"[{runs_of('pretrained-1.5b')} of 40 runs]",
        "paper": f"(7B in the paper: {published('gain_final_tail'):+.4f})",
        "as many programs": f"{gained(cells, PROGRAMS)} after equally many distinct programs\\*,",
        "as many calls": f"{gained(cells, CALLS)} after equally many evaluator calls\\*, the paper's match",
        "numbers alone": (
            "without a model, reaches {} in {} tries, as many as frozen's programs, {} in {}, tail".format(
                *numbers_alone()
            )
        ),
        "equal": of_equal_advantages(cells),
        "mapping": of_the_mapping(cells),
        "closed": of_closed_studies(),
        "smaller": of_the_smaller(cells),
        "normalizers": of_the_normalizers(cells),
        **of_shares(cells),
        **of_unseen(),
        **of_ties(cells),
    }


def gained(cells: dict[tuple[str, str], str], question: str) -> str:
    """Tail-weighted's gain with its interval, with ? where four comparisons leave it undecided."""
    row = f"main.{question}/{TAIL}"
    said = "{:+.4f} [{:+.4f}, {:+.4f}]".format(*(float(cells[row, name]) for name in INTERVAL))
    return f"{said}{'?' if cells[row, 'Verdict'] == 'undecided' else ''}"


def spread(cells: dict[tuple[str, str], str], row: str) -> str:
    """An estimate and half of its interval, with ? where its comparisons leave it undecided."""
    mean, low, high = (float(cells[row, name]) for name in INTERVAL)
    assert high - mean == pytest.approx(mean - low)
    return f"{mean:+.1f}±{high - mean:.1f}{'?' if cells[row, 'Verdict'] == 'undecided' else ''}"


def of_shares(cells: dict[tuple[str, str], str]) -> dict[str, str]:
    """Copies, parents with other numbers and new forms, by mapping."""
    shares = [
        (
            float(cells[f"main.{question}/{TAIL}", "Second"]),
            ", ".join(spread(cells, f"main.{question}/{name} minus frozen") for name in MAPPINGS),
        )
        for question in (*SHARES, NEW_FORMS)
    ]
    rows = [f"main.{COPIED_SCORES}/{name} minus frozen" for name in MAPPINGS]
    alike = [*(float(cells[row, "First"]) for row in rows), float(cells[rows[0], "Second"])]
    tuned = spread(cells, f"main.{SHARES[2]}+described/tail_weighted").removeprefix("+")
    return {
        "order": f"({', '.join(MAPPINGS)}; ±",
        "copies": "copies of a parent, of valid (frozen {:.1f} %): {}".format(*shares[0]),
        "copied scores": f"another {min(alike):.1f} to {max(alike):.1f} % score as a shown parent",
        "no copies": "valid and no copy ({:.1f} %): {}".format(*shares[1]),
        "numbers": "parents with other numbers, of admitted ({:.1f} %): {}".format(*shares[2]),
        "their share": f"tail_weighted's share: {tuned} %",
        "new forms": "new forms with new scores, a run ({:.1f}): {}".format(*shares[3]),
    }


def of_equal_advantages(cells: dict[tuple[str, str], str]) -> str:
    """In how many of whose groups native and factorized give equal advantages."""
    trained = "{:.1f} % [{:.1f}, {:.1f}]".format(
        *(float(cells["main.ties_equal/factorized", name]) for name in INTERVAL)
    )
    rows = ("small.ties_equal/factorized", "main.ties_equal/frozen")
    smaller, frozen = (float(cells[row, "Estimate"]) for row in rows)
    others = f"(0.5B: {smaller:.1f} %, frozen: {frozen:.1f} %, paper: 8 of 12)"
    return f"give equal advantages in {trained} of factorized's groups {others}"


def of_the_mapping(cells: dict[tuple[str, str], str]) -> str:
    """What the plan calls an answer of that kind to whether the mapping matters."""
    verdicts = [cells[f"main.mapping/{name} minus native", "Verdict"] for name in MAPPINGS[1:]]
    assert verdicts == ["undecided"] * 3
    question = read_question("main.mapping")
    assert question.counts_against.endswith("the mapping's difference did not reach what is proposed")
    return "undecided three times: the mapping's difference did not reach what is proposed"


def read_question(key: str) -> Question:
    """A question of the pretrained models' plan."""
    plan = read_plan(EVIDENCE / "pretrained" / "plan.toml")
    (found,) = (question for study in plan.studies for question in study.questions if question.key == key)
    return found


def of_closed_studies() -> str:
    """How many studies of the plan amendments closed, and how many of these ask primary questions."""
    place = EVIDENCE / "pretrained" / "plan.toml"
    plan = read_plan(place)
    closed = closed_studies(read_amendments(place, plan))
    primary = [
        study.key
        for study in plan.studies
        if study.key in closed and any(question.role == "primary" for question in study.questions)
    ]
    assert (len(closed), len(plan.studies), len(primary)) == (6, 10, 2)
    return "Six of ten studies are [closed](docs/evidence.md#adding-to-it), two primary"


def of_unseen() -> dict[str, str]:
    """Final bests on instances that no search saw."""
    finals, sizes = shipped("pretrained/report/final_bests"), (50, 100, 200)
    shorter = ", ".join(
        str(
            sum(
                int(value)
                for (row, column), value in finals.items()
                if column == f"Shorter {size}"
                and row.startswith("pretrained-1.5b: ")
                and " minus " not in row
            )
        )
        for size in sizes
    )

    def gap(what: str, size: int) -> list[float]:
        row = f"pretrained-1.5b: {what}"
        return [float(finals[row, f"{column} {size}"]) for column in ("Gap (%)", "Low", "High")]

    gaps = {(name, size): gap(f"{name} minus frozen", size) for name in MAPPINGS for size in sizes}
    text = "{:+.2f} % [{:+.2f}, {:+.2f}]"
    longer = {key: text.format(*ends) for key, ends in gaps.items() if ends[1] > 0.0}
    assert list(longer) == [("native", 200), ("factorized", 50)]
    assert sum(ends[1] <= 0.0 <= ends[2] for ends in gaps.values()) == 10
    own = [gap(name, 50)[0] for name in ("frozen", *MAPPINGS)]
    return {
        "longer": f"factorized's are {longer['factorized', 50]} longer at 50 nodes, "
        f"native's {longer['native', 200]} at 200, ten comparisons",
        "than the seed": f"conditions are {min(own):.2f} to {max(own):.2f} % longer than the seed program",
        "held out": f"{shorter} of {runs_of('pretrained-1.5b')} final bests beat it at 50, 100, 200",
    }


def of_ties(cells: dict[tuple[str, str], str]) -> dict[str, str]:
    """Groups without advantage under factorized, by model."""
    trained = "{:.1f} % [{:.1f}, {:.1f}]".format(
        *(float(cells["main.ties_zero/factorized", name]) for name in INTERVAL)
    )
    of_both = "pretrained-1.5b/cohort/factorized minus pretrained-0.5b/cohort/factorized"
    fewer = float(cells[f"size.zero/{of_both}", "Second"])
    ours = float(shipped("main/report/signal")["factorized", "Zero advantage (%)"])
    return {
        "ties": f"Groups without advantage, factorized: {trained} (paper: 60.7 %",
        "others' ties": f"(paper: 60.7 %, 0.5B: {fewer:.1f} %, small model: {ours:.1f} %)",
    }


def two(value: float, sign: str = "+") -> str:
    """Two significant digits."""
    return f"{value:{sign}#.2g}".rstrip(".")


def brief(cells: dict[tuple[str, str], str], row: str, names: Sequence[str] = INTERVAL) -> str:
    """An estimate with its interval, in two digits."""
    return "{} [{}, {}]".format(*(two(float(cells[row, name])) for name in names))


def span(cells: dict[tuple[str, str], str], question: str, column: str, of: Sequence[str] = MAPPINGS) -> str:
    """The least and the greatest of a question's comparisons with frozen, in two digits."""
    values = [float(cells[f"{question}/{name} minus frozen", column]) for name in of]
    return f"{two(min(values), '')} to {two(max(values), '')}"


def adverse_results(cells: dict[tuple[str, str], str]) -> dict[str, str]:
    """The claim and the results against it that docs/threats.md has to say, by what they are about."""
    finals, tries, gap = (
        shipped("pretrained/report/final_bests"),
        numbers_alone(),
        "pretrained-1.5b: {} minus frozen",
    )
    narrowed = ("native", "factorized", "search_exposure")
    equal, best, before = (
        [float(cells[row, column]) for row, column in places]
        for places in (
            [("main.ties_equal/factorized", name) for name in INTERVAL]
            + [("small.ties_equal/factorized", "Estimate")],
            [(f"main.endpoint/{name} minus frozen", "First") for name in ("factorized", "tail_weighted")],
            [(f"main.{question}/{TAIL}", "Second") for question in ("validity", "distinct", "endpoint")],
        )
    )
    against = [brief(cells, f"main.mapping/{name} minus native") for name in MAPPINGS[1:]]
    copies = [brief(cells, f"main.{PARENTS}/{name} minus frozen") for name in narrowed]
    assert {cells[f"main.{match}/{TAIL}", "Verdict"] for match in (CALLS, PROGRAMS)} == {"undecided"}
    assert "above zero" not in {
        cells[f"main.{NEW_FORMS}/{name} minus frozen", "Verdict"] for name in MAPPINGS
    }
    return {
        "valid": f"from {before[0]:.0f} % to {span(cells, 'main.validity', 'First')} %",
        "best": f"better on the search's own instances: {brief(cells, f'main.endpoint/{TAIL}')}",
        "equal": "in {:.0f} % [{:.0f}, {:.0f}] of factorized's groups (0.5B: {:.0f} %)".format(*equal),
        "mapping": "factorized has {} points, tail-weighted {}, search-exposure {}: und".format(*against),
        "small": f"native's is {brief(shipped('report/outcomes'), 'main.endpoint/native minus frozen')}, und",
        "calls": f"evaluator calls it is {brief(cells, f'main.{CALLS}/{TAIL}')},",
        "programs": f"distinct programs {brief(cells, f'main.{PROGRAMS}/{TAIL}')}; both are undecided",
        "longer": f"factorized's are {of_gap(finals, gap.format('factorized'), 50)} longer",
        "longer at 200": f"native's {of_gap(finals, gap.format('native'), 200)} at 200",
        "than the seed": of_unseen()["than the seed"].replace("seed program", "hand-written program"),
        "held out": of_unseen()["held out"],
        "frozen": f"frozen's mean best is {before[2]:.4f}.",
        "numbers": f"constants reach {tries[0]} in {tries[1]} tries",
        "more numbers": f"In {tries[3]} tries, as many as tail-weighted's, they reach {tries[2]}: "
        "better than factorized's {:.4f}, worse than tail-weighted's {:.4f}".format(*best),
        "narrowed": f"fall from {before[1]:.0f} % of valid answers to "
        f"{span(cells, 'main.distinct', 'First', narrowed)} %",
        "copies": f"rise by {', '.join(copies)} points",
    }


def threats(cells: dict[tuple[str, str], str]) -> dict[str, str]:
    """What its table has to say."""
    seen = "Smallest effect recorded"
    between = [float(cells[f"main.mapping/{name} minus native", seen]) for name in MAPPINGS[1:]]
    sizes = "size.validity/pretrained-1.5b/cohort/native minus pretrained-0.5b/cohort/native"
    mean, middle = (brief(cells, f"main.{of}/factorized minus frozen") for of in ("valid_only", MEDIAN))
    hours = {study.key: study.hours for study in read_plan(EVIDENCE / "pretrained" / "plan.toml").studies}
    assert {cells[f"small.{MEDIAN}/{name} minus frozen", "Verdict"] for name in MAPPINGS} == {"undecided"}
    return {
        "ceiling": sentences()["ceiling"],
        "sizes": f"native's validity differs by {brief(cells, sizes)} points",
        "tails": f"mean {mean}, median\\* {middle}; the 0.5B's medians\\* are undecided four times",
        **{name: split(cells, f"main.{name}") for name in (USABLE, OF_USABLE)},
        "power": f"see {span(cells, 'main.validity', seen)} points of validity, {two(min(between), '')} to "
        f"{two(max(between), '')} between rewards, {span(cells, 'main.endpoint', seen)} of the best",
        "cards": of_mixed_seeds(),
        "breadth": f"`breadth`: {hours['breadth']:.0f} card hours, as planned",
        "group size": f"{hours['group_size']:.0f} card hour, as planned",
        "signs": f"tail-weighted's best is better in {cells[f'main.endpoint/{TAIL}', 'Above']} of 8",
    }


def threat_sentences() -> dict[str, str]:
    """What docs/threats.md has to say, from the shipped tables."""
    cells = {**shipped("pretrained/report/outcomes"), **shipped("pretrained/report/besides")}
    return {**adverse_results(cells), **threats(cells)}


def split(cells: dict[tuple[str, str], str], question: str) -> str:
    """A share of frozen's answers, and how many points more those of trained runs have."""
    assert {cells[f"{question}/{name} minus frozen", "Verdict"] for name in MAPPINGS} == {"above zero"}
    frozen, gained = float(cells[f"{question}/{TAIL}", "Second"]), brief(cells, f"{question}/{TAIL}")
    return f"{two(frozen, '')} % frozen, {span(cells, question, 'First')} % trained (tail-weighted {gained})"


def of_mixed_seeds() -> str:
    """In how many seeds of the main study cards differ, and the source of its frozen run from the others'."""
    cards: dict[int, set[str]] = {}
    sources: dict[int, set[str]] = {}
    for name, manifest in read_recorded_runs(EVIDENCE / "pretrained" / "pretrained-1.5b").items():
        seed, card = manifest.facts.seed, manifest.environment.accelerator
        assert isinstance(card, Accelerator), name
        cards.setdefault(seed, set()).add(card.kind)
        sources.setdefault(seed, set()).add(manifest.source.sha256)
    two_cards, two_sources = (sum(len(kinds) > 1 for kinds in by.values()) for by in (cards, sources))
    return f"In {two_cards} of {len(cards)} seeds runs are of two cards, in {two_sources} frozen's source is"


def of_gap(finals: dict[tuple[str, str], str], row: str, size: int) -> str:
    """How much longer tours are at one size, in percent."""
    names = (f"{column} {size}" for column in ("Gap (%)", "Low", "High"))
    return brief(finals, row, tuple(names)).replace(" [", " % [")


def numbers_alone() -> list[str]:
    """Score and tries of the search that changes numbers alone, as its proof printed them."""
    said = re.findall(r"(\d+) tries: (-\S+ \[.*?\])", read_figures()["seed_numbers"]["printed"])
    return [part for tries, score in said for part in (score, tries)]


def of_the_smaller(cells: dict[tuple[str, str], str]) -> str:
    """What the smaller pretrained model did: validity, and that no mapping's best is shown to be better."""
    rows = [f"small.validity/{name} minus frozen" for name in MAPPINGS]
    trained = [float(cells[row, "First"]) for row in rows]
    best = [cells[f"small.endpoint/{name} minus frozen", "Verdict"] for name in MAPPINGS]
    shown = "no better best shown" if set(best) == {"undecided"} else "a better best shown"
    gain = "{:+.4f} [{:+.4f}, {:+.4f}]".format(
        *(float(cells[f"small.endpoint/{TAIL}", name]) for name in INTERVAL)
    )
    frozen = float(cells[rows[0], "Second"])
    valid = f"valid {frozen:.1f} % frozen, {min(trained):.1f} to {max(trained):.1f} trained"
    which = f"The 0.5B ({runs_of('pretrained-0.5b')} runs, doubled learning rate)"
    return f"{which}: {valid}; {shown}, tail_weighted's {gain}"


def of_the_normalizers(cells: dict[tuple[str, str], str]) -> str:
    """What other normalizers than group change of the smaller model's validity, and the verdict of all."""
    rows = {row for row, _ in cells if row.startswith("normalizer.validity/")}
    moves = [float(cells[row, "Estimate"]) for row in rows]
    (verdict,) = {cells[row, "Verdict"] for row in rows}
    return f"(dr_grpo, rank) move validity {min(moves):+.1f} to {max(moves):+.1f} points, {verdict}"


def runs_of(profile: str) -> int:
    """How many runs of a pretrained model's cohort are packed."""
    return len([path for path in (EVIDENCE / "pretrained" / profile / "cohort").iterdir() if path.is_dir()])


@pytest.mark.parametrize("about", threat_sentences())
def test_a_number_of_the_threats_is_that_of_the_table(about: str) -> None:
    """Adverse results by name, in two digits."""
    assert threat_sentences()[about] in THREATS


@pytest.mark.parametrize("about", pretrained_sentences())
def test_a_number_of_the_pretrained_models_is_that_of_the_table(about: str) -> None:
    """Each has the number that the shipped table has, of as many seeds as are said."""
    assert pretrained_sentences()[about] in README


def test_the_conclusion_of_the_pretrained_models_is_that_of_the_verdicts() -> None:
    """Three times as many valid answers; copies, other numbers and a better best, by the verdicts."""
    cells = {**shipped("pretrained/report/outcomes"), **shipped("pretrained/report/besides")}

    def verdicts(question: str) -> dict[str, str]:
        return {name: cells[f"{question}/{name} minus frozen", "Verdict"] for name in MAPPINGS}

    valid = [float(cells[f"main.validity/{name} minus frozen", "First"]) for name in MAPPINGS]
    frozen = float(cells["main.validity/native minus frozen", "Second"])
    assert all(2.5 < share / frozen < 3.5 for share in valid)
    assert set(verdicts("main.validity").values()) == {"above zero"}
    only_tail = {name: "above zero" if name == "tail_weighted" else "undecided" for name in MAPPINGS}
    but_tail = {name: "undecided" if name == "tail_weighted" else "above zero" for name in MAPPINGS}
    assert verdicts("main.endpoint") == only_tail
    assert verdicts(f"main.{PARENTS}") == but_tail
    assert float(cells[f"main.{SHARES[2]}/tail_weighted minus frozen", "First"]) > 50
    assert verdicts(f"main.{SHARES[2]}")["tail_weighted"] == "above zero"
    assert verdicts(f"main.{PROGRAMS}")["tail_weighted"] == "undecided"
    assert set(verdicts("small.validity").values()) == {"above zero"}
    assert set(verdicts("small.endpoint").values()) == {"undecided"}
    assert cells["start.longer/native minus frozen", "Verdict"] == "undecided"


def test_groups_without_advantage_are_valid_when_trained_and_failed_before() -> None:
    """Nearly all, by Factorized's rewards."""
    besides = shipped("pretrained/report/besides")

    def share(name: str) -> float:
        valid, flat = (
            float(besides[f"main.ties_zero+flat_{of}groups_of_factorized/{name}", "Estimate"])
            for of in ("valid_", "")
        )
        return valid / flat

    assert share("factorized") > 0.9
    assert share("frozen") < 0.1


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
    assert "Distinct programs fell, copies of a parent rose under three of four." in README

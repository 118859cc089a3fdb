"""Every number of the threats is in the shipped tables, and words of README and results are the verdicts'."""

from functools import partial
from pathlib import Path

import pytest
from tests.docs.numbers import (
    CALLS,
    COPIES,
    EVIDENCE,
    INTERVAL,
    MAPPINGS,
    OTHER_NUMBERS,
    PROGRAMS,
    SIZES,
    TAIL,
    Cells,
    beating,
    brief,
    numbers_only,
    of_own_models,
    pretrained,
    shipped,
    span,
    two,
)

from search_to_signal.records.amendments import closed_studies, read_amendments
from search_to_signal.records.manifest import Accelerator
from search_to_signal.records.plan import read_plan
from search_to_signal.study.plan_checks import read_recorded_runs

ROOT = Path(__file__).parents[3]
THREATS = " ".join((ROOT / "docs" / "threats.md").read_text(encoding="utf-8").split())
USABLE, OF_USABLE, MEDIAN = (
    f"distinct+{name}" for name in ("usable_rate", "valid_of_usable", "valid_only_median")
)
NEW_FORMS = "distinct+new_forms_with_new_scores"
UNPAID = "distinct.copies/pretrained-distinct/cohort/distinct minus pretrained-1.5b/cohort/factorized"
spread = partial(span, to=" to ")


def adverse_results(cells: Cells) -> dict[str, str]:
    """The claim and the results against it that docs/threats.md has to say, by what they are about."""
    finals, gap = shipped("pretrained/report/final_bests"), "pretrained-1.5b: {} minus frozen"
    (fewer, fewer_best), (more, more_best) = numbers_only()
    own = [float(finals[f"pretrained-1.5b: {name}", "Gap (%) 50"]) for name in ("frozen", *MAPPINGS)]
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
    copies = [brief(cells, f"main.{COPIES}/{name} minus frozen") for name in narrowed]
    assert {cells[f"main.{match}/{TAIL}", "Verdict"] for match in (CALLS, PROGRAMS)} == {"undecided"}
    assert "above zero" not in {
        cells[f"main.{NEW_FORMS}/{name} minus frozen", "Verdict"] for name in MAPPINGS
    }
    return {
        "valid": f"from {before[0]:.0f} % to {spread('main.validity')} %",
        "best": f"better on the search's own instances: {brief(cells, f'main.endpoint/{TAIL}')}",
        "equal": "in {:.0f} % [{:.0f}, {:.0f}] of factorized's groups (0.5B: {:.0f} %)".format(*equal),
        "mapping": "factorized has {} points, tail-weighted {}, search-exposure {}: und".format(*against),
        "small": f"native's is {brief(of_own_models(), 'main.endpoint/native minus frozen')}, und",
        "calls": f"evaluator calls it is {brief(cells, f'main.{CALLS}/{TAIL}')},",
        "programs": f"distinct programs {brief(cells, f'main.{PROGRAMS}/{TAIL}')}; both are undecided",
        "longer": f"factorized's are {of_gap(finals, gap.format('factorized'), 50)} longer",
        "longer at 200": f"native's {of_gap(finals, gap.format('native'), 200)} at 200",
        "than the seed": f"conditions are {min(own):.2f} to {max(own):.2f} % longer than the hand-written",
        "held out": "{}, {}, {} of 40 beat it at 50, 100, 200 nodes".format(*beating()),
        "frozen": f"frozen's mean best is {before[2]:.4f}.",
        "numbers": f"constants reach {fewer_best} in {fewer} tries",
        "more numbers": f"In {more} tries, as many as tail-weighted's, they reach {more_best}: "
        "better than factorized's {:.4f}, worse than tail-weighted's {:.4f}".format(*best),
        "narrowed": f"fall from {before[1]:.0f} % of valid answers to "
        f"{spread('main.distinct', of=narrowed)} %",
        "copies": "rise by {} (native), {} (factorized), {} points".format(*copies),
        "no credit": f"leaves {float(shipped('distinct/report/outcomes')[UNPAID, 'First']):.1f} % of them",
    }


def threats(cells: Cells) -> dict[str, str]:
    """What its table has to say."""
    seen = "Smallest effect recorded"
    between = [float(cells[f"main.mapping/{name} minus native", seen]) for name in MAPPINGS[1:]]
    sizes = "size.validity/pretrained-1.5b/cohort/native minus pretrained-0.5b/cohort/native"
    mean, middle = (brief(cells, f"main.{of}/factorized minus frozen") for of in ("valid_only", MEDIAN))
    hours = {study.key: study.hours for study in read_plan(EVIDENCE / "pretrained" / "plan.toml").studies}
    assert {cells[f"small.{MEDIAN}/{name} minus frozen", "Verdict"] for name in MAPPINGS} == {"undecided"}
    return {
        "sizes": f"native's validity differs by {brief(cells, sizes)} points",
        "tails": f"mean {mean}, median\\* {middle}; the 0.5B's medians\\* are undecided four times",
        **{name: split(cells, f"main.{name}") for name in (USABLE, OF_USABLE)},
        "power": f"see {spread('main.validity', seen)} points of validity, {two(min(between), '')} to "
        f"{two(max(between), '')} between rewards, {spread('main.endpoint', seen)} of the best",
        "cards": of_mixed_seeds(),
        "breadth": f"`breadth`: {hours['breadth']:.0f} card hours, as planned",
        "group size": f"{hours['group_size']:.0f} card hour, as planned",
        "signs": f"tail-weighted's best is better in {cells[f'main.endpoint/{TAIL}', 'Above']} of 8",
    }


def threat_sentences() -> dict[str, str]:
    """What docs/threats.md has to say, from the shipped tables."""
    return {**adverse_results(pretrained()), **threats(pretrained())}


def split(cells: Cells, question: str) -> str:
    """A share of frozen's answers, and how many points more those of trained runs have."""
    assert {cells[f"{question}/{name} minus frozen", "Verdict"] for name in MAPPINGS} == {"above zero"}
    frozen, gained = float(cells[f"{question}/{TAIL}", "Second"]), brief(cells, f"{question}/{TAIL}")
    return f"{two(frozen, '')} % frozen, {spread(question)} % trained (tail-weighted {gained})"


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


def of_gap(finals: Cells, row: str, size: int) -> str:
    """How much longer tours are at one size, in percent."""
    names = (f"{column} {size}" for column in ("Gap (%)", "Low", "High"))
    return brief(finals, row, tuple(names)).replace(" [", " % [")


@pytest.mark.parametrize("about", threat_sentences())
def test_a_number_of_the_threats_is_that_of_the_table(about: str) -> None:
    assert threat_sentences()[about] in THREATS


def verdicts(cells: Cells, question: str) -> list[str]:
    return [cells[f"{question}/{name} minus frozen", "Verdict"] for name in MAPPINGS]


def test_the_words_on_the_pretrained_models_are_the_verdicts() -> None:
    cells, finals = pretrained(), shipped("pretrained/report/final_bests")
    valid = [float(cells[f"main.validity/{name} minus frozen", "First"]) for name in MAPPINGS]
    frozen = float(cells[f"main.validity/{TAIL}", "Second"])
    assert all(2.5 < share / frozen < 3.5 for share in valid)
    assert verdicts(cells, "main.validity") == ["above zero"] * 4
    assert verdicts(cells, "main.endpoint") == ["undecided", "undecided", "above zero", "undecided"]
    assert verdicts(cells, f"main.{COPIES}") == ["above zero", "above zero", "undecided", "above zero"]
    assert float(cells[f"main.{OTHER_NUMBERS}/{TAIL}", "First"]) > 50
    assert cells[f"main.{OTHER_NUMBERS}/{TAIL}", "Verdict"] == "above zero"
    assert cells[f"main.{PROGRAMS}/{TAIL}", "Verdict"] == "undecided"
    assert {cells[f"main.mapping/{name} minus native", "Verdict"] for name in MAPPINGS[1:]} == {"undecided"}
    against = [(f"pretrained-1.5b: {name} minus frozen", size) for name in MAPPINGS for size in SIZES]
    ends = [[float(finals[row, f"{end} {size}"]) for end in ("Low", "High")] for row, size in against]
    assert [low > 0.0 for low, _ in ends].count(True) == 2
    assert [low <= 0.0 <= high for low, high in ends].count(True) == 10
    assert all(float(finals[f"pretrained-1.5b: {name}", "Low 50"]) > 0.0 for name in ("frozen", *MAPPINGS))
    assert verdicts(cells, "small.validity") == ["above zero"] * 4
    assert verdicts(cells, "small.endpoint") == ["undecided"] * 4


def test_as_many_studies_are_closed_as_the_pages_say() -> None:
    place = EVIDENCE / "pretrained" / "plan.toml"
    plan = read_plan(place)
    closed = closed_studies(read_amendments(place, plan))
    primary = [
        study.key
        for study in plan.studies
        if study.key in closed and any(question.role == "primary" for question in study.questions)
    ]
    assert (len(closed), len(plan.studies), primary) == (6, 10, ["restart", "time"])


def test_groups_without_advantage_are_valid_when_trained_and_failed_before() -> None:
    besides = shipped("pretrained/report/besides")

    def share(name: str) -> float:
        valid, flat = (
            float(besides[f"main.ties_zero+flat_{of}groups_of_factorized/{name}", "Estimate"])
            for of in ("valid_", "")
        )
        return valid / flat

    assert share("factorized") > 0.9
    assert share("frozen") < 0.1


def test_the_words_on_our_own_model_are_the_verdicts() -> None:
    cells, changes = of_own_models(), shipped("main/report/reward_changes")
    assert {float(changes[name, "Shift (%)"]) for name in MAPPINGS} == {0.0}
    assert verdicts(cells, "main.distinct") == ["below zero", "below zero", "undecided", "below zero"]
    assert verdicts(cells, f"main.{COPIES}") == ["above zero", "above zero", "undecided", "above zero"]
    assert verdicts(cells, "main.endpoint") == ["undecided"] * 4
    assert cells["main.mapping/factorized minus native", "Verdict"] == "above zero"

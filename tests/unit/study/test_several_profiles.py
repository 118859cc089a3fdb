"""Two studies that ask the same of two models are told apart wherever their answers stand together."""

import csv
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_struct
from spec.synthetic_runs import write_synthetic_run
from tests.plans import DEFAULTS, QUESTION, STUDY, plan_text

from search_to_signal.records.plan import read_plan
from search_to_signal.study.conclusions import group_by_verdict
from search_to_signal.study.formatting import select_primary
from search_to_signal.study.page import outcome_lines
from search_to_signal.study.verdicts import OutcomeVerdict, QuestionOutcome, compute_outcomes


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[QuestionOutcome]:
    """Native against frozen of two profiles, three seeds each."""
    top = tmp_path_factory.mktemp("several")
    for profile in ("main", "small"):
        for seed in (1, 2, 3):
            for condition in ("frozen", "native"):
                write_synthetic_run(top / f"{profile}/cohort/{condition}-s{seed}", condition, seed)
    pairs = '[["small/cohort/native", "small/cohort/frozen"]]'
    small = STUDY.format(key="small", title="Small", profile="small", layer="cohort") + QUESTION.format(
        **{**DEFAULTS, "key": "small.q", "pairs": pairs}
    )
    (top / "plan.toml").write_text(plan_text({}) + small)
    return compute_outcomes(top, read_plan(top / "plan.toml"))


def test_each_has_a_row_of_its_own_in_the_figure(outcomes: list[QuestionOutcome]) -> None:
    """With its profile's name: a row that two studies shared would show the mean of both."""
    rows = list(csv.DictReader(outcome_lines(select_primary(outcomes), "score").splitlines()))
    assert {row["comparison"] for row in rows} == {
        "main: native minus frozen (n = 3)",
        "small: native minus frozen (n = 3)",
    }
    alone = list(csv.DictReader(outcome_lines(outcomes[:1], "score").splitlines()))
    assert {row["comparison"] for row in alone} == {"native minus frozen (n = 3)"}
    # Among rows with a profile's name one without it would be a riddle.
    first, other = outcomes
    elsewhere = replace(other, sides=tuple(side.replace("native", "rank") for side in other.sides))
    rows = list(csv.DictReader(outcome_lines([first, elsewhere], "score").splitlines()))
    assert {row["comparison"].partition(":")[0] for row in rows} == {"main", "small"}
    lines = [line for group in group_by_verdict(outcomes) for line in group.lines]
    assert [line.partition(" against frozen, n = 3: native ")[0] for line in lines] == [
        "main: Valid (points)",
        "small: Valid (points)",
    ]
    assert group_by_verdict(outcomes[:1])[0].lines[0].startswith("Valid (points) against frozen")


def test_what_the_plan_describes_beside_the_paper_is_in_short(outcomes: list[QuestionOutcome]) -> None:
    """Each side with its interval and the paper's number, and what would count against."""
    question = replace_struct(outcomes[0].question, pairs=(("main/cohort/native",),), published=(0.6667,))
    found = replace(
        outcomes[0],
        question=question,
        sides=question.pairs[0],
        values={1: 0.25, 2: 0.75},
        interval=(0.125, 0.875),
        verdict=OutcomeVerdict.DESCRIBED,
    )
    (group,) = group_by_verdict([found])
    (line,) = group.lines
    assert group.title == "Described, where the paper has the same"
    assert "n = 2: native 50.00 [12.50, 87.50] (paper: 66.67)" in line
    assert line.endswith(f"this would count against it: {question.counts_against}")
    assert not group_by_verdict([replace(found, question=replace_struct(question, published=()))])


def test_a_question_that_is_undecided_throughout_has_the_plans_words(outcomes: list[QuestionOutcome]) -> None:
    first, other = outcomes
    asked = first.question
    same = [replace(first, verdict=OutcomeVerdict.OPEN), replace(other, question=asked, source=asked)]
    words = f"main.q: undecided 2 times; by the plan, this would count against it: {asked.counts_against}"
    undecided = [same[0], replace(same[1], verdict=OutcomeVerdict.OPEN)]
    assert words in [line for group in group_by_verdict(undecided) for line in group.lines]
    decided = [same[0], replace(same[1], verdict=OutcomeVerdict.ABOVE)]
    assert words not in [line for group in group_by_verdict(decided) for line in group.lines]

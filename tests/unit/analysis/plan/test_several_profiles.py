"""Two studies that ask the same of two models are told apart wherever their answers stand together."""

import csv
from dataclasses import replace

import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.plans import DEFAULTS, QUESTION, STUDY, plan_text

from search_to_signal.analysis.figures.outcomes import outcome_lines
from search_to_signal.analysis.plan.conclusions import group_by_verdict
from search_to_signal.analysis.plan.formatting import select_primary
from search_to_signal.analysis.plan.verdicts import QuestionOutcome, compute_outcomes
from search_to_signal.records.plan import read_plan


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


def test_a_row_that_the_other_lacks_says_whose_it_is_too(outcomes: list[QuestionOutcome]) -> None:
    """Among rows with a profile's name one without it would be a riddle."""
    first, other = outcomes
    elsewhere = replace(other, sides=tuple(side.replace("native", "rank") for side in other.sides))
    rows = list(csv.DictReader(outcome_lines([first, elsewhere], "score").splitlines()))
    assert {row["comparison"].partition(":")[0] for row in rows} == {"main", "small"}


def test_each_line_of_a_verdict_says_whose_it_is(outcomes: list[QuestionOutcome]) -> None:
    """Only where another profile has a line of the same name."""
    lines = [line for group in group_by_verdict(outcomes) for line in group.lines]
    assert [line.partition(" against frozen, n = 3: native ")[0] for line in lines] == [
        "main: Valid (points)",
        "small: Valid (points)",
    ]
    assert group_by_verdict(outcomes[:1])[0].lines[0].startswith("Valid (points) against frozen")

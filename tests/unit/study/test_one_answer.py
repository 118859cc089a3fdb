"""A comparison has one answer wherever it is asked; what is undecided says what it can hardly be."""

from pathlib import Path
from statistics import stdev

import pytest
from scipy.stats import nct
from scipy.stats import t as student
from spec.synthetic_runs import write_synthetic_run
from tests.plans import plan_text

from search_to_signal.records.plan import Plan, read_plan
from search_to_signal.study.conclusions import group_by_verdict
from search_to_signal.study.formatting import (
    build_outcome_table,
    build_study_grid,
    format_outcome,
    format_value,
)
from search_to_signal.study.plan_checks import find_deviations
from search_to_signal.study.verdicts import OutcomeVerdict, QuestionOutcome, compute_outcomes, smallest_effect

FEWER = {"key": "main.fewer", "seeds": 3, "role": "secondary"}
WHOLE = {"seeds": 4, "comparisons": 2}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four seeds of frozen and native."""
    root = tmp_path_factory.mktemp("recorded")
    for seed in (1, 2, 3, 4):
        for condition in ("frozen", "native"):
            write_synthetic_run(root / f"main/cohort/{condition}-s{seed}", condition, seed)
    return root


def planned_outcomes(
    root: Path, tmp_path: Path, *questions: dict[str, object]
) -> tuple[Plan, list[QuestionOutcome]]:
    """The plan of some questions, and its outcomes."""
    path = tmp_path / "plan.toml"
    path.write_text(plan_text(*questions, seeds=4))
    plan = read_plan(path)
    return plan, compute_outcomes(root, plan)


@pytest.mark.parametrize("order", [(WHOLE, FEWER), (FEWER, WHOLE)])
def test_one_comparison_has_one_answer(
    root: Path, tmp_path: Path, order: tuple[dict[str, object], ...]
) -> None:
    plan, found = planned_outcomes(root, tmp_path, *order)
    first, second = found
    assert len(first.values) == len(second.values) == 4
    assert (first.verdict, first.interval, first.corrected) == (
        second.verdict,
        second.interval,
        second.corrected,
    )
    (other,) = (one for one in found if one.question.key == "main.fewer")
    assert "n = 4:" in format_outcome(other)
    assert format_outcome(other).endswith(", answered by main.q")
    table = build_outcome_table(found, plan)
    assert table.cell("main.fewer/native minus frozen", "Seeds").value == 4
    assert table.cell("main.fewer/native minus frozen", "Verdict of").value == "main.q"
    assert "1 comparisons in 2 lines" in table.note
    grid = build_study_grid([other])
    assert grid is not None
    assert "n = 4:" in str(grid.rows)
    sentences = find_deviations(plan, "", {}, found)["main"]
    told = "main.fewer, native minus frozen: main.q answers it, over 4 seeds instead of 3"
    assert f"{told}, corrected for 2 comparisons instead of 1" in sentences


def test_one_answer_says_only_what_differs(root: Path, tmp_path: Path) -> None:
    alike, fewer = {**WHOLE, "key": "main.again"}, {"seeds": 4, "comparisons": 1, "key": "main.alone"}
    plan, found = planned_outcomes(root, tmp_path, WHOLE, alike, fewer)
    assert find_deviations(plan, "", {}, found)["main"][-2:] == [
        "main.again, native minus frozen: main.q answers it",
        "main.alone, native minus frozen: main.q answers it, corrected for 2 comparisons instead of 1",
    ]
    (root / "main/cohort/native-s4").rename(tmp_path / "away")
    try:
        _, found = planned_outcomes(root, tmp_path, WHOLE, FEWER)
    finally:
        (tmp_path / "away").rename(root / "main/cohort/native-s4")
    assert [one.verdict for one in found] == [OutcomeVerdict.PARTIAL, OutcomeVerdict.PARTIAL]
    assert "n = 3 of 4 planned: partial: no verdict, answered by main.q" in format_outcome(found[1])


def test_another_metric_is_another_question(root: Path, tmp_path: Path) -> None:
    _, found = planned_outcomes(
        root,
        tmp_path,
        WHOLE,
        {**FEWER, "metric": "final_best"},
        {**FEWER, "key": "main.signs", "estimator": "sign_count", "interval": "none"},
        {**FEWER, "key": "main.half", "horizon": 80},
    )
    assert [len(one.values) for one in found] == [4, 3, 3, 3]
    assert not any(one.answered_elsewhere for one in found)


def test_what_is_undecided_says_what_it_can_hardly_be(root: Path, tmp_path: Path) -> None:
    """The ends of the interval that decides, and what would have been seen by the recorded deviation."""
    plan, (found,) = planned_outcomes(root, tmp_path, {**WHOLE, "metric": "final_best", "comparisons": 4})
    assert found.verdict is OutcomeVerdict.OPEN
    assert found.corrected is not None
    assert found.recorded_effect is not None
    low, high = (format_value(found, end) for end in found.corrected)
    seen = format_value(found, found.recorded_effect).removeprefix("+")
    expected = f"undecided, not above {high} nor below {low} (an effect of {seen} would likely"
    assert expected in format_outcome(found)
    shift = found.recorded_effect * 2 / stdev(found.values.values())
    assert nct.sf(student.ppf(1 - 0.05 / 8, 3), 3, shift) == pytest.approx(0.8, abs=1e-6)
    cell = build_outcome_table([found], plan).cell("main.q/native minus frozen", "Smallest effect recorded")
    assert cell.value == pytest.approx(found.recorded_effect)


@pytest.mark.parametrize("seeds", [2, 3, 20])
def test_few_seeds_see_large_effects_only(seeds: int) -> None:
    """Two seeds see 46 deviations at 0.05 / 4, where a search up to 5 would end with an error."""
    effect = smallest_effect(1.0, seeds, 0.0125, 0.8)
    edge = student.ppf(1 - 0.0125 / 2, seeds - 1)
    assert nct.sf(edge, seeds - 1, effect * seeds**0.5) == pytest.approx(0.8, abs=1e-6)


def test_verdicts_stand_together(root: Path, tmp_path: Path) -> None:
    signs = {**WHOLE, "key": "main.signs", "estimator": "sign_count", "interval": "none"}
    reversed_sides = '[["main/cohort/frozen", "main/cohort/native"]]'
    _, found = planned_outcomes(
        root, tmp_path, WHOLE, FEWER, signs, {**WHOLE, "key": "main.b", "pairs": reversed_sides}
    )
    lines = [line for one in group_by_verdict(found) for line in one.lines]
    assert len(lines) == 2
    assert {line.partition(" ")[0] for line in lines} == {"Valid"}
    titles = {one.title for one in group_by_verdict(found)}
    assert titles <= {"Decided, above zero", "Decided, below zero", "Undecided"}

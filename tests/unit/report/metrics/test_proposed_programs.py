"""What is proposed, program by program: how many are distinct, copy a parent, and how each scores once."""

import msgspec
import pytest
from spec.synthetic_runs import synthetic_groups

from search_to_signal.records.schema import ArchiveEvent, CompletionRecord, HeuristicRecord, Outcome
from search_to_signal.report.metrics.search import (
    copied_scores,
    distinct_performance,
    median_performance,
    new_forms,
    new_programs,
    parent_copies,
    program_uniqueness,
    retuned_admissions,
    usable_rate,
    valid_of_usable,
    valid_rate_without_copies,
)


def proposed(program: str, score: float | None, copy: bool = False) -> CompletionRecord:
    """A completion of this program with this score, None of a failure."""
    ((record,),) = synthetic_groups("frozen", 1, 1, 1)
    outcome = Outcome.RUNTIME_FAILURE if score is None else Outcome.VALID
    changed = {"program_sha256": program, "score": score, "outcome": outcome, "matches_base_code": copy}
    return msgspec.structs.replace(record, **changed)


def test_every_program_counts_once() -> None:
    groups = [
        [proposed("a", -1.0, copy=True), proposed("a", -1.0, copy=True), proposed("b", -4.0)],
        [proposed("a", -1.0), proposed("c", None, copy=True), proposed("d", -4.0)],
    ]
    assert program_uniqueness(groups) == pytest.approx(3 / 5)
    assert parent_copies(groups) == pytest.approx(2 / 5)
    assert valid_rate_without_copies(groups) == pytest.approx(3 / 6)
    assert distinct_performance(groups) == pytest.approx(-3.0)
    groups = [[proposed("a", None)]]
    assert [measure(groups) for measure in (program_uniqueness, parent_copies, distinct_performance)] == [
        None,
        None,
        None,
    ]
    assert valid_rate_without_copies(groups) == 0.0


def test_validity_is_a_usable_function_times_a_valid_one() -> None:
    lacking = msgspec.structs.replace(proposed("a", None), outcome=Outcome.MISSING_FUNCTION)
    groups = [
        [proposed("a", -1.0), proposed("b", -2.0), proposed("c", -900.0)],
        [proposed("d", None), lacking, lacking],
    ]
    assert usable_rate(groups) == pytest.approx(4 / 6)
    assert valid_of_usable(groups) == pytest.approx(3 / 4)
    assert median_performance(groups) == -2.0
    assert usable_rate([[lacking]]) == 0.0
    assert (valid_of_usable([[lacking]]), median_performance([[lacking]])) == (None, None)


def test_new_programs_are_counted_where_they_come_first() -> None:
    assert new_programs([(0, "a"), (0, "a"), (2, "b"), (2, "a"), (2, "c"), (3, "b")], 5) == [1, 0, 2, 0, 0]


def test_a_parent_with_other_numbers_is_told_from_a_new_heuristic() -> None:
    codes = {"seed": "def f(a):\n    return 2 * a", "other": "def f(a):\n    return a - 1"}
    codes |= {"tuned": "def f(a):\n    return 3 * a", "new": "def f(a):\n    return 3 / a"}

    def answer(program: str, event: ArchiveEvent, *parents: str) -> CompletionRecord:
        return msgspec.structs.replace(proposed(program, -1.0), archive_event=event, parents=parents)

    admitted, duplicate = ArchiveEvent.ADMITTED, ArchiveEvent.DUPLICATE_SCORE
    groups = [
        [answer("tuned", admitted, "other", "seed"), answer("new", admitted, "seed")],
        [answer("tuned", duplicate, "seed"), answer("tuned", admitted, "other"), answer("new", admitted)],
    ]
    assert retuned_admissions(groups, codes) == pytest.approx(1 / 4)
    assert retuned_admissions([[answer("new", duplicate, "seed")]], codes) is None
    assert retuned_admissions([[answer("new", admitted, "lost")]], codes) is None

    def answer(score: float | None, copy: bool = False) -> CompletionRecord:
        return msgspec.structs.replace(proposed("a", score, copy), base_scores=(-3.0, -1.0))

    groups = [
        [answer(-1.0, copy=True), answer(-1.0), answer(-3.0 + 9e-8)],
        [answer(-2.0), answer(-1.0 + 1e-6), answer(None)],
    ]
    assert copied_scores(groups) == pytest.approx(2 / 5)
    assert copied_scores([[answer(None)]]) is None


def test_a_new_form_with_a_new_score_is_neither_other_numbers_nor_other_code_of_one_score() -> None:
    codes = {
        "seed": "def f(a):\n    return 2 * a",
        "tuned": "def f(a):\n    return 3.5 * a  # other numbers",
        "same": "def f(a):\n    return a + a",
        "new": "def f(a):\n    return a - 1",
        "again": "def f(a):\n    return a - 2",
        "late": "def f(a):\n    return a / 3",
    }
    heuristics = [
        HeuristicRecord(
            id=name,
            step=0,
            index=0,
            operator=None if name == "seed" else "mutation",
            idea="",
            code=code,
            score=-9.0,
        )
        for name, code in codes.items()
    ]

    def answer(program: str, score: float, admitted: bool = True) -> CompletionRecord:
        event = ArchiveEvent.ADMITTED if admitted else ArchiveEvent.DUPLICATE_SCORE
        return msgspec.structs.replace(proposed(program, score), archive_event=event)

    groups = [
        [answer("tuned", -8.0), answer("same", -9.0, admitted=False), answer("new", -7.0)],
        [answer("again", -6.0), answer("unknown", -5.0, admitted=False), answer("late", -5.0 + 9e-8)],
    ]
    assert new_forms(groups, heuristics) == 1
    assert new_forms([groups[0], [answer("late", -5.0)]], heuristics) == 2
    assert new_forms([[answer("lost", -5.0)]], heuristics) is None

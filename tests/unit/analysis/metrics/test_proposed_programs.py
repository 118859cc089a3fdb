"""What is proposed, program by program: how many are distinct, copy a parent, and how each scores once."""

import msgspec
import pytest
from spec.synthetic_runs import synthetic_groups

from search_to_signal.analysis.metrics.search import (
    distinct_performance,
    parent_copies,
    program_uniqueness,
    valid_rate_without_copies,
)
from search_to_signal.records.schema import CompletionRecord, Outcome


def proposed(program: str, score: float | None, copy: bool = False) -> CompletionRecord:
    """A completion of this program with this score, None of a failure."""
    ((record,),) = synthetic_groups("frozen", 1, 1, 1)
    outcome = Outcome.RUNTIME_FAILURE if score is None else Outcome.VALID
    changed = {"program_sha256": program, "score": score, "outcome": outcome, "matches_base_code": copy}
    return msgspec.structs.replace(record, **changed)


def test_every_program_counts_once() -> None:
    """Repeats of a good program raise the mean of completions, not that of programs; failures are neither."""
    groups = [
        [proposed("a", -1.0, copy=True), proposed("a", -1.0, copy=True), proposed("b", -4.0)],
        [proposed("a", -1.0), proposed("c", None, copy=True), proposed("d", -4.0)],
    ]
    assert program_uniqueness(groups) == pytest.approx(3 / 5)
    assert parent_copies(groups) == pytest.approx(2 / 5)
    assert valid_rate_without_copies(groups) == pytest.approx(3 / 6)
    assert distinct_performance(groups) == pytest.approx(-3.0)


def test_nothing_valid_has_no_share() -> None:
    """Absent is not zero."""
    groups = [[proposed("a", None)]]
    assert [measure(groups) for measure in (program_uniqueness, parent_copies, distinct_performance)] == [
        None,
        None,
        None,
    ]
    assert valid_rate_without_copies(groups) == 0.0

"""Which class a completion is of, and what of its group's advantages stays when a class taught nothing."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec.synthetic_runs import synthetic_groups

from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.records.schema import Outcome
from search_to_signal.run.left_out import (
    ALL_VALID,
    CONSTANTS,
    COPIES,
    FAILED,
    FORMS,
    KINDS,
    NOTHING,
    VALIDITY,
    Programs,
    advantages_without,
    checked_classes,
    left_out,
)
from search_to_signal.sandbox.programs import program_sha256

PARENT = "def score(x):\n    return 2 * x"
FAILURE = Outcome.RUNTIME_FAILURE
PROGRAMS = Programs(Path("run"), {program_sha256(PARENT): PARENT})
GROUPS = st.lists(st.tuples(st.floats(-3, 3), st.sampled_from(KINDS)), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("code", "outcome", "kind"),
    [
        (f"{PARENT}  # again", Outcome.VALID, COPIES),
        (PARENT.replace("2", "0.5"), Outcome.VALID, CONSTANTS),
        (PARENT.replace("*", "+"), Outcome.VALID, FORMS),
        (PARENT, FAILURE, FAILED),
    ],
)
def test_a_completion_is_of_the_class_of_its_program(code: str, outcome: Outcome, kind: str) -> None:
    """A copy is one whatever its comments; other numbers and other operators are told from it."""
    record = synthetic_groups("native", 1, 1, 1)[0][0]
    made = {"outcome": outcome, "program_sha256": program_sha256(code)}
    record = type(record)(**{**{name: getattr(record, name) for name in record.__struct_fields__}, **made})
    assert PROGRAMS.kind(record, f"idea\n```python\n{code}\n```", tuple(PROGRAMS.codes)) == kind


def test_an_unknown_parent_is_damage() -> None:
    """Nothing could be compared with a parent whose program is not recorded."""
    groups = synthetic_groups("native", 1, 20, 4)
    record = next(one for group in groups for one in group if one.outcome is Outcome.VALID)
    with pytest.raises(RecordError, match="lacks the parent elsewhere"):
        PROGRAMS.kind(record, "", ("elsewhere",))


@given(GROUPS)
def test_every_completion_is_left_out_with_one_class(group: list[tuple[float, str]]) -> None:
    """So that the shares of the four classes add up; without all of them nothing is left."""
    advantages, kinds = np.array([value for value, _ in group]), [kind for _, kind in group]
    assert np.array_equal(np.sum([left_out(kinds, kind) for kind in KINDS], axis=0), np.ones(len(kinds)))
    assert not advantages_without(advantages, kinds, "+".join(KINDS)).any()
    assert np.array_equal(advantages_without(advantages, kinds, NOTHING), advantages)


@given(GROUPS)
def test_those_that_stay_keep_their_distances_and_push_to_no_side(group: list[tuple[float, str]]) -> None:
    """A group that only lost its best would push away whatever is left of it."""
    advantages, kinds = np.array([value for value, _ in group]), [kind for _, kind in group]
    gone = np.array(kinds) == COPIES
    left = advantages_without(advantages, kinds, COPIES)
    assert not left[gone].any()
    assert np.allclose(np.diff(left[~gone]), np.diff(advantages[~gone]))
    assert abs(left.sum()) < 1e-9 or not gone.any()


@given(GROUPS)
def test_without_validity_like_is_compared_with_like(group: list[tuple[float, str]]) -> None:
    """Valid and failed completions have no advantage over each other, and keep their distances within."""
    advantages, kinds = np.array([value for value, _ in group]), [kind for _, kind in group]
    left = advantages_without(advantages, kinds, VALIDITY)
    failed = np.array(kinds) == FAILED
    for part in (failed, ~failed):
        assert abs(left[part].sum()) < 1e-9
        assert np.allclose(np.diff(left[part]), np.diff(advantages[part]))


def test_equal_advantages_of_the_valid_are_no_advantage_without_validity() -> None:
    """Rounding leaves nothing that an optimizer without a gradient would scale up."""
    advantages = np.array([0.1, 0.1, 0.1, -0.3])
    assert not advantages_without(advantages, [COPIES, FORMS, FORMS, FAILED], VALIDITY).any()


def test_groups_all_of_whose_completions_are_valid_are_left_out_whole() -> None:
    """And no other group."""
    advantages = np.array([1.0, -1.0])
    assert not advantages_without(advantages, [COPIES, FORMS], ALL_VALID).any()
    assert np.array_equal(advantages_without(advantages, [COPIES, FAILED], ALL_VALID), advantages)


def test_an_unknown_class_is_refused_by_name() -> None:
    """Also one that is joined to a known one."""
    with pytest.raises(ConfigError, match="no class of credit 'copy': choose one of copies, constants"):
        checked_classes("forms+copy")

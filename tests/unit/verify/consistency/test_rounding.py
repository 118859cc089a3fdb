"""What counts as the same number on another processor."""

import pytest

from search_to_signal.credit.assignment import agree


def test_last_bits_of_another_processor_agree() -> None:
    assert agree([0.1 + 0.2, 1e6, None], [0.3, 1e6 * (1 + 2**-50), None])


@pytest.mark.parametrize(
    ("recorded", "due"),
    [([0.3], [0.3000001]), ([0.0], [1e-9]), ([None], [0.0]), ([0.0], [None]), ([1.0], [1.0, 2.0])],
)
def test_an_edit_does_not_agree(recorded: list[float | None], due: list[float | None]) -> None:
    """A changed digit that anybody would print, a missing number and another length are differences."""
    assert not agree(recorded, due)

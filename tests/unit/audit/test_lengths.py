"""What a rule of aggregation gives to long completions."""

import pytest

from search_to_signal import audit


@pytest.mark.parametrize(
    ("rule", "per_sequence", "per_token"), [("token_mean", 2.5, 1.0), ("sequence_mean", 1.0, 0.4)]
)
def test_the_longest_weigh_by_token_or_by_sequence(rule: str, per_sequence: float, per_token: float) -> None:
    """Of equal advantages, a completion of 50 tokens beside three of 10: mean length 20."""
    groups = audit.of_arrays([0, 1, 0, 1], [4], tokens=[10, 50, 10, 10], advantage=[-1, 1, -1, 1])
    sums = audit.audit(groups).lengths[rule]
    assert (sums.longest, sums.tokens, sums.longest_tokens) == (1, 80, 50)
    assert sums.per_sequence == pytest.approx(per_sequence)
    assert sums.per_token == pytest.approx(per_token)


def test_equal_lengths_have_no_longest() -> None:
    """There is nothing to compare, and nothing is said."""
    groups = audit.of_arrays([0, 1], [2], tokens=[10, 10], advantage=[-1, 1])
    sums = audit.audit(groups).lengths["token_mean"]
    assert (sums.per_sequence, sums.per_token) == (None, None)

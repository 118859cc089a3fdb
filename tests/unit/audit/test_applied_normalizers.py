"""A log's steps are taken together where that is faster, and get what each gets by itself."""

from collections.abc import Sequence

import numpy as np
import pytest

from search_to_signal import audit
from search_to_signal.audit.agreement import apply, step_batches
from search_to_signal.audit.atlas import entries
from search_to_signal.audit.groups import RewardGroups, part, spans


def log(sizes: Sequence[int], steps: Sequence[int], tokens: bool) -> RewardGroups:
    """Groups of rewards from two parts, some of them equal throughout."""
    stream = np.random.default_rng(5)
    rows = sum(sizes)
    parts = {"right": stream.integers(0, 2, rows).astype(float), "style": stream.uniform(0, 0.1, rows)}
    parts["style"][: sizes[0]] = parts["right"][: sizes[0]] = 1.0
    lengths = stream.integers(1, 900, rows) if tokens else np.full(rows, -1)
    reward = parts["right"] + parts["style"]
    return audit.of_arrays(reward, sizes, components=parts, step=steps, tokens=lengths)


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize(
    ("sizes", "steps"),
    [
        ([8] * 12, [0] * 4 + [1] * 4 + [2] * 4),
        ([8] * 7, [0] * 4 + [1] * 2 + [2]),
        ([3, 1, 4, 5, 2, 6], [0, 0, 0, 1, 1, 1]),
    ],
)
def test_steps_get_what_each_gets_alone(sizes: list[int], steps: list[int], tokens: bool) -> None:
    groups = log(sizes, steps, tokens)
    alone = [part(groups, first, end) for first, end in spans(groups)]
    for name, entry in entries().items():
        given = apply(entry, step_batches(groups))
        single = np.concatenate([apply(entry, step_batches(step)) for step in alone])
        assert given.tobytes() == single.tobytes(), name


@pytest.mark.parametrize("name", ["group", "trl_float32", "dr_grpo", "rloo", "rank", "gdpo", "entropic"])
def test_a_missing_reward_takes_credit_from_its_group_alone(name: str) -> None:
    reward = np.array([0.0, 1.0, np.nan, 1.0, 2.0, 3.0])
    given = apply(entries()[name], step_batches(audit.of_arrays(reward, [2, 2, 2])))
    alone = apply(entries()[name], step_batches(audit.of_arrays(reward[[0, 1, 4, 5]], [2, 2])))
    assert np.isnan(given[2:4]).all()
    assert given[[0, 1, 4, 5]].tolist() == alone.tolist()
    assert np.isfinite(alone).all()

"""Normalizing many groups in one call gives each of them the bits that it has alone."""

import numpy as np
import pytest

from search_to_signal.credit.normalizers import NORMALIZERS, advantages, advantages_by_group


@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 9, 16, 33])
def test_groups_do_not_see_each_other(name: str, size: int) -> None:
    """Flat groups, rounded rewards and other scales: no bit depends on which groups stand beside."""
    rng = np.random.default_rng(size)
    rewards = rng.normal(size=(60, size)) * 10.0 ** rng.uniform(-5, 5, size=(60, 1))
    rewards[::4] = np.round(rewards[::4], 1)
    rewards[1::4] = rewards[1::4, :1]
    parts = {"first": rewards / 2.0, "second": rewards * 0.3}
    together = advantages_by_group(NORMALIZERS[name], rewards, parts)
    for number in range(len(rewards)):
        own = {key: values[number : number + 1] for key, values in parts.items()}
        alone = advantages(NORMALIZERS[name], rewards[number : number + 1], own)
        assert alone.tobytes() == together[number : number + 1].tobytes()

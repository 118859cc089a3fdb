"""Which knobs of a reward cannot matter under a normalizer: advantages computed again without them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from search_to_signal.audit.applied_normalizers import StepBatches, apply
from search_to_signal.audit.atlas import NormalizerEntry
from search_to_signal.audit.group_flags import ROUNDED, ZERO
from search_to_signal.audit.groups import Floats, RewardGroups
from search_to_signal.numerics import added

SCALE = "all rewards times 10"
COMPONENT = "component "
# A group changes where an advantage moves by more than this share of the group's largest one.
_CHANGE = 0.01


@dataclass(frozen=True)
class Knob:
    """Of ``groups`` with an advantage other than 0, ``changed`` move by more than 1 % without the knob."""

    groups: int = 0
    changed: int = 0

    def __add__(self, more: "Knob") -> "Knob":
        return added(self, more)


def knobs(entry: NormalizerEntry, groups: RewardGroups, base: Floats) -> dict[str, Knob]:
    """Every knob of a batch by name; ``base`` (R,) are the advantages with all of them.

    A component counts only where the reward is the weighted sum of the components.
    """
    tried = {SCALE: _times_ten(groups)}
    if len(groups.components) > 1 and _is_sum(groups):
        tried |= {f"{COMPONENT}{name}": without for name, without in _without(groups)}
    return {
        name: _changes(groups, base, apply(entry, StepBatches(groups, *given)))
        for name, given in tried.items()
    }


def _times_ten(groups: RewardGroups) -> tuple[Floats, dict[str, Floats]]:
    return groups.reward * 10.0, {name: values * 10.0 for name, values in groups.components.items()}


def _without(groups: RewardGroups) -> Iterator[tuple[str, tuple[Floats, dict[str, Floats]]]]:
    for name, values in groups.components.items():
        rest = {other: column for other, column in groups.components.items() if other != name}
        yield name, (groups.reward - groups.weights.get(name, 1.0) * np.nan_to_num(values), rest)


def _is_sum(groups: RewardGroups) -> bool:
    total = sum(
        groups.weights.get(name, 1.0) * np.nan_to_num(values) for name, values in groups.components.items()
    )
    return bool(np.allclose(total, np.nan_to_num(groups.reward), rtol=1e-6, atol=1e-9))


def _changes(groups: RewardGroups, base: Floats, other: Floats) -> Knob:
    starts = groups.offsets[:-1]
    known = np.logical_and.reduceat(np.isfinite(base) & np.isfinite(other), starts)
    moved = np.maximum.reduceat(np.nan_to_num(np.abs(other - base)), starts)
    largest = np.maximum.reduceat(np.nan_to_num(np.abs(base)), starts)
    # A group without an advantage, or with rounding in its place, has nothing to change.
    known &= largest > max(ZERO, ROUNDED * largest.max(initial=0.0))
    changed = known & (moved > _CHANGE * largest)
    return Knob(int(known.sum()), int(changed.sum()))

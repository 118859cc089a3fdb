"""Every group of a log as a row: what it is, what is remarkable, its rewards and advantages."""

import csv
import io
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from search_to_signal.audit.agreement import place_of
from search_to_signal.audit.applying import apply
from search_to_signal.audit.atlas import get_entry, source_of
from search_to_signal.audit.distinctions import GroupFacts
from search_to_signal.audit.groups import Floats, RewardGroups
from search_to_signal.audit.options import options_of

# Groups that are written: a million of them are no table to read.
MOST = 20_000
FLAGS = ("singleton", "unscored", "flat", "silenced", "dead", "merged", "reversed", "repeated", "amplified")
_COLUMNS = ("number", "group", "prompt", "source", "step", "position", "size", "flags", "rewards", "logged")


def compared(name: str | None) -> tuple[str, ...]:
    """Entries whose advantages are written: the one that a log is compared with, and its alternatives."""
    known = name or "trl-grpo"
    return known, *options_of(source_of(get_entry(known)).framework).scales.values()


class GroupTable:
    """Collects groups as they are audited; ``names`` are the entries whose advantages get a column each.

    Rewards and advantages of a group stand in one cell, in order, with a space between.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._out = io.StringIO()
        self._rows = csv.writer(self._out, lineterminator="\n")
        self._rows.writerow([*_COLUMNS, *self._names])
        self._seen = 0

    def add(self, groups: RewardGroups, audited: Floats, facts: GroupFacts) -> None:
        """Write the groups of a batch, up to MOST of the log."""
        count = min(len(groups.step), MOST - self._seen)
        if count <= 0:
            return
        given = [_cells(groups, apply(get_entry(name), groups), count) for name in self._names]
        # Rewards of a tight group differ in late digits.
        rewards = _cells(groups, groups.reward, count, digits=12)
        logged = _cells(groups, groups.advantage, count)
        flags = np.array([facts.flags[name] for name in FLAGS])
        for at in range(count):
            place = place_of(groups, at)
            self._rows.writerow(
                [
                    self._seen + at + 1,
                    groups.name[at] if groups.name else "",
                    groups.prompt[at] if groups.prompt else "",
                    place.source,
                    place.step if place.step >= 0 else "",
                    place.position,
                    int(groups.sizes[at]),
                    " ".join(name for name, on in zip(FLAGS, flags[:, at], strict=True) if on),
                    rewards[at],
                    logged[at],
                    *(cells[at] for cells in given),
                ]
            )
        self._seen += count

    def data(self) -> bytes:
        """The table as CSV."""
        return self._out.getvalue().encode("utf-8", "replace")


def _cells(groups: RewardGroups, values: Floats, count: int, digits: int = 6) -> list[str]:
    """Numbers of each group; empty where none of them is a number."""
    bounds = groups.offsets[: count + 1].tolist()
    texts = [f"{value:.{digits}g}" for value in values[: bounds[-1]].tolist()]
    known = np.isfinite(values)
    return [" ".join(texts[start:end]) if known[start:end].any() else "" for start, end in pairwise(bounds)]

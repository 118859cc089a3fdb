"""Every group of a log as a row: what it is, what is remarkable, its rewards and advantages."""

import csv
import io
import re
from collections.abc import Sequence

import numpy as np

from search_to_signal.audit.applied_normalizers import apply, step_batches
from search_to_signal.audit.atlas import get_entry, source_of
from search_to_signal.audit.framework_options import options_of
from search_to_signal.audit.group_flags import GroupFlags
from search_to_signal.audit.groups import Floats, RewardGroups

# Groups that are written: a million of them are no table to read.
MOST = 20_000
FLAGS = ("singleton", "unscored", "flat", "silenced", "dead", "merged", "reversed", "repeated", "amplified")
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?", re.IGNORECASE)
_COLUMNS = ("number", "group", "prompt", "source", "step", "position", "size", "flags", "rewards", "logged")


def compared(name: str | None) -> tuple[str, ...]:
    """Entries whose advantages are written: the one that a log is compared with, and its alternatives."""
    known = name or "trl-grpo"
    return known, *options_of(source_of(get_entry(known)).framework).scales.values()


class GroupTable:
    """Collects groups as they are audited; ``names`` are the entries whose advantages get a column each.

    Rewards and advantages of a group are in one cell, in order, with a space between. A last row without a
    number says how many groups were left out.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._out = io.StringIO()
        self._rows = csv.writer(self._out, lineterminator="\n")
        self._rows.writerow([*_COLUMNS, *self._names])
        self._seen = self._met = 0

    def add(self, groups: RewardGroups, audited: Floats, facts: GroupFlags) -> None:
        """Write the groups of a batch, up to MOST of the log."""
        self._met += len(groups.step)
        count = min(len(groups.step), MOST - self._seen)
        if count <= 0:
            return
        batches = step_batches(groups)
        steps = groups.step[:count].tolist()
        columns = [
            range(self._seen + 1, self._seen + count + 1),
            [as_cell(name) for name in groups.name[:count]] or [""] * count,
            [as_cell(prompt) for prompt in groups.prompt[:count]] or [""] * count,
            (as_cell(groups.source_of(row)) for row in groups.offsets[:count].tolist()),
            [step if step >= 0 else "" for step in steps],
            groups.position[groups.offsets[:count]].tolist(),
            groups.sizes[:count].tolist(),
            _flags(facts, count),
            # Rewards of a tight group differ in late digits.
            _cells(groups, groups.reward, count, digits=12),
            _cells(groups, groups.advantage, count),
            *(_cells(groups, apply(get_entry(name), batches), count) for name in self._names),
        ]
        self._rows.writerows(zip(*columns, strict=False))
        self._seen += count

    def data(self) -> bytes:
        """The table as CSV."""
        if self._met > self._seen:
            self._rows.writerow(["", f"{self._met - self._seen} more groups are not in this table"])
        return self._out.getvalue().encode("utf-8", "replace")


def as_cell(text: str) -> str:
    """A text of a log for a table that people open in a spreadsheet.

    One that begins like a formula and is no number gets an apostrophe before it. No NUL: csv refuses it.
    """
    clean = text.replace("\0", "?")
    formula = clean.startswith(tuple("=+-@\t\r")) and not _NUMBER.fullmatch(clean)
    return f"'{clean}" if formula else clean


def _flags(facts: GroupFlags, count: int) -> list[str]:
    """The names of the flags of each group; few different sets occur."""
    given = np.array([facts.flags[name][:count] for name in FLAGS])
    codes = (1 << np.arange(len(FLAGS))) @ given
    texts = {
        code: " ".join(name for bit, name in enumerate(FLAGS) if code >> bit & 1)
        for code in set(codes.tolist())
    }
    return [texts[code] for code in codes.tolist()]


def _cells(groups: RewardGroups, values: Floats, count: int, digits: int = 6) -> list[str]:
    """Numbers of each group; empty where none of them is a number."""
    sizes, rows = groups.sizes[:count].tolist(), int(groups.offsets[count])
    known = np.logical_or.reduceat(np.isfinite(values[:rows]), groups.offsets[:count]).tolist()
    if not any(known):
        return [""] * count
    # One text of all numbers takes half the time of a text for each.
    number = f"%.{digits}g"
    pattern = {size: " ".join([number] * size) for size in set(sizes)}
    texts = ("\n".join([pattern[size] for size in sizes]) % tuple(values[:rows].tolist())).split("\n")
    return [text if some else "" for text, some in zip(texts, known, strict=True)]

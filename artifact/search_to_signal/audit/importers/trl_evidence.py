"""What the advantages that TRL logged say of its tables: the reward, its weights, how large groups are.

Advantages of TRL sum to 0 in every group, and all but GDPO's are a rising line of its rewards there. A wrong
guess at the columns or at the size breaks this, so guesses are tried.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, groupby, islice
from typing import Any

import numpy as np

from search_to_signal.audit.groups import Floats, Integers
from search_to_signal.audit.importers.base import usual_run
from search_to_signal.audit.importers.rows import score

# Rows of a file that are looked at, and columns of which every choice is tried: of more, what comes first.
_ROWS, _COLUMNS = 4_096, 10
# Equations that have to hold before a column is left out or a run is split: fewer do by chance.
_CHECKS = 4
# What float32 may cost, and the least deviation that TRL divides by.
_ROUNDING, _EPSILON = 2.0**-21, 1e-4
ZERO = 1e-6


@dataclass(frozen=True)
class Sample:
    """The first rows of a file: the runs of equal prompts (N,), columns of numbers (R,), the advantages (R,).

    ``advantage`` is None where the file has none. ``distinct``: no prompt has a second row.
    """

    runs: Integers
    columns: Mapping[str, Floats]
    advantage: Floats | None
    distinct: bool

    def reward(self, names: Iterable[str], weights: Mapping[str, float]) -> Floats:
        """(R,): the weighted sum of some columns; NaN where none has a number and the trainer saw none."""
        parts = [self.columns[name] * weights.get(name, 1.0) for name in names if name in self.columns]
        table = np.array(parts, dtype=np.float64).reshape(len(parts), int(self.runs.sum()))
        lacking = np.isnan(table).all(axis=0)
        if self.advantage is not None:
            lacking &= ~(np.abs(self.advantage) > ZERO)
        return np.where(lacking, np.nan, np.nansum(table, axis=0))

    @property
    def common(self) -> int:
        """The largest size of which every run is a multiple; 0 without rows."""
        return math.gcd(*self.runs.tolist())

    def groups(self, names: Sequence[str]) -> Iterator[tuple[Floats, Floats]]:
        """Of each group the columns (G, names) and the advantages (G,), without their means; the smallest
        groups in which advantages sum to 0."""
        given = np.zeros(0) if self.advantage is None else self.advantage
        table = np.stack([self.columns[name] for name in names], axis=1)
        table = np.where(np.isnan(table), 0.0, table)
        size = next((size for size in reversed(_divisors(self.common)) if _sums(given, size)), 0)
        ends = np.arange(size, len(given), size) if size else np.cumsum(self.runs)[:-1]
        for rows, credit in zip(np.split(table, ends), np.split(given, ends), strict=True):
            if len(credit) and np.isfinite(credit).all() and np.isfinite(rows).all():
                yield rows - rows.mean(axis=0), credit - credit.mean()


@dataclass(frozen=True)
class Told:
    """What the files of a run say together: numbers that are no reward, the usual group size, and weights
    where equal ones explain nothing."""

    extras: frozenset[str] = frozenset()
    size: int | None = None
    weights: Mapping[str, float] = field(default_factory=dict)


def sample_of(records: Iterable[tuple[int, Mapping[str, Any]]], names: Sequence[str]) -> Sample:
    """The first rows of a file with these columns of numbers; the last run is left out where it was cut."""
    rows = [record for _, record in islice(records, _ROWS)]
    runs = [len(list(run)) for _, run in groupby(rows, key=lambda row: row["prompt"])]
    if len(rows) == _ROWS and len(runs) > 1:
        rows = rows[: -runs.pop()]
    logged = bool(rows) and "advantage" in rows[0]
    return Sample(
        np.array(runs, dtype=np.int64),
        {name: np.array([score(row[name]) for row in rows], dtype=np.float64) for name in names},
        np.array([score(row["advantage"]) for row in rows], dtype=np.float64) if logged else None,
        len({repr(row["prompt"]) for row in rows}) == len(rows),
    )


def told(samples: Sequence[Sample], weights: Mapping[str, float], named: bool) -> Told:
    """What the advantages of a run say; ``named``: the caller said which columns are the reward."""
    names = tuple(dict.fromkeys(name for sample in samples for name in sample.columns))
    guesses = [names] if named else [*_guesses(names)]

    def explaining(exact: bool) -> tuple[str, ...] | None:
        tried = (one for one in guesses if _explains(samples, one, weights, exact, one == names))
        return next(tried, None)

    chosen = explaining(exact=True)
    # Rewards that overflow are data.
    with np.errstate(all="ignore"):
        solved = _weights(samples, names) if chosen is None and not weights else {}
    chosen = chosen or tuple(solved) or explaining(exact=False)
    found = [size_of(sample, chosen or names, solved or weights) for sample in samples]
    sizes = Counter(size for size, proved in found if proved)
    size = max(sizes, key=lambda one: (sizes[one], one)) if sizes else None
    return Told(frozenset(names) - frozenset(chosen or names), size, solved)


def _weights(samples: Sequence[Sample], names: Sequence[str]) -> dict[str, float]:
    """The weights under which some columns explain the advantages exactly; empty where none are found.

    In a group the advantages are a multiple of the weighted sum, both without their mean. What is left of
    each column beside the advantages has to cancel in every group, which gives the weights up to a factor,
    and the slopes give that.
    """
    if len(names) < 2:
        return {}
    groups = [
        (table, given)
        for sample in samples
        if sample.advantage is not None and set(sample.columns) == set(names)
        for table, given in sample.groups(names)
    ]
    equations = sum(len(given) - 2 for _, given in groups)
    if equations < len(names) + _CHECKS:
        return {}
    scale = np.sqrt(sum(np.square(table).sum(axis=0) for table, _ in groups)) + 1e-300
    left = np.zeros((len(names), len(names)))
    for table, given in groups:
        unit = given / (np.linalg.norm(given) or 1.0)
        beside = table / scale - np.outer(unit, unit @ (table / scale))
        left += beside.T @ beside
    values, vectors = np.linalg.eigh(np.nan_to_num(left))
    # One way to cancel, not several; float32 costs some 1e-14 of a square.
    if not values[0] <= 1e-10 * values[-1] < 1e-4 * values[1]:
        return {}
    weight = vectors[:, 0] / scale
    weight = np.where(np.abs(vectors[:, 0]) < 1e-4, 0.0, weight / np.abs(weight).max())
    weight *= np.sign(sum(given @ (table @ weight) for table, given in groups))
    slopes, spreads = [], []
    for table, given in groups:
        reward = table @ weight
        if (across := reward @ reward) > 0 and len(reward) > 1:
            slopes.append(given @ reward / across)
            spreads.append(math.sqrt(across / (len(reward) - 1)))
    slope, rest = np.median(slopes), np.median(1.0 / np.array(slopes) - np.array(spreads))
    for factor in (_EPSILON / rest, slope):
        # As a person writes weights.
        typed = {name: float(f"{factor * value:.3g}") for name, value in zip(names, weight, strict=True)}
        typed = {name: value for name, value in typed.items() if value}
        if _explains(samples, tuple(typed), typed, True, True):
            return typed
    return {}


def size_of(
    sample: Sample, names: Sequence[str], weights: Mapping[str, float], usual: int | None = None
) -> tuple[int | None, bool]:
    """The group size of a file, None where its runs are the groups; and whether the advantages show it.

    All groups of TRL have one size, which divides every run: the largest divisor that explains the advantages
    is taken, the usual one of the run first; where none does, the largest in which they sum to 0.
    """
    common = sample.common
    even = bool((sample.runs == common).all())
    divisors = _divisors(common)
    if usual in divisors:
        divisors.insert(0, usual)
    if sample.advantage is None:
        # Nothing to try it on.
        return usual_run(sample.runs.tolist()), False
    reward = sample.reward(names, weights)
    lines = {size: _line(sample.advantage, reward, np.full(len(reward) // size, size)) for size in divisors}
    for exact in (True, False):
        for size in divisors:
            line = lines[size]
            if line.fits and line.checks >= _CHECKS and (line.exact or not exact):
                return size, line.lively
    summing = [size for size in divisors if not even and _sums(sample.advantage, size)]
    return (summing[0], True) if summing else (None, False)


def _divisors(number: int) -> list[int]:
    return [size for size in range(number, 1, -1) if number % size == 0]


def _guesses(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All columns; then those that come first, since TRL writes reward functions before extras; then any."""
    for count in range(len(names), 0, -1):
        yield tuple(names[:count])
    if len(names) <= _COLUMNS:
        for count in range(len(names) - 1, 0, -1):
            yield from combinations(names, count)


def _explains(
    samples: Sequence[Sample],
    names: Sequence[str],
    weights: Mapping[str, float],
    exact: bool,
    everything: bool,
) -> bool:
    total = 0
    for sample in samples:
        if sample.advantage is None:
            continue
        reward = sample.reward(names, weights)
        sizes = [np.full(len(reward) // size, size) for size in _divisors(sample.common)]
        for groups in (sample.runs, *sizes):
            line = _line(sample.advantage, reward, groups)
            if line.fits and (line.exact or not exact):
                break
        else:
            return False
        total += line.checks
    return total >= (1 if everything else _CHECKS)


@dataclass(frozen=True)
class Line:
    """How advantages lie over the rewards of groups, where ``checks`` equations could have failed.

    ``fits``: on a rising line in every group, and sum to 0 there. ``exact``: its slope is one that TRL gives.
    ``lively``: some advantage is not 0.
    """

    fits: bool
    exact: bool
    checks: int
    lively: bool


def _line(advantage: Floats, reward: Floats, sizes: Integers) -> Line:
    """A group with an advantage or a reward beyond all numbers says nothing; nor does a row without one."""
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    group = np.repeat(np.arange(len(sizes)), sizes)
    known = ~np.isnan(reward)
    broken = np.logical_or.reduceat(known & ~(np.isfinite(reward) & np.isfinite(advantage)), starts)
    known &= ~broken[group]
    count = np.maximum(np.add.reduceat(known.astype(np.float64), starts), 1.0)

    def centred(column: Floats) -> tuple[Floats, Floats, Floats]:
        filled = np.where(known, column, 0.0)
        mean = np.add.reduceat(filled, starts) / count
        return mean, np.where(known, filled - mean[group], 0.0), np.maximum.reduceat(np.abs(filled), starts)

    mean, given, largest = centred(advantage)
    _, levels, size = centred(reward)
    spread = np.maximum.reduceat(np.abs(levels), starts)
    flat = spread <= _ROUNDING / 2 * size
    across = np.add.reduceat(levels * levels, starts)
    slope = np.divide(np.add.reduceat(given * levels, starts), across, out=np.zeros(len(sizes)), where=~flat)
    slack = _ROUNDING * (largest + np.abs(slope) * size)
    off = np.maximum.reduceat(np.abs(given - slope[group] * levels), starts)
    rising = (slope > 0) & (off <= slack) & (np.abs(mean) <= slack)
    still = largest <= np.maximum(ZERO, _ROUNDING * size / _EPSILON)
    live = ~flat
    degrees = np.maximum(count - 1, 1)[live]
    whole = np.std(reward[known], ddof=1) if known.sum() > 1 else 0.0
    # Divided by the deviation of the group or of all, not divided, or without the row itself in its mean.
    scales = (np.sqrt(across[live] / degrees) + _EPSILON, whole + _EPSILON, 1.0, degrees / count[live])
    near = 1e-5 + _ROUNDING * size[live] / spread[live]
    exact = any(bool((np.abs(slope[live] * scale - 1) <= near).all()) for scale in scales)
    checks = int(np.add.reduceat(known.astype(np.int64), starts).sum() - live.sum())
    return Line(bool(np.where(flat, still, rising).all()), exact, checks, bool((largest > ZERO).any()))


def _sums(advantage: Floats, size: int) -> bool:
    """Whether advantages of groups of a size sum to 0, and some is none: true of every reward."""
    table = advantage.reshape(-1, size)
    table = table[np.isfinite(table).all(axis=1)]
    largest = np.abs(table).max(axis=1, initial=0.0)
    return bool((largest > ZERO).any() and (np.abs(table.mean(axis=1)) <= _ROUNDING * largest).all())

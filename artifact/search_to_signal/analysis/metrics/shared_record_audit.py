"""The shared-record audit: which reward differences survive the normalizer, counted over recorded groups.

Everything is a sum over groups, so that a replay of any length keeps a fixed amount of state. Source:
paper, Signal-Propagation Analysis; tolerances by D21.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from search_to_signal.analysis.metrics.positive_credit import CreditCounts, count_credit
from search_to_signal.analysis.metrics.readings import (
    TOLERANCE,
    Readings,
    ReadingTally,
    Tallies,
    reading_tallies,
)
from search_to_signal.analysis.metrics.search import beats_frontier, improves, ratio
from search_to_signal.normalizer import Normalizer, advantages
from search_to_signal.numerics import Bools, Floats, added, midranks
from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards import MAPPINGS, PUBLISHED
from search_to_signal.rewards.base import RewardMapping, answerable, rewards_of, severity
from search_to_signal.rewards.tail_weighted import novel_scores, repeated_responses

Key = TypeVar("Key")
Tally = TypeVar("Tally", "PairTally", CreditCounts, "ContextTally", ReadingTally, int)
TOLERANCES = (0.0, 1e-6, TOLERANCE)
NEAR = 0.05
AFFINE = 1e-9
EXACT = 8192
# The leading 8 mantissa bits and the exponent of a float64 number its bin: 0.4 % wide, from 2^-60 to 2^44.
_SHIFT = 44
_LOWEST = int(np.float64(2.0**-60).view(np.int64)) >> _SHIFT
_BINS = (60 + 44) * 256


@dataclass(frozen=True)
class Magnitudes:
    """Summary of non-negative numbers; two summaries add.

    Up to 8192 numbers are kept, so their median is exact; beyond that it is good to 0.2 %. Numbers
    below 2^-60 count as zero there.
    """

    number: int
    total: float
    largest: float
    kept: Floats | None
    bins: NDArray[np.int64]

    @staticmethod
    def of(values: Floats) -> "Magnitudes":
        """Summarize (N,) finite non-negative numbers."""
        keys = (np.ascontiguousarray(values).view(np.int64) >> _SHIFT) - _LOWEST + 1
        bins = np.bincount(np.clip(keys, 0, _BINS), minlength=_BINS + 1)
        largest = float(values.max(initial=0.0))
        kept = values if len(values) <= EXACT else None
        return Magnitudes(len(values), float(values.sum()), largest, kept, bins)

    def __add__(self, other: "Magnitudes") -> "Magnitudes":
        small = self.number + other.number <= EXACT and self.kept is not None and other.kept is not None
        return Magnitudes(
            self.number + other.number,
            self.total + other.total,
            max(self.largest, other.largest),
            np.concatenate([self.kept, other.kept]) if small else None,
            self.bins + other.bins,
        )

    @property
    def mean(self) -> float | None:
        """The arithmetic mean; None without numbers."""
        return self.total / self.number if self.number else None

    @property
    def median(self) -> float | None:
        """The median; None without numbers."""
        if not self.number:
            return None
        if self.kept is not None:
            return float(np.median(self.kept))
        bin_of = np.searchsorted(np.cumsum(self.bins), (self.number + 1) // 2)
        if bin_of == 0:
            return 0.0
        edges = (np.array([bin_of - 1, bin_of]) + _LOWEST) << _SHIFT
        return float(edges.view(np.float64).mean())


@dataclass(frozen=True)
class PairTally:
    """The agreement of two mappings under one normalizer, summed over groups.

    ``equivalent`` and ``by_construction`` count groups at each of TOLERANCES; the latter those whose
    rewards are positive affine images of each other, or flat in both. ``near`` counts groups whose advantages
    are within NEAR, ``reordered`` those whose advantages do not have the same weak order.
    """

    groups: int
    equivalent: NDArray[np.int64]
    by_construction: NDArray[np.int64]
    affine: int
    near: int
    reordered: int
    differences: Magnitudes

    def __add__(self, other: "PairTally") -> "PairTally":
        return added(self, other)


@dataclass(frozen=True)
class ContextTally:
    """How often one context indicator, put ahead of score, changes the order of a group."""

    groups: int
    constant: int
    reordered: int

    def __add__(self, other: "ContextTally") -> "ContextTally":
        return added(self, other)


@dataclass(frozen=True)
class Audit:
    """Tallies of a replay; two audits add.

    ``pairs`` by (problem, normalizer, mapping, mapping), ``credit`` by (problem, normalizer, mapping),
    ``context`` by (problem, indicator), ``groups`` by problem, ``readings`` by (problem, reading of a
    decision, mapping). The problem "all" sums the others.
    """

    pairs: Mapping[tuple[str, str, str, str], PairTally]
    credit: Mapping[tuple[str, str, str], CreditCounts]
    context: Mapping[tuple[str, str], ContextTally]
    groups: Mapping[str, int]
    readings: Readings = field(default_factory=dict)

    def __add__(self, other: "Audit") -> "Audit":
        names = [field.name for field in fields(self)]
        return Audit(**{name: _merged(getattr(self, name), getattr(other, name)) for name in names})


EMPTY = Audit({}, {}, {}, {})


def summed(parts: Iterable[Audit]) -> Audit:
    """The sum of tallies per problem, and over all problems as "all".

    A mapping that some groups cannot be asked is left out of all: mappings are compared over equal groups.
    """
    total = EMPTY
    for part in parts:
        total = total + part
    total = _of_mappings(total, asked_of_all(total))
    whole = EMPTY
    for problem in total.groups:
        whole = whole + _renamed(total, problem, "all")
    return total + whole


def tally(
    problem: str,
    batch: GroupBatch,
    mappings: Mapping[str, RewardMapping],
    normalizers: Mapping[str, Normalizer],
) -> Audit:
    """Audit N groups of one problem under the mappings that their records support."""
    mappings = answerable(mappings, batch)
    rewards = {name: rewards_of(mapping, batch) for name, mapping in mappings.items()}
    couples = list(combinations(mappings, 2))
    related = {(a, b): affinely_related(rewards[a].reward, rewards[b].reward) for a, b in couples}
    pairs, credit = {}, {}
    for name, normalizer in normalizers.items():
        signal = {key: advantages(normalizer, r.reward, r.components) for key, r in rewards.items()}
        for a, b in couples:
            pairs[problem, name, a, b] = _compare(signal[a], signal[b], related[a, b])
        for key, values in signal.items():
            credit[problem, name, key] = count_credit(batch, values)
    context = {(problem, name): counted for name, counted in context_tallies(batch).items()}
    readings = by_problem(problem, reading_tallies(batch, mappings))
    return Audit(pairs, credit, context, {problem: len(batch.outcome)}, readings)


def _signal(mapping: RewardMapping, batch: GroupBatch, normalizer: Normalizer) -> Floats:
    """(N, G): the advantages that a mapping, of whatever run, gives these groups."""
    mapped = rewards_of(mapping, batch)
    return advantages(normalizer, mapped.reward, mapped.components)


def differing_groups(batch: GroupBatch, normalizer: Normalizer) -> Bools:
    """(N,): two of the published mappings give some completion advantages more than TOLERANCE apart (D21).

    Those that the groups can be asked.
    """
    signal = np.stack(
        [_signal(mapping, batch, normalizer) for mapping in answerable(PUBLISHED, batch).values()]
    )
    apart: Bools = np.ptp(signal, axis=0).max(axis=1) > TOLERANCE
    return apart


def equal_share(batch: GroupBatch, normalizer: Normalizer, names: tuple[str, str]) -> float | None:
    """The share of groups in which two mappings give every completion equal advantages (D21).

    Equal is at most TOLERANCE apart: such mappings are learner-equivalent on the group (paper, normalized
    learning signal).
    """
    first, second = (_signal(MAPPINGS[name], batch, normalizer) for name in names)
    equal = np.abs(first - second).max(axis=1) <= TOLERANCE
    return ratio(int(equal.sum()), len(equal))


def flat_share(batch: GroupBatch, normalizer: Normalizer, name: str) -> float | None:
    """The share of groups in which a mapping gives every completion an advantage of zero.

    The mapping need not be that of the run: so groups that no update saw are told from those of training.
    """
    flat = _flat_groups(batch, normalizer, name)
    return ratio(int(flat.sum()), len(flat))


def flat_valid_share(batch: GroupBatch, normalizer: Normalizer, name: str) -> float | None:
    """The share of groups whose completions are all valid, and which are flat in that way."""
    flat = _flat_groups(batch, normalizer, name) & batch.valid.all(axis=1)
    return ratio(int(flat.sum()), len(flat))


def _flat_groups(batch: GroupBatch, normalizer: Normalizer, name: str) -> Bools:
    flat: Bools = (_signal(MAPPINGS[name], batch, normalizer) == 0.0).all(axis=1)
    return flat


def by_problem(problem: str, tallies: Tallies) -> dict[tuple[str, str, str], ReadingTally]:
    """Group tallies of readings by problem."""
    return {(problem, *key): counted for key, counted in tallies.items()}


def affinely_related(first: Floats, second: Floats) -> Bools:
    """(N,): second = a first + c with a > 0, to 1e-9 of the spread, or both flat.

    Such groups are equivalent by construction: a normalizer that removes shift and scale separates
    the rewards only through its stabilizer.
    """
    related: Bools = np.abs(_direction(first) - _direction(second)).max(axis=1) <= AFFINE
    return related


def context_tallies(groups: GroupBatch) -> dict[str, ContextTally]:
    """Tally the paper's four context indicators: comparator, frontier, score novelty, response repetition."""
    score = np.where(groups.valid, groups.score, 0.0)
    failure = severity(groups, valid=0.0)
    by_score = midranks(failure, score)
    tallies = {}
    for name, indicator in _indicators(groups).items():
        raised = midranks(failure, np.where(groups.valid, indicator, 0.0), score)
        ones, valid = (indicator & groups.valid).sum(axis=1), groups.valid.sum(axis=1)
        tallies[name] = ContextTally(
            groups=len(score),
            constant=int(((ones == 0) | (ones == valid)).sum()),
            reordered=int((raised != by_score).any(axis=1).sum()),
        )
    return tallies


def _indicators(groups: GroupBatch) -> dict[str, Bools]:
    return {
        "comparator": improves(groups),
        "frontier": beats_frontier(groups),
        "score_novelty": novel_scores(groups),
        "response_repetition": ~repeated_responses(groups),
    }


def _compare(first: Floats, second: Floats, related: Bools) -> PairTally:
    gap = np.abs(first - second).max(axis=1)
    close = gap[None, :] <= np.array(TOLERANCES)[:, None]
    return PairTally(
        groups=len(gap),
        equivalent=close.sum(axis=1),
        by_construction=(close & related).sum(axis=1),
        affine=int(related.sum()),
        near=int((gap <= NEAR).sum()),
        reordered=int((midranks(first) != midranks(second)).any(axis=1).sum()),
        differences=Magnitudes.of(gap),
    )


def _direction(rewards: Floats) -> Floats:
    """Centred rewards over their largest magnitude; zeros for a flat group."""
    shifted = rewards - rewards.min(axis=1, keepdims=True)
    centred = shifted - shifted.mean(axis=1, keepdims=True)
    length = np.abs(centred).max(axis=1, keepdims=True)
    direction: Floats = np.divide(centred, length, out=np.zeros_like(centred), where=length > 0.0)
    return direction


def _merged(first: Mapping[Key, Tally], second: Mapping[Key, Tally]) -> dict[Key, Tally]:
    return {**first, **{key: first[key] + tally if key in first else tally for key, tally in second.items()}}


def asked_of_all(audit: Audit) -> tuple[str, ...]:
    """Return the mappings that every group was audited under, in their order."""
    asked: dict[str, Counter[str]] = {}
    for (problem, _, mapping), counts in audit.credit.items():
        asked.setdefault(mapping, Counter())[problem] = counts.groups
    return tuple(name for name, groups in asked.items() if groups == Counter(audit.groups))


def _of_mappings(audit: Audit, names: Collection[str]) -> Audit:
    """Restrict an audit to some mappings."""
    return replace(
        audit,
        pairs={key: tally for key, tally in audit.pairs.items() if {key[2], key[3]} <= set(names)},
        credit={key: tally for key, tally in audit.credit.items() if key[2] in names},
        readings={key: tally for key, tally in audit.readings.items() if key[2] in names},
    )


def _renamed(total: Audit, problem: str, name: str) -> Audit:
    return Audit(
        {(name, *key[1:]): tally for key, tally in total.pairs.items() if key[0] == problem},
        {(name, *key[1:]): tally for key, tally in total.credit.items() if key[0] == problem},
        {(name, *key[1:]): tally for key, tally in total.context.items() if key[0] == problem},
        {name: total.groups[problem]},
        {(name, *key[1:]): tally for key, tally in total.readings.items() if key[0] == problem},
    )

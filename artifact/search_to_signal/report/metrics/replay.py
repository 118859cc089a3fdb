"""The shared-record audit: which reward differences survive the normalizer, counted over recorded groups.

Everything is a sum over groups, so that a replay of any length keeps a fixed amount of state. Source:
paper, Signal-Propagation Analysis; tolerances by D21; spec/decisions.toml for the alternative readings of
what the paper leaves open, each compared with the choice under the paper's normalizer.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from operator import and_
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.numerics import GREATEST, Bools, Floats, Sums, midranks
from search_to_signal.credit import MAPPINGS, PUBLISHED, READINGS
from search_to_signal.credit.base import RewardMapping, answerable, rewards_of, severity
from search_to_signal.credit.mappings import novel_scores, repeated_responses
from search_to_signal.credit.normalizers import NORMALIZERS, Normalizer, advantages, group_advantages
from search_to_signal.credit.normalizers import READINGS as NORMALIZER_READINGS
from search_to_signal.records.groups import GroupBatch
from search_to_signal.report.metrics import search

TOLERANCE = 1e-3
EXPOSURE = "search_exposure"
EXPOSURES: Mapping[str, str] = {"exposure_unconditional": "D13", "exposure_sampled": "D13"}
"""Readings of the exposure: no function of the recorded groups, so they come from records.exposures."""
NESTED: Mapping[str, str] = {"classes_nested": "D18"}
"""Readings of the candidate classes, which change no advantage."""

DECISIONS: Mapping[str, str] = {
    **{reading.mapping.name: reading.decision for reading in READINGS},
    **EXPOSURES,
    **NORMALIZER_READINGS,
    **NESTED,
}
"""The decision of every reading that a replay applies, by the reading's name."""


@dataclass(frozen=True)
class ReadingTally(Sums):
    """One mapping under the choice and under another reading, summed over groups.

    ``changed`` counts groups with an advantage that differs by more than TOLERANCE, ``largest`` is the
    largest difference. ``applies`` is False where the reading is not about this mapping.
    """

    groups: int
    changed: int
    largest: float = field(metadata=GREATEST)
    chosen: search.CreditCounts
    other: search.CreditCounts
    applies: bool = field(metadata={"added": and_})


Advantages = Mapping[str, Floats]
"""(N, G) by mapping."""
Tallies = Mapping[tuple[str, str], ReadingTally]
"""By reading and mapping. A reading has a tally of every mapping, so that a ranking is over equal groups."""

Readings = Mapping[tuple[str, str, str], ReadingTally]
"""By problem, reading and mapping: tallies of an audit."""


def reading_tallies(batch: GroupBatch, mappings: Mapping[str, RewardMapping]) -> Tallies:
    """Tally every reading that follows from the groups alone and concerns one of the mappings."""
    return _tallies(batch, _chosen(batch, mappings), dict(_readings(batch, mappings)))


def exposure_tallies(
    batch: GroupBatch, mappings: Mapping[str, RewardMapping], exposures: Mapping[str, Floats]
) -> Tallies:
    """Tally alternative exposures, (N, G) by reading, against the recorded ones (D13)."""
    mappings = answerable(mappings, batch)
    if EXPOSURE not in mappings:
        return {}
    others = {
        name: {EXPOSURE: group_advantages(mappings[EXPOSURE](replace(batch, exposure=exposure)).reward)}
        for name, exposure in exposures.items()
    }
    return _tallies(batch, _chosen(batch, mappings), others)


def _chosen(batch: GroupBatch, mappings: Mapping[str, RewardMapping]) -> Advantages:
    return {name: group_advantages(mapping(batch).reward) for name, mapping in mappings.items()}


def _readings(batch: GroupBatch, mappings: Mapping[str, RewardMapping]) -> Iterator[tuple[str, Advantages]]:
    """Compute the advantages of the mappings that a reading concerns, by reading."""
    for reading in READINGS:
        if mappings.get(reading.chosen) is MAPPINGS[reading.chosen]:
            yield reading.mapping.name, {reading.chosen: group_advantages(reading.mapping(batch).reward)}
    rewards = {name: mapping(batch) for name, mapping in mappings.items()}
    for name in NORMALIZER_READINGS:
        normalizer = NORMALIZERS[name]
        yield name, {key: advantages(normalizer, r.reward, r.components) for key, r in rewards.items()}
    for name in NESTED:
        yield name, _chosen(batch, mappings)


def _tallies(batch: GroupBatch, chosen: Advantages, others: Mapping[str, Advantages]) -> Tallies:
    counts = {name: search.count_credit(batch, values) for name, values in chosen.items()}
    return {
        (reading, name): _tally(batch, values, counts[name], other.get(name), nested=reading in NESTED)
        for reading, other in others.items()
        for name, values in chosen.items()
    }


def _tally(
    batch: GroupBatch, chosen: Floats, counts: search.CreditCounts, other: Floats | None, nested: bool
) -> ReadingTally:
    if other is None:
        return ReadingTally(len(chosen), 0, 0.0, counts, counts, applies=False)
    gap = np.abs(other - chosen).max(axis=1)
    changed, largest = int((gap > TOLERANCE).sum()), float(gap.max(initial=0.0))
    return ReadingTally(
        len(gap), changed, largest, counts, search.count_credit(batch, other, nested), applies=True
    )


Quantity = Callable[[search.ClassCredit], float | None]
IMPROVERS = {
    search.CandidateClass.PARENT_IMPROVING: "parent improvers",
    search.CandidateClass.STRICT_FRONTIER: "frontier improvers",
}
QUANTITIES: Mapping[str, Quantity] = {
    "positive rate": lambda entry: entry.positive_rate,
    "enrichment": lambda entry: entry.enrichment,
}
"""The quantities that rank mappings, for each class of improvers; higher first."""


class Change(NamedTuple):
    """A ranking of the mappings that a reading changes, best first."""

    quantity: str
    chosen: str
    other: str


def readings_of(readings: Readings, problem: str) -> dict[tuple[str, str], ReadingTally]:
    """Return the tallies of a problem by reading and its mappings, in the order of decisions."""
    tallies = {key[1:]: t for key, t in readings.items() if key[0] == problem and t.applies}
    return dict(sorted(tallies.items(), key=lambda item: DECISIONS[item[0][0]]))


def moved_rates(tally: ReadingTally) -> dict[search.CandidateClass, float | None]:
    """Return the change of each class's share with positive advantage, in points; None for an empty class."""
    pairs = zip(search.credit_table(tally.chosen), search.credit_table(tally.other), strict=True)
    return {
        before.candidate_class: None
        if before.positive_rate is None or after.positive_rate is None
        else 100.0 * (after.positive_rate - before.positive_rate)
        for before, after in pairs
    }


def rankings(counts: Mapping[str, search.CreditCounts]) -> dict[str, str]:
    """Rank the mappings by quantity: best first, ties share a place, those without a value come last."""
    entries = {
        name: {entry.candidate_class: entry for entry in search.credit_table(credit)}
        for name, credit in counts.items()
    }
    ranked = {}
    for quantity, of in QUANTITIES.items():
        for kind, improvers in IMPROVERS.items():
            values = {name: of(entry[kind]) for name, entry in entries.items()}
            # Sums of masses differ in their last bits where nothing else does.
            known = {name: round(value, 9) for name, value in values.items() if value is not None}
            places = [
                " = ".join(name for name, value in known.items() if value == level)
                for level in sorted(set(known.values()), reverse=True)
            ]
            absent = ", ".join(name for name in values if name not in known)
            order = " > ".join([*places, *([f"no value: {absent}"] if absent else [])])
            ranked[f"{quantity} of {improvers}"] = order
    return ranked


def chosen_rankings(readings: Readings, problem: str) -> dict[str, str]:
    """Return the rankings under the choices, which every reading of a problem is compared with."""
    reading = next((reading for where, reading, _ in readings if where == problem), None)
    chosen = {name: tally.chosen for name, tally in _of(readings, problem, reading).items()}
    return rankings(chosen) if chosen else {}


def changed_rankings(readings: Readings, problem: str, reading: str) -> list[Change]:
    """Return the rankings that a reading changes."""
    tallies = _of(readings, problem, reading)
    before = rankings({name: tally.chosen for name, tally in tallies.items()})
    after = rankings({name: tally.other for name, tally in tallies.items()})
    return [Change(name, before[name], after[name]) for name in before if before[name] != after[name]]


def describe_change(change: Change) -> str:
    return f"{change.quantity}: {change.chosen} becomes {change.other}"


def _of(readings: Readings, problem: str, reading: str | None) -> dict[str, ReadingTally]:
    return {key[2]: tally for key, tally in readings.items() if key[:2] == (problem, reading)}


Key = TypeVar("Key")
Tally = TypeVar("Tally", "PairTally", search.CreditCounts, "ContextTally", ReadingTally, int)
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
class PairTally(Sums):
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


@dataclass(frozen=True)
class ContextTally(Sums):
    """How often one context indicator, put ahead of score, changes the order of a group."""

    groups: int
    constant: int
    reordered: int


def _by_key(first: Mapping[Key, Tally], second: Mapping[Key, Tally]) -> dict[Key, Tally]:
    return {**first, **{key: first[key] + tally if key in first else tally for key, tally in second.items()}}


_BY_KEY = {"added": _by_key}


@dataclass(frozen=True)
class Audit(Sums):
    """Tallies of a replay; two audits add.

    ``pairs`` by (problem, normalizer, mapping, mapping), ``credit`` by (problem, normalizer, mapping),
    ``context`` by (problem, indicator), ``groups`` by problem, ``readings`` by (problem, reading of a
    decision, mapping). The problem "all" sums the others.
    """

    pairs: Mapping[tuple[str, str, str, str], PairTally] = field(metadata=_BY_KEY)
    credit: Mapping[tuple[str, str, str], search.CreditCounts] = field(metadata=_BY_KEY)
    context: Mapping[tuple[str, str], ContextTally] = field(metadata=_BY_KEY)
    groups: Mapping[str, int] = field(metadata=_BY_KEY)
    readings: Readings = field(default_factory=dict, metadata=_BY_KEY)


EMPTY = Audit({}, {}, {}, {})


def summed(parts: Iterable[Audit]) -> Audit:
    """The sum of tallies per problem, and over all problems as "all".

    A mapping that some groups cannot be asked is left out of all: mappings are compared over equal groups.
    """
    total = EMPTY
    for part in parts:
        total = total + part
    names = set(asked_of_all(total))
    total = replace(
        total,
        pairs={key: tally for key, tally in total.pairs.items() if {key[2], key[3]} <= names},
        credit={key: tally for key, tally in total.credit.items() if key[2] in names},
        readings={key: tally for key, tally in total.readings.items() if key[2] in names},
    )
    whole = EMPTY
    for problem in total.groups:
        keyed = {
            name: {("all", *key[1:]): one for key, one in getattr(total, name).items() if key[0] == problem}
            for name in ("pairs", "credit", "context", "readings")
        }
        whole = whole + Audit(groups={"all": total.groups[problem]}, **keyed)
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
            credit[problem, name, key] = search.count_credit(batch, values)
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


def equal_share(batch: GroupBatch, normalizer: Normalizer) -> float | None:
    """The share of groups in which native and factorized give every completion equal advantages (D21).

    Equal is at most TOLERANCE apart: such mappings are learner-equivalent on the group (paper, normalized
    learning signal).
    """
    first, second = (_signal(MAPPINGS[name], batch, normalizer) for name in ("native", "factorized"))
    equal = np.abs(first - second).max(axis=1) <= TOLERANCE
    return search.ratio(int(equal.sum()), len(equal))


def flat_share(batch: GroupBatch, normalizer: Normalizer) -> float | None:
    """The share of groups in which factorized gives every completion an advantage of zero.

    It need not be the mapping of the run: so groups that no update saw are told from those of training.
    """
    flat = (_signal(MAPPINGS["factorized"], batch, normalizer) == 0.0).all(axis=1)
    return search.ratio(int(flat.sum()), len(flat))


def flat_valid_share(batch: GroupBatch, normalizer: Normalizer) -> float | None:
    """The share of groups whose completions are all valid, and which are flat in that way."""
    flat = (_signal(MAPPINGS["factorized"], batch, normalizer) == 0.0).all(axis=1) & batch.valid.all(axis=1)
    return search.ratio(int(flat.sum()), len(flat))


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
    indicators = {
        "comparator": search.improves(groups),
        "frontier": search.beats_frontier(groups),
        "score_novelty": novel_scores(groups),
        "response_repetition": ~repeated_responses(groups),
    }
    for name, indicator in indicators.items():
        raised = midranks(failure, np.where(groups.valid, indicator, 0.0), score)
        ones, valid = (indicator & groups.valid).sum(axis=1), groups.valid.sum(axis=1)
        tallies[name] = ContextTally(
            groups=len(score),
            constant=int(((ones == 0) | (ones == valid)).sum()),
            reordered=int((raised != by_score).any(axis=1).sum()),
        )
    return tallies


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


def asked_of_all(audit: Audit) -> tuple[str, ...]:
    """Return the mappings that every group was audited under, in their order."""
    asked: dict[str, Counter[str]] = {}
    for (problem, _, mapping), counts in audit.credit.items():
        asked.setdefault(mapping, Counter())[problem] = counts.groups
    return tuple(name for name, groups in asked.items() if groups == Counter(audit.groups))

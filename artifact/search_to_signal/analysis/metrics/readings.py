"""Sensitivity to the decisions that the paper leaves open: recorded groups under alternative readings.

A reading is compared with the choice under the paper's normalizer. Everything is a sum over groups. Source:
spec/decisions.toml; paper, Signal-Propagation Analysis, for the tolerance (D21).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from search_to_signal.analysis.metrics.positive_credit import (
    CandidateClass,
    ClassCredit,
    CreditCounts,
    count_credit,
    credit_table,
)
from search_to_signal.normalizer import NORMALIZERS, advantages, group_advantages
from search_to_signal.normalizer import READINGS as NORMALIZER_READINGS
from search_to_signal.numerics import Floats
from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards import MAPPINGS, READINGS, RewardMapping, answerable

TOLERANCE = 1e-3
EXPOSURE = "search_exposure"
EXPOSURES: Mapping[str, str] = {"exposure_unconditional": "D13", "exposure_sampled": "D13"}
"""Readings of the exposure: no function of the recorded groups, so they come from records.exposures."""
CLASSES: Mapping[str, str] = {"classes_nested": "D18"}
"""Readings of the candidate classes, which change no advantage."""

DECISIONS: Mapping[str, str] = {
    **{reading.mapping.name: reading.decision for reading in READINGS},
    **EXPOSURES,
    **NORMALIZER_READINGS,
    **CLASSES,
}
"""The decision of every reading that a replay applies, by the reading's name."""


@dataclass(frozen=True)
class ReadingTally:
    """One mapping under the choice and under another reading, summed over groups; two tallies add.

    ``changed`` counts groups with an advantage that differs by more than TOLERANCE, ``largest`` is the
    largest difference. ``applies`` is False where the reading is not about this mapping.
    """

    groups: int
    changed: int
    largest: float
    chosen: CreditCounts
    other: CreditCounts
    applies: bool

    def __add__(self, more: "ReadingTally") -> "ReadingTally":
        return ReadingTally(
            self.groups + more.groups,
            self.changed + more.changed,
            max(self.largest, more.largest),
            self.chosen + more.chosen,
            self.other + more.other,
            self.applies,
        )


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
    for name in CLASSES:
        yield name, _chosen(batch, mappings)


def _tallies(batch: GroupBatch, chosen: Advantages, others: Mapping[str, Advantages]) -> Tallies:
    counts = {name: count_credit(batch, values) for name, values in chosen.items()}
    return {
        (reading, name): _tally(batch, values, counts[name], other.get(name), nested=reading in CLASSES)
        for reading, other in others.items()
        for name, values in chosen.items()
    }


def _tally(
    batch: GroupBatch, chosen: Floats, counts: CreditCounts, other: Floats | None, nested: bool
) -> ReadingTally:
    if other is None:
        return ReadingTally(len(chosen), 0, 0.0, counts, counts, applies=False)
    gap = np.abs(other - chosen).max(axis=1)
    changed, largest = int((gap > TOLERANCE).sum()), float(gap.max(initial=0.0))
    return ReadingTally(len(gap), changed, largest, counts, count_credit(batch, other, nested), applies=True)


Quantity = Callable[[ClassCredit], float | None]
IMPROVERS = {
    CandidateClass.PARENT_IMPROVING: "parent improvers",
    CandidateClass.STRICT_FRONTIER: "frontier improvers",
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


def moved_rates(tally: ReadingTally) -> dict[CandidateClass, float | None]:
    """Return the change of each class's share with positive advantage, in points; None for an empty class."""
    pairs = zip(credit_table(tally.chosen), credit_table(tally.other), strict=True)
    return {
        before.candidate_class: None
        if before.positive_rate is None or after.positive_rate is None
        else 100.0 * (after.positive_rate - before.positive_rate)
        for before, after in pairs
    }


def rankings(counts: Mapping[str, CreditCounts]) -> dict[str, str]:
    """Rank the mappings by quantity: best first, ties share a place, those without a value come last."""
    entries = {
        name: {entry.candidate_class: entry for entry in credit_table(credit)}
        for name, credit in counts.items()
    }
    return {
        f"{quantity} of {improvers}": _ordered({name: of(entry[kind]) for name, entry in entries.items()})
        for quantity, of in QUANTITIES.items()
        for kind, improvers in IMPROVERS.items()
    }


def chosen_rankings(readings: Readings, problem: str) -> dict[str, str]:
    reading_name = next((reading for where, reading, _ in readings if where == problem), None)
    chosen = (
        {name: t.chosen for name, t in _of(readings, problem, reading_name).items()} if reading_name else {}
    )
    return rankings(chosen) if chosen else {}


def changed_rankings(readings: Readings, problem: str, reading: str) -> list[Change]:
    """Return the rankings that a reading changes."""
    tallies = _of(readings, problem, reading)
    before = rankings({name: tally.chosen for name, tally in tallies.items()})
    after = rankings({name: tally.other for name, tally in tallies.items()})
    return [Change(name, before[name], after[name]) for name in before if before[name] != after[name]]


def describe_change(change: Change) -> str:
    return f"{change.quantity}: {change.chosen} becomes {change.other}"


def _of(readings: Readings, problem: str, reading: str) -> dict[str, ReadingTally]:
    return {key[2]: tally for key, tally in readings.items() if key[:2] == (problem, reading)}


def _ordered(values: Mapping[str, float | None]) -> str:
    # Sums of masses differ in their last bits where nothing else does.
    known = {name: round(value, 9) for name, value in values.items() if value is not None}
    places = [
        " = ".join(name for name, value in known.items() if value == level)
        for level in sorted(set(known.values()), reverse=True)
    ]
    absent = [name for name, value in values.items() if value is None]
    return " > ".join([*places, *([f"no value: {', '.join(absent)}"] if absent else [])])

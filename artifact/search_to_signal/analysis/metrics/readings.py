"""What hangs on the decisions that the paper leaves open: recorded groups under the other readings.

A reading is compared with the choice under the paper's normalizer. Everything is a sum over groups. Source:
spec/decisions.toml; paper, Signal-Propagation Analysis, for the tolerance (D21).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from search_to_signal.analysis.metrics.credit import CreditCounts, count_credit
from search_to_signal.normalizer import NORMALIZERS, advantages, group_advantages
from search_to_signal.normalizer import READINGS as NORMALIZER_READINGS
from search_to_signal.numerics import Floats
from search_to_signal.records.groups import GroupBatch
from search_to_signal.rewards import MAPPINGS, READINGS, RewardMapping

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


def reading_tallies(batch: GroupBatch, mappings: Mapping[str, RewardMapping]) -> Tallies:
    """Every reading that follows from the groups alone and is about one of the mappings."""
    return _tallies(batch, _chosen(batch, mappings), dict(_readings(batch, mappings)))


def exposure_tallies(
    batch: GroupBatch, mappings: Mapping[str, RewardMapping], exposures: Mapping[str, Floats]
) -> Tallies:
    """The same for exposures, (N, G) each by reading, computed otherwise than the recorded (D13)."""
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
    """Advantages of the mappings that a reading is about, by reading."""
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

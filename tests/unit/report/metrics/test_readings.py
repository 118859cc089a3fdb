"""What hangs on open decisions: other readings are replayed, and counted as a direct look counts."""

import csv
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from spec.strategies import group, groups, ordinary_groups, record
from tests.audits import audit

from search_to_signal.base.numerics import Floats
from search_to_signal.credit import ALTERNATIVES, MAPPINGS, READINGS
from search_to_signal.credit.normalizers import NORMALIZERS, group_advantages
from search_to_signal.layers.audit.layer import replay
from search_to_signal.records.groups import GroupBatch
from search_to_signal.records.schema import Outcome
from search_to_signal.report.metrics.positive_credit import class_membership
from search_to_signal.report.metrics.replay import (
    DECISIONS,
    EXPOSURES,
    changed_rankings,
    chosen_rankings,
    exposure_tallies,
    reading_tallies,
)

FAILED = Outcome.RUNTIME_FAILURE
GROUP = {"group": group_advantages}


def differ(first: Floats, second: Floats) -> tuple[int, float]:
    """In how many groups an advantage differs by more than 1e-3, and the largest difference."""
    gaps = [max(abs(a - b) for a, b in zip(*rows, strict=True)) for rows in zip(first, second, strict=True)]
    return sum(gap > 1e-3 for gap in gaps), max(gaps)


def rate(batch: GroupBatch, advantages: Floats, kind: int, nested: bool = False) -> float | None:
    """Share of a class with positive advantage."""
    member = class_membership(batch, nested)[kind]
    return float((advantages[member] > 0).mean()) if member.any() else None


@given(batch=ordinary_groups())
@pytest.mark.slow
def test_a_construction_read_otherwise_is_counted_as_it_is(batch: GroupBatch) -> None:
    tallies = reading_tallies(batch, MAPPINGS)
    for reading in READINGS:
        tally = tallies[reading.mapping.name, reading.chosen]
        chosen = group_advantages(MAPPINGS[reading.chosen](batch).reward)
        other = group_advantages(ALTERNATIVES[reading.mapping.name](batch).reward)
        assert tally.applies
        assert (tally.changed, tally.largest) == differ(chosen, other)
        for kind in range(4):
            number = int(tally.other.candidates[kind])
            expected = rate(batch, other, kind)
            assert (tally.other.positive[kind] / number if number else None) == expected


@given(batch=groups())
@pytest.mark.slow
def test_normalizer_and_classes_are_readings_of_every_mapping(batch: GroupBatch) -> None:
    """TRL's order of operations moves advantages, nested classes move none and count improvers twice."""
    tallies = reading_tallies(batch, {"native": MAPPINGS["native"], "factorized": MAPPINGS["factorized"]})
    reward = MAPPINGS["native"](batch).reward
    chosen, other = group_advantages(reward), NORMALIZERS["trl_float32"](reward)
    tally = tallies["trl_float32", "native"]
    assert (tally.changed, tally.largest) == differ(chosen, other)
    nested = tallies["classes_nested", "factorized"]
    assert (nested.changed, nested.largest) == (0, 0.0)
    assert nested.other.candidates.tolist() == class_membership(batch, nested=True).sum(axis=(1, 2)).tolist()


def test_every_replayed_reading_has_a_decision() -> None:
    """A reading without its id could not be told from another; each of them is applied."""
    batch = group([-6.5, -7.0, FAILED], bases=[-6.0], frontier=-6.0)
    applied = {reading for reading, _ in reading_tallies(batch, MAPPINGS)} | set(EXPOSURES)
    assert applied == set(DECISIONS)
    batch = group([-6.5, -7.0, FAILED], bases=[-6.0], frontier=-6.0)
    tallies = reading_tallies(batch, {"native": MAPPINGS["factorized"]})
    assert {reading for reading, _ in tallies} == {"trl_float32", "classes_nested"}
    batch = group([-5.0, -6.0, -7.0], bases=[-6.0], exposure=[1.0, 0.0, 0.0])
    flat = {"exposure_sampled": np.array([[0.5, 0.5, 0.5]])}
    tallies = exposure_tallies(batch, MAPPINGS, flat)
    assert {mapping for _, mapping in tallies} == set(MAPPINGS)
    assert {mapping for (_, mapping), tally in tallies.items() if tally.applies} == {"search_exposure"}
    assert tallies["exposure_sampled", "search_exposure"].changed == 1
    assert exposure_tallies(batch, {"native": MAPPINGS["native"]}, flat) == {}


def test_rankings_are_by_rate_and_enrichment_of_improvers() -> None:
    batch = group(
        [-5.9, -6.5, -6.6, -6.7], bases=[-6.0], frontier=-5.0, gap=[0.0, 1.0, 1.0, 1.0], exposure=[0.5] * 4
    )
    result = audit([("tsp", batch)], MAPPINGS, GROUP)
    before = chosen_rankings(result.readings, "tsp")["positive rate of parent improvers"]
    assert before.endswith(" > tail_weighted")
    (change,) = [
        c
        for c in changed_rankings(result.readings, "tsp", "tail_weighted_d07_score_first")
        if c.quantity == "positive rate of parent improvers"
    ]
    assert change.chosen == before
    assert " > " not in change.other
    assert changed_rankings(result.readings, "tsp", "tail_weighted_d09") == []


def test_problems_add_up_in_readings_too() -> None:
    samples = [group([-6.5, -8.0, FAILED], [-6.0], -6.0, gap=[0.0, 1.0, 0.0])] * 3
    result = audit(zip(("tsp", "obp", "tsp"), samples, strict=True), MAPPINGS, GROUP)
    found = {
        key[0]: tally
        for key, tally in result.readings.items()
        if key[1] == "tail_weighted_d07_score_first" and key[2] == "tail_weighted"
    }
    assert {name: (tally.groups, tally.changed) for name, tally in found.items()} == {
        "tsp": (2, 2),
        "obp": (1, 1),
        "all": (3, 3),
    }


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_a_replay_applies_every_reading_of_its_mappings(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    made = [
        record(step=s, index=i, score=-6.0 - i * s, archive_gap=0.1 * (i != 1))
        for s in range(5)
        for i in range(4)
    ]
    (run / "completions.jsonl").write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in made))
    page = replay([run], tmp_path / "out", list(MAPPINGS), ["group"]).read_text(encoding="utf-8")
    found = rows(tmp_path / "out" / "readings.csv")
    assert {row["reading"] for row in found} == set(DECISIONS) - set(EXPOSURES)
    assert {row["problem"] for row in found} == {"tsp", "all"}
    assert all(row["decision"] == DECISIONS[row["reading"]] for row in found)
    assert "| D07 | tail_weighted_d07_score_first | tail_weighted | 5 |" in page
    replay([run], tmp_path / "other", ["native"], ["group"])
    assert {row["mapping"] for row in rows(tmp_path / "other" / "readings.csv")} == {"native"}

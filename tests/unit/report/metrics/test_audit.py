"""The shared-record audit: hand-made groups, streaming, what it writes, other readings of open decisions."""

import csv
import json
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec.strategies import group, groups, ordinary_groups, record
from tests.audits import audit

from search_to_signal.base.errors import ConfigError, IllFormedGroupError, RecordError
from search_to_signal.base.numerics import Floats
from search_to_signal.credit import ALTERNATIVES, MAPPINGS, READINGS
from search_to_signal.credit.normalizers import NORMALIZERS, group_advantages
from search_to_signal.layers.audit.layer import replay
from search_to_signal.layers.audit.tables import audit_tables, csv_text, table_lines
from search_to_signal.records.groups import GroupBatch, read_batches, record_files
from search_to_signal.records.schema import Outcome
from search_to_signal.report.metrics.replay import (
    DECISIONS,
    EXACT,
    EXPOSURES,
    Magnitudes,
    affinely_related,
    changed_rankings,
    chosen_rankings,
    context_tallies,
    exposure_tallies,
    reading_tallies,
)
from search_to_signal.report.metrics.search import class_membership
from search_to_signal.report.tables.cells import Cell, Row, Table

FAILED = Outcome.RUNTIME_FAILURE
TWO = {name: MAPPINGS[name] for name in ("native", "factorized")}
GROUP = {"group": group_advantages}
# Two values: equivalent by construction. Three values, spaced differently. All fail alike: flat in both.
SAMPLES = [
    group([-6.0, -6.0, FAILED, FAILED], bases=[-6.0], frontier=-6.0),
    group([-5.0, -6.5, -9.0, -9.0], bases=[-6.0], frontier=-6.0),
    group([FAILED] * 4, bases=[-6.0], frontier=-6.0),
]


def test_pairs_by_hand_add_up() -> None:
    tally = audit([("tsp", sample) for sample in SAMPLES], TWO, GROUP).pairs[
        "tsp", "group", "native", "factorized"
    ]
    assert (tally.groups, tally.affine, tally.reordered) == (3, 2, 0)
    assert tally.equivalent.tolist() == [1, 1, 2]
    assert tally.by_construction.tolist() == [1, 1, 2]
    assert tally.differences.largest > 0.1
    result = audit([("tsp", SAMPLES[0]), ("obp", SAMPLES[1]), ("tsp", SAMPLES[2])], TWO, GROUP)
    assert dict(result.groups) == {"tsp": 2, "obp": 1, "all": 3}
    assert result.pairs["all", "group", "native", "factorized"].equivalent.tolist() == [1, 1, 2]
    assert result.credit["all", "group", "native"].groups == 3

    def lopsided(rewards: np.ndarray) -> np.ndarray:
        return np.zeros_like(rewards)

    result = audit([("tsp", SAMPLES[1])], TWO, {"erased": lopsided})
    assert next(table_lines(audit_tables(result, {})["pairs"]))["basis"] == "by data"
    apart = audit([("tsp", SAMPLES[1])], TWO, GROUP)
    assert next(table_lines(audit_tables(apart, {})["pairs"]))["basis"] == "never equivalent"


def test_a_mapping_that_some_groups_cannot_be_asked_is_left_out_of_all() -> None:
    silent = group([-5.0, -7.0, FAILED, FAILED], bases=[-6.0], frontier=-6.0, exposure=[np.nan] * 4)
    three = {name: MAPPINGS[name] for name in ("native", "factorized", "search_exposure")}
    whole, mixed = (
        audit([("tsp", SAMPLES[1]), (problem, batch)], three, GROUP)
        for problem, batch in (("obp", SAMPLES[1]), ("obp", silent))
    )
    assert {key[2] for key in whole.credit} == set(three)
    assert {key[2] for key in mixed.credit} == {key[2] for key in mixed.readings} == {"native", "factorized"}
    assert {key[2:] for key in mixed.pairs} == {("native", "factorized")}
    assert {key[0] for key in mixed.pairs} == {"tsp", "obp", "all"}


@given(batch=ordinary_groups(), slope=st.floats(0.1, 10.0), offset=st.floats(-5.0, 5.0))
def test_affine(batch: GroupBatch, slope: float, offset: float) -> None:
    reward = MAPPINGS["native"](batch).reward
    assert affinely_related(reward, slope * reward + offset).all() or np.ptp(reward) < 1e-6
    if np.ptp(reward) > 1e-3 and not np.allclose(np.sort(reward), np.sort(-reward)):
        assert not affinely_related(reward, -reward).any()


@given(batch=groups())
def test_monotone_indicators_never_reorder(batch: GroupBatch) -> None:
    """Comparator and frontier ahead of score reorder no group (the paper's count of zero)."""
    tallies = context_tallies(batch)
    assert tallies["comparator"].reordered == tallies["frontier"].reordered == 0


def test_context_by_hand() -> None:
    archived = group([-6.5, -8.0], bases=[-6.0], frontier=-6.0, gap=[0.0, 1.0])
    repeated = group([-6.5, -6.5, -8.0], bases=[-6.0], frontier=-6.0, responses=[0, 0, 1])
    assert context_tallies(archived)["score_novelty"].reordered == 1
    assert context_tallies(archived)["response_repetition"].reordered == 0
    assert context_tallies(repeated)["response_repetition"].reordered == 1


def test_medians_are_exact_or_near() -> None:
    """The median is exact for few numbers and within 0.2 % for many, in any number of parts."""
    values = np.abs(np.random.default_rng(1).lognormal(0.0, 4.0, size=3 * EXACT + 1))
    values[:100] = 0.0
    few, many = Magnitudes.of(values[:101]), Magnitudes.of(values[:EXACT])
    assert few.median == float(np.median(values[:101]))
    assert many.median == float(np.median(values[:EXACT]))
    for start in range(EXACT, len(values), EXACT):
        many = many + Magnitudes.of(values[start : start + EXACT])
    assert many.median == pytest.approx(float(np.median(values)), rel=2e-3)
    assert many.mean == pytest.approx(float(values.mean()))
    assert many.largest == values.max()
    many = np.zeros(EXACT + 1)
    many[: EXACT // 3] = 1.0
    assert Magnitudes.of(many).median == 0.0


def test_replay_of_a_run(tmp_path: Path) -> None:
    run = tmp_path / "run" / "seed-42"
    run.mkdir(parents=True)
    records = [
        record(step=step, index=i, score=-6.0 - i * step, archive_gap=0.1)
        for step in range(5)
        for i in range(4)
    ]
    (run / "completions.jsonl").write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in records))
    page = replay([tmp_path / "run"], tmp_path / "out", list(MAPPINGS), list(NORMALIZERS))
    text = page.read_text(encoding="utf-8")
    assert "| tsp | 5 |" in text
    assert "by construction: monotone in score" in text
    with (tmp_path / "out" / "pairs.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    keys = [tuple(row[name] for name in ("problem", "normalizer", "mapping_a", "mapping_b")) for row in rows]
    couples = [(n, *pair) for n in NORMALIZERS for pair in combinations(MAPPINGS, 2)]
    assert sorted(keys) == sorted((problem, *rest) for problem in ("tsp", "all") for rest in couples)
    assert {row["groups"] for row in rows} == {"5"}
    with (tmp_path / "out" / "credit.csv").open(encoding="utf-8") as lines:
        invalid = [row for row in csv.DictReader(lines) if row["class"] == "invalid"]
    assert {row["positive_rate"] for row in invalid} == {""}


def test_a_replay_is_reproducible_and_takes_a_stranger(tmp_path: Path) -> None:
    file = outside(tmp_path, 50)
    for name in ("a", "b"):
        replay([file], tmp_path / name, ["native", "factorized"], ["group", "rank"])
    for table in ("audit.md", "pairs.csv", "credit.csv", "signal.csv", "context.csv"):
        assert (tmp_path / "a" / table).read_bytes() == (tmp_path / "b" / table).read_bytes()
    page = replay(
        [outside(tmp_path, 20)],
        tmp_path / "out",
        ["native", "spec.test_mappings:STRANGER"],
        ["search_to_signal.credit.normalizers:rloo"],
    )
    assert "native, spec.test_mappings:STRANGER" in page.read_text(encoding="utf-8")


def test_batches_are_bounded_and_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    file = outside(tmp_path, 100)
    batches = list(read_batches([file], size=16))
    assert sum(len(batch.outcome) for _, batch in batches) == 100
    assert max(len(batch.outcome) for _, batch in batches) == 16
    assert {problem for problem, _ in batches} == {"tsp", "obp"}
    file = outside(tmp_path, 3)
    with pytest.raises(ConfigError, match="use one of"):
        replay([file], tmp_path / "out", ["nativ"], ["group"])
    with pytest.raises(ConfigError, match="at least one"):
        replay([file], tmp_path / "out", [], ["group"])
    with pytest.raises(RecordError, match=r"holds no completions\.jsonl"):
        record_files([tmp_path / "nowhere"])
    with pytest.raises(IllFormedGroupError, match="exposure"):
        replay([file], tmp_path / "out", ["search_exposure"], ["group"])


def test_csv() -> None:
    row = Row("tsp/native", (Cell(1.0 / 3.0), Cell("x, y"), Cell(None)))
    table = Table("any", "Any", "audit", ("a", "b", "c"), (row,), "problem/mapping")
    assert csv_text(table) == 'problem,mapping,a,b,c\ntsp,native,0.333333333,"x, y",\n'


def outside(path: Path, number: int) -> Path:
    """A file of groups from outside, of two problems and two sizes."""
    stream = np.random.default_rng(3)
    lines = []
    for index in range(number):
        scores = np.round(-6.0 - stream.random(4 if index % 3 else 3), 3).tolist()
        candidates = [{"outcome": "valid", "score": score} for score in scores] + [
            {"outcome": "missing_code"}
        ]
        fields = {"problem": "tsp" if index % 2 else "obp", "bases": [-6.5], "archive": [-6.5, -6.25]}
        lines.append(json.dumps({**fields, "candidates": candidates}))
    file = path / "groups.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


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

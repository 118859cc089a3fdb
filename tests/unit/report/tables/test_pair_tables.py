"""The audit of pairs on groups by hand: an improvement, a failure, a copy of the best, a worse one."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from spec.strategies import group, stacked

from search_to_signal.credit import OTHERS
from search_to_signal.credit.mappings import PairPositions, pairs_of
from search_to_signal.records.schema import Outcome
from search_to_signal.report.results import Results
from search_to_signal.report.tables.catalogue import build
from search_to_signal.report.tables.pairs import DPO, KEPT, PairTable, Signals

CLASSES = ("invalid", "valid_non_improving", "parent_improving", "strict_frontier_improving")


@pytest.fixture
def results(make_run: Callable[..., Path], tmp_path: Path) -> Results:
    """A frozen run of five groups."""
    make_run(tmp_path / "cohort" / "frozen-s42", "frozen", groups=5, config={"layer": "cohort"})
    return Results(tmp_path)


@pytest.fixture
def paired(make_run: Callable[..., Path], tmp_path: Path) -> Results:
    """A run that learned from pairs in rounds of two groups; the fifth group has no round behind it."""
    config = {"layer": "cohort", "learning_rule": "dpo", "rule_settings": {"finetuning_frequency": 2}}
    make_run(tmp_path / "cohort" / "pairs-s42", "pairs", groups=5, config=config)
    return Results(tmp_path)


def values(results: Results, table: str, row: str) -> Mapping[str, object]:
    found = build(results, table)
    return {column: found.cell(row, column).value for column in found.columns}


@pytest.mark.parametrize(
    ("scores", "texts", "pairs"),
    [
        ((3.0, None, 2.0, 1.0), "abcd", [(0, 2), (0, 1)]),
        ((1.0, 2.0, 3.0, 4.0), "abcd", [(3, 1), (2, 0)]),
        ((1.0, 1.0, 1.0, None), "abcd", [(0, 3)]),
        ((2.0, 1.0, 1.0, None), "abbd", [(0, 1), (0, 3)]),
        ((2.0, None, None, None), "abbc", [(0, 1), (0, 3)]),
        ((2.0, 2.0, 1.0, None, None, None), "abcdef", [(0, 2), (0, 3), (1, 4), (2, 5)]),
        ((None, None), "ab", []),
        ((1.0, 2.0), "aa", []),
    ],
)
def test_pairs_by_hand(scores: tuple[float | None, ...], texts: str, pairs: list[tuple[int, int]]) -> None:
    assert pairs_of(scores, texts) == tuple(PairPositions(*pair) for pair in pairs)


def test_pairs_as_a_reward() -> None:
    batch = group([3.0, Outcome.RUNTIME_FAILURE, 0.0, 1.0, 1.0], responses=[0, 1, 2, 3, 3])
    rewards = OTHERS["pairs"](stacked(batch, group([Outcome.RUNTIME_FAILURE] * 5)))
    assert rewards.components["chosen"].tolist() == [[2, 0, 0, 0, 0], [0] * 5]
    assert rewards.components["rejected"].tolist() == [[0, -1, 0, -1, 0], [0] * 5]
    assert rewards.reward.tolist() == [[2, -1, 0, -1, 0], [0] * 5]


def test_a_threshold_takes_pairs_from_both_sides() -> None:
    both = stacked(group([-5.0, -6.0, -7.0]), group([-7.0, -5.0, -6.0]))
    places = [np.array(part) for part in ([0, 0, 1], [0, 0, 1], [1, 2, 0])]
    kept = np.array([True, False, True])
    found = Signals(both, PairTable(*places, np.array([1.0, 2.0, 2.0]), np.ones(3, bool), kept))
    assert [side.tolist() for side in found.sides[DPO]] == [[[2, 0, 0], [0, 1, 0]], [[0, 1, 1], [1, 0, 0]]]
    assert [side.tolist() for side in found.sides[KEPT]] == [[[1, 0, 0], [0, 1, 0]], [[0, 1, 0], [1, 0, 0]]]
    assert np.argwhere(found.preferences[DPO]).tolist() == [[0, 0, 1], [0, 0, 2], [1, 1, 0]]
    assert np.argwhere(found.preferences[KEPT]).tolist() == [[0, 0, 1], [1, 1, 0]]


def test_what_pairing_leaves_out(results: Results) -> None:
    assert values(results, "pairs", "frozen-s42") == {
        "Pairs per group": 2.0,
        "Groups without a pair (%)": 0.0,
        "In no pair (%)": 25.0,
        "Frontier improvers chosen (%)": 100.0,
        "Frontier improvers rejected (%)": 0.0,
        "Frontier improvers in no pair (%)": 0.0,
        "Rejected for failing alone (%)": 50.0,
        "Removed by the threshold (%)": 0.0,
        "Frontier choices removed (%)": 0.0,
    }
    everything = values(results, "pair_gaps", "frozen-s42/all")
    filtered = values(results, "pair_gaps", "frozen-s42/p75")
    assert everything["Pairs left (%)"] == 100.0
    assert everything["Rejected for failing alone (%)"] == 50.0
    left = filtered["Pairs of scores left (%)"]
    assert isinstance(left, float)
    assert filtered["Rejected for failing alone (%)"] == pytest.approx(100 / (1 + left / 100))
    for name in ("rules", "distinctions", "pairs", "pair_gaps"):
        cells = [cell for row in build(results, name).rows for cell in row.cells]
        assert all(cell.formula and cell.origins for cell in cells)
        assert {origin.path.split("/")[-1] for cell in cells for origin in cell.origins} == {
            "completions.jsonl"
        }


def test_what_each_rule_tells_and_credits(results: Results) -> None:
    told = {
        rule: values(results, "distinctions", f"frozen-s42/{rule}")
        for rule in ("factorized GRPO", "DPO", "DPO above the threshold")
    }
    assert {rule: found["Distinctions"] for rule, found in told.items()} == dict.fromkeys(told, 30)
    assert told["factorized GRPO"]["Told (%)"] == 100.0
    shares = ("Told (%)", "Between valid (%)", "Valid and failed (%)", "With a frontier improver (%)")
    expected = [pytest.approx(100 * share) for share in (1 / 3, 1 / 3, 1 / 3, 2 / 3)]
    assert [told["DPO"][column] for column in shares] == expected
    assert [told["DPO above the threshold"][column] for column in shares] == expected
    rows = {name: values(results, "rules", f"frozen-s42/DPO/{name}") for name in CLASSES}
    assert [rows[name]["Prevalence (%)"] for name in CLASSES] == [25.0, 50.0, 0.0, 25.0]
    assert [rows[name]["Credit mass (%)"] for name in CLASSES] == [0.0, 0.0, 0.0, 100.0]
    assert [rows[name]["Debit mass (%)"] for name in CLASSES] == [50.0, 50.0, 0.0, 0.0]
    assert [rows[name]["Without either (%)"] for name in CLASSES] == [0.0, 50.0, None, 0.0]
    assert rows["strict_frontier_improving"]["Credit enrichment"] == 4.0
    native = {name: values(results, "rules", f"frozen-s42/native GRPO/{name}") for name in CLASSES}
    assert [native[name]["Prevalence (%)"] for name in CLASSES] == [25.0, 50.0, 0.0, 25.0]


def test_a_run_s_own_rounds_decide(paired: Results) -> None:
    """Pairs behind the last round were never judged, and count as told by no threshold."""
    told = values(paired, "distinctions", "pairs-s42/DPO")["Told (%)"]
    kept = values(paired, "distinctions", "pairs-s42/DPO above the threshold")["Told (%)"]
    assert (told, kept) == (pytest.approx(100 / 3), pytest.approx(80 / 3))
    assert values(paired, "pairs", "pairs-s42")["Removed by the threshold (%)"] == 0.0

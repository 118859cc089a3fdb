"""How many groups' advantages move when recorded rewards are changed."""

from pathlib import Path

import numpy as np
import pytest

from search_to_signal.records.reader import read_groups
from search_to_signal.report.results import Results
from search_to_signal.report.tables.catalogue import build
from search_to_signal.report.tables.cells import Table


@pytest.fixture(scope="module")
def table(results: Path) -> Table:
    """The table of the synthetic runs."""
    return build(Results(results), "reward_changes")


def test_the_normalizer_erases_shifts_only(results: Path, table: Table) -> None:
    trained = [run.name for run in Results(results).cohort if run.trained]
    assert trained
    for run in trained:
        shift, ten, gated, cubed = (float(cell.text()) for cell in table.row(run).cells)
        assert shift == 0
        assert ten < min(gated, cubed)
    groups = read_groups(results / "cohort" / "native-s1")
    rewards = np.array([[one.reward for one in group] for group in groups], dtype=float)
    moved = np.abs(_standardized(rewards**3) - _standardized(rewards)).max(axis=1) > 1e-3
    assert table.cell("native-s1", "Cubed (%)").value == pytest.approx(100 * moved.mean())


def _standardized(rewards: np.ndarray) -> np.ndarray:
    middle, spread = rewards.mean(axis=1, keepdims=True), rewards.std(axis=1, ddof=1, keepdims=True)
    return (rewards - middle) / (spread + 1e-4)

"""How many groups' advantages move when recorded rewards are changed."""

from pathlib import Path

import numpy as np
import pytest
from spec.synthetic_runs import write_synthetic_run

from search_to_signal.records.reader import read_groups
from search_to_signal.report.results import Results
from search_to_signal.report.tables.catalogue import build


def test_the_normalizer_erases_shifts_only(tmp_path: Path) -> None:
    for condition in ("native", "factorized"):
        write_synthetic_run(tmp_path / "cohort" / f"{condition}-s1", condition, 1)
    results = Results(tmp_path)
    table = build(results, "reward_changes")
    trained = [run.name for run in results.cohort if run.trained]
    assert trained
    for run in trained:
        shift, ten, gated, cubed = (float(cell.text()) for cell in table.row(run).cells)
        assert shift == 0
        assert ten < min(gated, cubed)
    groups = read_groups(tmp_path / "cohort" / "native-s1")
    rewards = np.array([[one.reward for one in group] for group in groups], dtype=float)
    moved = np.abs(_standardized(rewards**3) - _standardized(rewards)).max(axis=1) > 1e-3
    assert table.cell("native-s1", "Cubed (%)").value == pytest.approx(100 * moved.mean())


def _standardized(rewards: np.ndarray) -> np.ndarray:
    middle, spread = rewards.mean(axis=1, keepdims=True), rewards.std(axis=1, ddof=1, keepdims=True)
    return (rewards - middle) / (spread + 1e-4)

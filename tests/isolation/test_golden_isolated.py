"""Heuristics with recorded scores have them in a worker, on every training instance, to the last bit."""

import json
from pathlib import Path

import pytest

from search_to_signal.problems import PROBLEMS
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "heuristics.json").read_text())


@pytest.mark.parametrize("name", ["tsp", "obp", "cvrp", "op"])
def test_isolated_scores_are_the_recorded_ones(name: str) -> None:
    """No lock disturbs a heuristic, and no replay finds one of them nondeterministic."""
    entries = [entry for entry in GOLDEN if entry["problem"] == name]
    if name in ("cvrp", "op"):
        pytest.importorskip("torch")
    with EvaluationPool(PROBLEMS[name], "train", EvaluationSettings()) as pool:
        results = pool.evaluate([entry["code"] for entry in entries])
    for entry, result in zip(entries, results, strict=True):
        recorded = entry["per_instance"]
        recorded = recorded["torch<2.7"] if isinstance(recorded, dict) else recorded
        assert (entry["name"], result.isolation) == (entry["name"], Isolation.OK)
        assert list(result.per_instance) == recorded

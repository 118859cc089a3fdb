"""Golden heuristics, and the way to the oracles."""

import json
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2]
sys.path.insert(0, str(TESTS / "oracles"))

GOLDEN = json.loads((TESTS / "golden" / "heuristics.json").read_text())


COLONIES = [entry for entry in GOLDEN if entry["problem"] in ("cvrp", "op")]
# The oracle takes a second for each: every fourth of both problems stands for all, whose scores are recorded.
FIXTURES = {"golden": GOLDEN, "golden_colony": COLONIES[::4]}


def pytest_generate_tests(metafunc: Any) -> None:
    """Run a test that takes ``golden`` once per golden heuristic, ``golden_colony`` once per colony's."""
    for name in FIXTURES.keys() & set(metafunc.fixturenames):
        ids = [f"{entry['problem']}-{entry['name']}" for entry in FIXTURES[name]]
        metafunc.parametrize(name, FIXTURES[name], ids=ids)

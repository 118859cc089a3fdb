"""Every instance meets a heuristic that has never run: nothing that it keeps outlives an instance."""

from collections.abc import Iterator

import pytest
from spec.in_process import evaluate_in_process

from search_to_signal.problems import PROBLEMS
from search_to_signal.records.schema import Outcome
from search_to_signal.sandbox.dialogues import ProgramTask
from search_to_signal.sandbox.locks import ALL
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.pool import EvaluationPool, Slot
from search_to_signal.sandbox.settings import EvaluationSettings

pytestmark = pytest.mark.slow

SETTINGS = EvaluationSettings(timeout_s=10.0, memory_mb=128, replay="off")
PARAMETERS = {
    "tsp": "here, destination, unvisited, distance",
    "obp": "item, capacities",
    "cvrp": "distance, places, demands, capacity",
    "op": "prize, distance, limit",
}
# What a heuristic decides by the number of its calls so far.
DECISION = {
    "tsp": "sorted(unvisited)[(n // 40) % 2 - 1]",
    "obp": "capacities if (n // 150) % 2 else -capacities",
    "cvrp": "distance ** (-1.0 if n == 1 else 1.0)",
    "op": "distance ** (-1.0 if n == 1 else 1.0)",
}
# Where it may keep that number, and how it is counted up.
KEEPERS = {
    "global": ("calls = 0\ndef f({parameters}):\n", "global calls\n    calls += 1; n = calls"),
    "list": ("calls = []\ndef f({parameters}):\n", "calls.append(0); n = len(calls)"),
    "default": ("def f({parameters}, *, calls=[]):\n", "calls.append(0); n = len(calls)"),
    "attribute": ("def f({parameters}):\n", "f.n = n = getattr(f, 'n', 0) + 1"),
    "class": ("class Kept:\n    n = 0\ndef f({parameters}):\n", "Kept.n += 1; n = Kept.n"),
    "cache": (
        "import functools\n@functools.lru_cache(None)\nclass Kept:\n    n = 0\ndef f({parameters}):\n",
        "Kept().n += 1; n = Kept().n",
    ),
}
IN_A_MODULE = ("import math\ndef f({parameters}):\n", "math.calls = n = getattr(math, 'calls', 0) + 1")


def written(keeper: tuple[str, str], problem: str) -> str:
    """A program of that problem that decides by a number of calls."""
    head, count = keeper
    return f"{head.format(parameters=PARAMETERS[problem])}    {count}\n    return {DECISION[problem]}"


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    """One slot of a pool."""
    running = Slot(SETTINGS, ALL)
    yield running
    running.close()


def alone(slot: Slot, problem: str, code: str) -> list[float]:
    """The score on each instance in a process of its own."""
    found = []
    for instance in PROBLEMS[problem].instances("embedded")[:3]:
        run = slot.run(ProgramTask(PROBLEMS[problem], [instance]), code)
        assert run.isolation is Isolation.OK, run.detail
        found += run.scores
    return found


@pytest.mark.parametrize("problem", PARAMETERS)
@pytest.mark.parametrize("keeper", KEEPERS)
def test_no_state_outlives_an_instance(slot: Slot, keeper: str, problem: str) -> None:
    """Scores in one process are those of a process per instance, isolated and in this process."""
    code, instances = written(KEEPERS[keeper], problem), PROBLEMS[problem].instances("embedded")[:3]
    expected = alone(slot, problem, code)
    assert list(slot.run(ProgramTask(PROBLEMS[problem], instances), code).scores) == expected
    assert evaluate_in_process(PROBLEMS[problem], code, instances) == expected


@pytest.mark.parametrize("problem", PARAMETERS)
def test_state_kept_in_a_module_is_recorded(problem: str) -> None:
    """Instances share modules; a replay in reverse says that a program decides by one (D34)."""
    with EvaluationPool(PROBLEMS[problem], "embedded", SETTINGS) as pool:
        kept, fresh = pool.replay([written(IN_A_MODULE, problem), written(KEEPERS["list"], problem)])
    assert (kept.isolation, kept.outcome) == (Isolation.NONDETERMINISTIC, Outcome.VALID)
    assert fresh.isolation is Isolation.OK

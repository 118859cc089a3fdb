"""Processor time of a run: of its process and of everything below it, whoever waits for whom."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.command import Patch

from search_to_signal.problems import get_problem
from search_to_signal.run import clock
from search_to_signal.run.clock import StepClock, tree_seconds
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings

pytestmark = pytest.mark.slow

BURNT = 0.3
BURN = f"import time\nwhile time.process_time() < {BURNT}: pass\n"
STAY = "print('burnt', flush=True)\nsys.stdin.read()\n"
WAIT = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', {!r}])\n"
# A child whose child burns time: it has waited for it, as a fork server does, or both are alive.
FAMILIES = {"ended": WAIT.format(BURN) + STAY, "alive": WAIT.format(f"import sys; {BURN}{STAY}")}
# Evaluated in a worker, which its fork server waits for.
SLOW = """def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):
    sum(range(100000))
    return min(unvisited_nodes)
"""


def spent(since: float) -> float:
    """Processor seconds of the tree since then."""
    now = tree_seconds()
    assert now is not None
    return now - since


@pytest.fixture
def start() -> float:
    """Processor seconds so far."""
    now = tree_seconds()
    assert now is not None
    return now


def test_waiting_takes_no_processor_time(start: float) -> None:
    """Half a second asleep is next to nothing; a busy third of a second is itself."""
    time.sleep(0.5)
    assert spent(start) < 0.2
    until = time.process_time() + BURNT
    while time.process_time() < until:
        pass
    assert spent(start) >= BURNT


@pytest.mark.parametrize("grandchild", FAMILIES)
def test_all_below_counts_once(grandchild: str, start: float) -> None:
    """What a grandchild burns counts while its parent lives, and nothing twice when all have ended."""
    family = [sys.executable, "-c", FAMILIES[grandchild]]
    with subprocess.Popen(family, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"burnt\n"
        alive = spent(start)
        assert alive >= BURNT - 0.02
        child.communicate()
    assert alive - 0.05 < spent(start) < alive + 0.25


def test_workers_of_an_evaluation_count() -> None:
    """What a program burns in an isolated worker is the step's, and a step that only waits has none of it."""
    with EvaluationPool(get_problem("tsp"), "embedded", EvaluationSettings(replay="off")) as pool:
        clock = StepClock()
        with clock.phase("evaluation"):
            (done,) = pool.evaluate([SLOW])
        busy = clock.timing(0)
        time.sleep(0.3)
        idle = clock.timing(1)
    assert done.cpu_s > 0.3
    assert busy.processor_seconds is not None
    assert idle.processor_seconds is not None
    assert busy.processor_seconds > 0.9 * done.cpu_s
    assert idle.processor_seconds < 0.1 < idle.seconds["total"]
    assert (busy.step, idle.step) == (0, 1)


def test_a_kernel_that_lists_no_children_gives_no_number(monkeypatch: Patch, tmp_path: Path) -> None:
    """A sum without the workers would look right; the step then has its wall time alone."""
    monkeypatch.setattr(clock, "PROC", tmp_path)
    assert tree_seconds() is None
    timing = StepClock().timing(0)
    assert timing.processor_seconds is None
    assert timing.seconds["total"] >= 0

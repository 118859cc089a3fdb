"""No layer is there for show: without it, a program ends otherwise."""

import os
import subprocess
import sys

import pytest
from isolation_corpus import MEMORY_MB, TARGET, TIMEOUT_S, Judge, judge, leftovers

from search_to_signal.base.errors import SandboxError
from search_to_signal.sandbox.locks import ALL, Barrier
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.pool import Run

HEAD = "def f(current, destination, unvisited, matrix):\n    "
HONEST = HEAD + "return min(unvisited)"
CLOCK = HEAD + "import time; time.time(); return min(unvisited)"
SOCKET = HEAD + "import socket; socket.socket(); return min(unvisited)"
MEMORY = HEAD + f"len(bytes({MEMORY_MB + 64} << 20)); return min(unvisited)"
FILE = HEAD + f"open('{TARGET}/written', 'w').close(); return min(unvisited)"
USER = HEAD + "import os; return min(unvisited) if os.getuid() else -2"
LOOP = HEAD + "while True: pass"


def run_without(layers: Barrier, code: str) -> Run:
    """Run one program with some layers off, without insisting on seccomp."""
    with judge("paper", ALL & ~layers, require_seccomp=False) as judging:
        return judging.run("tsp", code, replayed=False)


@pytest.mark.parametrize(
    ("layer", "code", "expected"),
    [
        (Barrier.SECCOMP, SOCKET, Isolation.VIOLATION),
        (Barrier.CLOCK, CLOCK, Isolation.CRASH),
        (Barrier.LIMITS, MEMORY, Isolation.MEMORY),
    ],
    ids=["seccomp", "clock", "limits"],
)
def test_without_a_layer_its_program_succeeds(
    paper: Judge, layer: Barrier, code: str, expected: Isolation
) -> None:
    """Socket, clock and memory are each held by one layer."""
    assert paper.run("tsp", code, replayed=False).isolation is expected
    assert run_without(layer, code).isolation is Isolation.OK


def test_timers_hold_the_time_limit(paper: Judge) -> None:
    """With timers a loop ends at the limit; without them whole seconds or the parent end it, later."""
    punctual, late = paper.run("tsp", LOOP), run_without(Barrier.TIMERS, LOOP)
    assert punctual.isolation is Isolation.TIMEOUT
    assert punctual.detail in ("SIGPROF", "SIGALRM")
    assert punctual.cpu_s < TIMEOUT_S + 0.2
    assert late.isolation is Isolation.TIMEOUT
    assert late.detail in ("SIGXCPU", "elapsed time")


def test_landlock_holds_files_when_seccomp_does_not() -> None:
    """The second lock alone keeps a file from being created; without both it is."""
    assert run_without(Barrier.SECCOMP, FILE).isolation is Isolation.EXCEPTION
    assert leftovers() == []
    assert run_without(Barrier.SECCOMP | Barrier.LANDLOCK, FILE).isolation is Isolation.OK
    assert leftovers() == [f"{TARGET}/written"]
    (TARGET / "written").unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a user id to give up")
def test_workers_of_root_are_nobody() -> None:
    """A worker does not keep the id of root."""
    assert run_without(Barrier.SECCOMP, USER).isolation is Isolation.OK
    kept = run_without(Barrier.SECCOMP | Barrier.UNPRIVILEGED | Barrier.LANDLOCK, USER)
    assert kept.isolation is Isolation.INVALID_DECISION


@pytest.mark.parametrize("layer", [Barrier.SECCOMP, Barrier.NO_NEW_PRIVS])
def test_required_layers_fail_closed(layer: Barrier) -> None:
    """Without seccomp or no_new_privs nothing runs, and the message names the flag."""
    with (
        pytest.raises(SandboxError, match=r"require_seccomp = false"),
        judge("paper", ALL & ~layer) as judging,
    ):
        judging.run("tsp", HONEST)


def test_a_kernel_without_seccomp_fails_closed() -> None:
    """Where the system call is refused the run stops; with the flag it goes on and says what is missing."""
    script = """
from search_to_signal.sandbox import locks as seccomp
from search_to_signal.sandbox import locks as privileges
from search_to_signal.sandbox.locks import NUMBERS
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, NUMBERS["seccomp"]), (6, 0, 0, 0x00050000 | 38), (6, 0, 0, 0x7FFF0000)]
privileges.forbid_new_privileges()
assert seccomp.Filter(rules).install()
from search_to_signal.base.errors import SandboxError
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.problems.tsp import Tsp
try:
    with EvaluationPool(Tsp(), "embedded", EvaluationSettings()):
        print("ran")
except SandboxError:
    print("refused")
with EvaluationPool(Tsp(), "embedded", EvaluationSettings(require_seccomp=False, replay="off")) as pool:
    print(pool.evaluate(["def f(c, d, u, m): return min(u)"])[0].isolation.value, pool.barriers()["seccomp"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["refused", "ok", "False"], done.stderr

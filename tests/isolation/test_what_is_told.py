"""What a program is told that asks for the time or its processor, as docs/trust.md says it."""

import subprocess
import sys

import pytest
from isolation_corpus import Judge

from search_to_signal.sandbox import locks
from search_to_signal.sandbox.outcomes import Isolation

HEAD = "def f(current, destination, unvisited, matrix):\n    import time, ctypes\n    "
LAST_SECOND = "(1969, 12, 31, 23, 59, 59, 2, 365, 0)"
TOLD = {
    "tuple(time.localtime())": LAST_SECOND,
    "tuple(time.gmtime())": LAST_SECOND,
    "time.ctime()": "Wed Dec 31 23:59:59 1969",
    "time.strftime('%Y')": "1969",
    "ctypes.CDLL(None).time(None)": "-1",
    "ctypes.CDLL(None).sched_getcpu()": "-1",
}
TRAPPED = """
import os
from search_to_signal.sandbox import locks as clock
assert clock.can_trap_clock() and clock.trap_clock()
with open("/proc/self/maps") as maps:
    os.write(1, maps.read().encode())
os._exit(0)
"""


@pytest.mark.parametrize("asked", TOLD)
def test_the_same_is_told_at_any_time_and_on_any_processor(paper: Judge, asked: str) -> None:
    """Refused times are the last second of 1969, a refused number is -1; the program goes on."""
    run = paper.run("tsp", f"{HEAD}raise ValueError(str({asked}))\n")
    assert run.isolation is Isolation.EXCEPTION
    assert run.detail == f"ValueError: {TOLD[asked]} (line 3)"


def test_no_time_lies_in_memory() -> None:
    """Beside the vDSO the kernel keeps the time for every process: a worker has no such memory."""
    if not locks.can_trap_clock():
        pytest.skip("this machine has no trap")
    found = subprocess.run([sys.executable, "-c", TRAPPED], capture_output=True, text=True, check=True)
    assert "[stack]" in found.stdout
    assert "[vvar" not in found.stdout

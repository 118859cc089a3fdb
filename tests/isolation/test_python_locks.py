"""A program that takes a lock, or has a library take one, reads no clock and runs on every Python."""

import pytest
from isolation_corpus import Judge

from search_to_signal.sandbox import locks
from search_to_signal.sandbox.outcomes import Isolation

BODIES = {
    "a lock": "import threading\n    with threading.Lock(): pass",
    "a lock that is taken again": "import threading\n    with threading.RLock(): pass",
    "numpy's generator": "import numpy as np\n    np.random.RandomState(1).rand(3)",
    "a method of numpy that is called for the first time": "import numpy as np\n    np.ones(3).copy()",
    "an import that fails": "try:\n        import pandas\n    except ImportError:\n        pass",
    "a file in memory": "import io\n    io.BufferedReader(io.BytesIO(b'text')).read()",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_taking_a_lock_ends_no_program(paper: Judge, body: str) -> None:
    """CPython 3.11 and later ask for the monotonic time at every lock; the program goes on without it."""
    code = f"def f(current, destination, unvisited, matrix):\n    {body}\n    return min(unvisited)\n"
    run = paper.run("tsp", code)
    assert (run.isolation, run.detail) == (Isolation.OK, "")


def test_no_trap_is_set_that_a_lock_would_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the vDSO cannot be overwritten, the clock is no barrier for a Python whose locks read it."""
    if not locks.can_trap_clock():
        pytest.skip("this machine has no trap")
    monkeypatch.setattr(locks, "_protect", lambda protection: False)
    assert locks.can_trap_clock() is not locks.LOCKS_READ_CLOCK

"""Programs with known endings, run before anything else: does a worker compute right, do its locks hold?"""

from collections.abc import Iterator
from types import MappingProxyType

import numpy as np

from search_to_signal.errors import SandboxError
from search_to_signal.evaluation.candidate_run import Run, run_candidate
from search_to_signal.evaluation.dialogues import ProgramTask
from search_to_signal.evaluation.fork_server import ForkServer
from search_to_signal.evaluation.locks import Barrier
from search_to_signal.evaluation.outcomes import Isolation
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.problems.base import Array, InfeasibleAnswerError, Instance

_POSITIONS = np.array([0, 9, 2, 7, 4, 30])
_INSTANCE: Instance = MappingProxyType(
    {"distance": np.abs(_POSITIONS[:, None] - _POSITIONS[None, :]).astype(np.float64)}
)
_TOUR = (0, 2, 4, 3, 1, 5)
_SETTINGS = EvaluationSettings(timeout_s=10.0, memory_mb=64)

_HEAD = "def canary(current, destination, unvisited, matrix):\n    "
_NEAREST = _HEAD + "return min(sorted(unvisited), key=lambda node: matrix[current][node])"
_TRAPS = MappingProxyType(
    {
        Barrier.SECCOMP: (_HEAD + "import socket; socket.socket()", (Isolation.VIOLATION,)),
        # A kernel whose clock is not the processor's answers by a system call instead of the trap.
        Barrier.CLOCK | Barrier.SECCOMP: (
            _HEAD + "import time; time.time()",
            (Isolation.CRASH, Isolation.VIOLATION),
        ),
        Barrier.LIMITS: (_HEAD + "return bytes(2**30)", (Isolation.MEMORY,)),
    }
)


class _Line:
    """Six places on a line with whole distances, so that the known tour is the same on every machine."""

    dialogue = "tour"

    def score(self, instance: Instance, answer: Array) -> float:
        if tuple(answer.tolist()) != _TOUR:
            raise InfeasibleAnswerError("another tour than the known one")
        return 0.0


def check(server: ForkServer) -> None:
    """Raise SandboxError unless the known programs end as known under the barriers that hold."""
    for name, expected, run in _endings(server):
        if run.isolation not in expected:
            raise SandboxError(
                f"the canary for {name} ended in {run.isolation.value} ({run.detail}), expected "
                f"{expected[0].value}: this machine does not isolate; run tests/isolation/tally.py"
            )


def _endings(server: ForkServer) -> Iterator[tuple[str, tuple[Isolation, ...], Run]]:
    task = ProgramTask(_Line(), [_INSTANCE])
    run = run_candidate(server, task, _NEAREST, _SETTINGS)
    yield "a known tour", (Isolation.OK,), run
    for barrier, (code, expected) in _TRAPS.items():
        if barrier in server.barriers:
            names = "|".join(str(part.name) for part in Barrier if part in barrier)
            yield names, expected, run_candidate(server, task, code, _SETTINGS)

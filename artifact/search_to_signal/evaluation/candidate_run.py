"""One candidate from spawn to reap."""

import hashlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from search_to_signal.errors import SandboxError
from search_to_signal.evaluation import wire_format
from search_to_signal.evaluation.channel import Channel, WorkerGoneError
from search_to_signal.evaluation.dialogues import ProgramTask, decide
from search_to_signal.evaluation.fork_server import ForkServer
from search_to_signal.evaluation.outcomes import CandidateError, Isolation
from search_to_signal.evaluation.settings import EvaluationSettings

# The worker's own timers come first; the parent's deadline is for machines where they cannot be had.
_GRACE_S = 1.0
# More than any completion holds; keeps a frame small whatever a caller sends.
_LONGEST_SOURCE = 1 << 20
_SIGNALS: Mapping[int, Isolation] = MappingProxyType(
    {
        signal.SIGSYS: Isolation.VIOLATION,
        signal.SIGALRM: Isolation.TIMEOUT,
        signal.SIGPROF: Isolation.TIMEOUT,
        signal.SIGXCPU: Isolation.TIMEOUT,
        signal.SIGKILL: Isolation.KILLED,
    }
)


@dataclass(frozen=True)
class Run:
    """What one worker did: typed ending, and per instance the score and a digest of its decisions.

    ``scores`` and ``decisions`` are empty unless the run is OK. ``cpu_s`` and ``wall_s`` are in seconds.
    """

    isolation: Isolation
    detail: str
    scores: tuple[float, ...]
    decisions: tuple[str, ...]
    cpu_s: float
    wall_s: float


@dataclass
class _Progress:
    ready: bool = False
    scores: list[float] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)


def run_candidate(server: ForkServer, task: ProgramTask, code: str, settings: EvaluationSettings) -> Run:
    """Run one program on the instances of a task in order, in a process of its own.

    Raises ForkServerGoneError when the fork server dies, SandboxError when a worker cannot lock itself up.
    """
    start = time.monotonic()
    progress = _Progress()
    with server.spawn(settings.wall_s, settings.timeout_s, settings.memory_mb << 20) as data:
        try:
            channel = Channel(data, settings.wall_s + _GRACE_S)
            failure = _converse(channel, task, code, settings.mode, progress)
        finally:
            exited = server.reap()
    if isinstance(failure, WorkerGoneError):
        failure = _death(exited.status, progress.ready)
    return Run(
        isolation=failure.isolation if failure else Isolation.OK,
        detail=failure.detail if failure else "",
        scores=() if failure else tuple(progress.scores),
        decisions=() if failure else tuple(progress.decisions),
        cpu_s=exited.cpu_s,
        wall_s=time.monotonic() - start,
    )


def _converse(
    channel: Channel, task: ProgramTask, code: str, mode: str, progress: _Progress
) -> CandidateError | WorkerGoneError | None:
    try:
        channel.wait_until_ready()
        progress.ready = True
        parameters = _load(channel, code, mode)
        for answer, score in decide(channel, task, parameters):
            progress.scores.append(score)
            progress.decisions.append(hashlib.blake2b(answer.tobytes(), digest_size=16).hexdigest())
    except (CandidateError, WorkerGoneError) as error:
        return error
    return None


def _load(channel: Channel, code: str, mode: str) -> int:
    """Hand over the source; returns the number of positional parameters of its function."""
    raw = code.encode("utf-8", "surrogatepass")
    if len(raw) > _LONGEST_SOURCE:
        raise CandidateError(Isolation.GATE, f"the source is longer than {_LONGEST_SOURCE} bytes")
    channel.ask(wire_format.LOAD_STRICT if mode == "strict" else wire_format.LOAD, raw)
    return channel.value()


def _death(status: int, ready: bool) -> CandidateError:
    """What the end of a process says; before it was ready, its end is our fault."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    isolation = _SIGNALS.get(number, Isolation.CRASH) if number else Isolation.EXIT
    if not ready and isolation not in (Isolation.TIMEOUT, Isolation.KILLED):
        raise SandboxError(
            f"a worker could not lock itself up (wait status {status}); run the isolation tests "
            "(pytest tests/isolation) on this machine before trusting any result of it"
        )
    name = signal.Signals(number).name if number else f"code {os.WEXITSTATUS(status)}"
    return CandidateError(isolation, name)

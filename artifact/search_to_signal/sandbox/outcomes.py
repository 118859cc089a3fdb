"""How an isolated evaluation can end, and what each ending means to the paper's typed failures."""

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from search_to_signal.problems.base import ScorePath
from search_to_signal.records.schema import Outcome
from search_to_signal.sandbox.programs import mentions_randomness
from search_to_signal.sandbox.settings import RandomnessRule


class Isolation(str, Enum):
    """Every way in which the run of a candidate ends; the list is closed."""

    OK = "ok"
    GATE = "gate"
    EXCEPTION = "exception"
    MEMORY = "memory"
    BAD_OUTPUT = "bad_output"
    INVALID_DECISION = "invalid_decision"
    TIMEOUT = "timeout"
    VIOLATION = "violation"
    CRASH = "crash"
    EXIT = "exit"
    KILLED = "killed"
    PROTOCOL = "protocol"
    NO_FUNCTION = "no_function"
    NONDETERMINISTIC = "nondeterministic"
    SANDBOX_ERROR = "sandbox_error"


_FAILED = (
    *(Isolation.GATE, Isolation.EXCEPTION, Isolation.MEMORY, Isolation.BAD_OUTPUT),
    *(Isolation.INVALID_DECISION, Isolation.TIMEOUT, Isolation.VIOLATION, Isolation.CRASH),
    *(Isolation.EXIT, Isolation.KILLED, Isolation.PROTOCOL),
)
# SANDBOX_ERROR is absent on purpose: it raises errors.SandboxError and is never an outcome.
# NONDETERMINISTIC is valid by itself: by default the host's textual rule decides (D20).
OUTCOMES = MappingProxyType(
    {
        Isolation.OK: Outcome.VALID,
        Isolation.NONDETERMINISTIC: Outcome.VALID,
        Isolation.NO_FUNCTION: Outcome.MISSING_FUNCTION,
        **dict.fromkeys(_FAILED, Outcome.RUNTIME_FAILURE),
    }
)


@dataclass(frozen=True)
class Evaluation:
    """What is known about one candidate; only a valid outcome has a score (higher is better).

    ``per_instance`` holds the parts whose mean is ``score``. ``detail`` is at most 200 printable ASCII
    characters and may have been written by the candidate. ``cpu_s`` and ``wall_s`` are seconds of the
    worker that scored it; ``repeat`` says that an equal text was evaluated before and nothing ran.
    ``score_path`` says whether compiled kernels gave the score or the slower exact way.
    """

    isolation: Isolation
    outcome: Outcome
    score: float | None
    per_instance: tuple[float, ...]
    detail: str
    cpu_s: float
    wall_s: float
    repeat: bool
    score_path: ScorePath = "direct"


class CandidateError(Exception):
    """A candidate ended in a way that is its own doing; carries the typed outcome."""

    def __init__(self, isolation: Isolation, detail: str = "") -> None:
        super().__init__(f"{isolation.value}: {detail}")
        self.isolation = isolation
        self.detail = detail


def outcome_of(isolation: Isolation, code: str, randomness: RandomnessRule = "text") -> Outcome:
    """Return the typed outcome of a finished run; randomness is asked last, after success (D04, D20)."""
    outcome = OUTCOMES[isolation]
    behaves = isolation is Isolation.NONDETERMINISTIC
    random = behaves if randomness == "behaviour" else mentions_randomness(code)
    return Outcome.RANDOMNESS if outcome is Outcome.VALID and random else outcome

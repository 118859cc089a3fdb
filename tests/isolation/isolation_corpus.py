"""The corpus of hostile programs: what each tries, how it must end, and the judge that runs it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isolation_toys import PROBLEMS

from search_to_signal.sandbox.dialogues import ProgramTask
from search_to_signal.sandbox.locks import ALL, Barrier
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.pool import Run, Slot, confirm_by_replay
from search_to_signal.sandbox.settings import EvaluationSettings

CORPUS = Path(__file__).with_name("hostile.jsonl")
# Where the corpus tries to write; world-writable, so that only isolation keeps it empty.
TARGET = Path("/tmp/s2s-isolation")
SHARED_MEMORY = Path("/dev/shm/s2s-left")
TIMEOUT_S = 0.5
MEMORY_MB = 64


@dataclass(frozen=True)
class Case:
    """One hostile program; ``twin`` is an honest one whose score it must have when it ends OK."""

    name: str
    attack: str
    task: str
    code: str
    expected: Mapping[str, tuple[str, ...]]
    twin: str | None


def cases() -> list[Case]:
    """Read the corpus; ``pad`` lengthens a source by comments."""
    return [_case(json.loads(line)) for line in CORPUS.read_text().splitlines()]


def _case(entry: dict[str, Any]) -> Case:
    expected = {"paper": tuple(entry["paper"]), "strict": tuple(entry["strict"])}
    code = entry["code"] + "# x\n" * (entry.get("pad", 0) // 4)
    return Case(entry["name"], entry["attack"], entry["task"], code, expected, entry["twin"])


class Judge:
    """Runs cases in one slot; every OK run is replayed on all instances."""

    def __init__(self, mode: str, wanted: Barrier = ALL, require_seccomp: bool = True) -> None:
        self.mode = mode
        self._settings = EvaluationSettings(
            timeout_s=TIMEOUT_S,
            wall_factor=4.0,
            memory_mb=MEMORY_MB,
            mode=mode,
            require_seccomp=require_seccomp,
        )
        self.slot = Slot(self._settings, wanted)

    def run(self, task: str, code: str, replayed: bool = True) -> Run:
        """Run a program and replay it."""
        problem = PROBLEMS[task]
        instances = problem.instances("any")
        run = self.slot.run(ProgramTask(problem, instances), code)
        if run.isolation is not Isolation.OK or not replayed:
            return run
        indices = range(len(instances))[::-1]
        return confirm_by_replay(self.slot, ProgramTask(problem, instances), code, run, indices)

    def complaint(self, case: Case, run: Run) -> str:
        """Say what is not as expected about the run of a case, or nothing."""
        if run.isolation.value not in case.expected[self.mode]:
            return f"{case.name}: {run.isolation.value} ({run.detail}), expected {case.expected[self.mode]}"
        if (
            case.twin
            and run.isolation is Isolation.OK
            and run.scores != self.run(case.task, case.twin).scores
        ):
            return f"{case.name}: scores {run.scores}, which are not those of its honest twin"
        left = leftovers()
        return f"{case.name}: left {left}" if left else ""


@contextmanager
def judge(mode: str, wanted: Barrier = ALL, require_seccomp: bool = True) -> Iterator[Judge]:
    """A judge with an empty target directory."""
    if not TARGET.exists():
        TARGET.mkdir()
        TARGET.chmod(0o777)
    judging = Judge(mode, wanted, require_seccomp)
    try:
        yield judging
    finally:
        judging.slot.close()


def leftovers() -> list[str]:
    """Files that a program managed to create."""
    written = [str(path) for path in TARGET.iterdir()]
    return written + ([str(SHARED_MEMORY)] if SHARED_MEMORY.exists() else [])

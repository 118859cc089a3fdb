"""One slot of a pool: a zygote that scores and one that replays, both replaced when they die."""

from collections.abc import Mapping
from dataclasses import replace

from search_to_signal.errors import SandboxError
from search_to_signal.evaluation import canary
from search_to_signal.evaluation.candidates import Run, run_candidate
from search_to_signal.evaluation.dialogues import Task
from search_to_signal.evaluation.locks import Barrier
from search_to_signal.evaluation.preload import needs_wide
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.evaluation.zygotes import REPLAYING, SCORING, Variation, Zygote, ZygoteGoneError
from search_to_signal.extras import require

_REQUIRED = Barrier.SECCOMP | Barrier.NO_NEW_PRIVS
_ATTEMPTS = 3


class Lane:
    """Runs one program at a time; a zygote starts when it is first needed."""

    def __init__(self, settings: EvaluationSettings, wanted: Barrier) -> None:
        self._settings = settings
        self._wanted = wanted
        self._zygotes: dict[Variation, Zygote] = {}
        self._closed = False

    def start(self) -> None:
        """Start the scoring zygote; raises SandboxError when a required barrier does not hold."""
        self._zygote(SCORING)

    def run(self, task: Task, code: str) -> Run:
        """Run a program in the scoring zygote; raises SandboxError for a fault of ours."""
        return self._run(SCORING, task, code)

    def replay(self, task: Task, code: str) -> Run:
        """Run a program where hashes, addresses, fresh memory and generators differ; as ``run``."""
        return self._run(REPLAYING, task, code)

    def barriers(self) -> Mapping[str, str | bool]:
        """The barriers that hold, by name, with the Landlock ABI and the mode of the gate."""
        zygote = self._zygote(SCORING)
        held: dict[str, str | bool] = {
            str(barrier.name).lower(): barrier in zygote.barriers for barrier in Barrier
        }
        return held | {"landlock_abi": str(zygote.landlock_abi), "mode": self._settings.mode}

    def close(self) -> None:
        """End the zygotes and what runs in them; a program at work meets a SandboxError."""
        self._closed = True
        for zygote in list(self._zygotes.values()):
            zygote.close()

    def _run(self, variation: Variation, task: Task, code: str) -> Run:
        variation = replace(variation, wide=needs_wide(code))
        for _ in range(_ATTEMPTS):
            try:
                return run_candidate(self._zygote(variation), task, code, self._settings)
            except ZygoteGoneError:
                self._zygotes.pop(variation).close()
                if self._closed:
                    raise SandboxError("the evaluation pool was left while a program ran") from None
        raise SandboxError(
            f"the zygote died {_ATTEMPTS} times under one program; look for an out-of-memory killer in the "
            "kernel log and lower evaluation.slots or evaluation.memory_mb"
        )

    def _zygote(self, variation: Variation) -> Zygote:
        if variation not in self._zygotes:
            self._zygotes[variation] = self._start(variation)
        return self._zygotes[variation]

    def _start(self, variation: Variation) -> Zygote:
        if variation.wide:
            require("scipy")
        zygote = Zygote(variation, self._wanted)
        try:
            if self._settings.require_seccomp and _REQUIRED & ~zygote.barriers:
                raise SandboxError(
                    "this machine does not let the evaluation use seccomp, so programs would not be "
                    "isolated; run elsewhere, or accept that with evaluation.require_seccomp = false"
                )
            canary.check(zygote)
        except BaseException:
            zygote.close()
            raise
        return zygote

"""One slot of a pool: a fork server that scores and one that replays, both replaced when they die."""

from collections.abc import Mapping
from dataclasses import replace

from search_to_signal.errors import SandboxError
from search_to_signal.evaluation import canary
from search_to_signal.evaluation.candidates import Run, run_candidate
from search_to_signal.evaluation.dialogues import ProgramTask
from search_to_signal.evaluation.fork_server import (
    REPLAYING,
    SCORING,
    ForkServer,
    ForkServerGoneError,
    Variation,
)
from search_to_signal.evaluation.locks import Barrier
from search_to_signal.evaluation.preload import needs_wide
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.extras import require

_REQUIRED = Barrier.SECCOMP | Barrier.NO_NEW_PRIVS
_ATTEMPTS = 3


class Slot:
    """Runs one program at a time; a fork server starts when it is first needed."""

    def __init__(self, settings: EvaluationSettings, wanted: Barrier) -> None:
        self.settings = settings
        self._wanted = wanted
        self._servers: dict[Variation, ForkServer] = {}
        self._closed = False

    def start(self) -> None:
        """Start the scoring fork server; raises SandboxError when a required barrier does not hold."""
        self._server(SCORING)

    def run(self, task: ProgramTask, code: str) -> Run:
        """Run a program in the scoring fork server; raises SandboxError for a fault of the sandbox."""
        return self._run(SCORING, task, code)

    def replay(self, task: ProgramTask, code: str) -> Run:
        """Run a program where hashes, addresses, fresh memory and generators differ; as ``run``."""
        return self._run(REPLAYING, task, code)

    def barriers(self) -> Mapping[str, str | bool]:
        """The barriers that hold, by name, with the Landlock ABI and the mode of the gate."""
        server = self._server(SCORING)
        held: dict[str, str | bool] = {
            str(barrier.name).lower(): barrier in server.barriers for barrier in Barrier
        }
        return held | {"landlock_abi": str(server.landlock_abi), "mode": self.settings.mode}

    def close(self) -> None:
        """End the fork servers and what runs in them; a program at work meets a SandboxError."""
        self._closed = True
        for server in list(self._servers.values()):
            server.close()

    def _run(self, variation: Variation, task: ProgramTask, code: str) -> Run:
        variation = replace(variation, wide=needs_wide(code))
        for _ in range(_ATTEMPTS):
            try:
                return run_candidate(self._server(variation), task, code, self.settings)
            except ForkServerGoneError:
                self._servers.pop(variation).close()
                if self._closed:
                    raise SandboxError("the evaluation pool was left while a program ran") from None
        raise SandboxError(
            f"the fork server died {_ATTEMPTS} times under one program; look for an out-of-memory killer in "
            "the kernel log and lower evaluation.slots or evaluation.memory_mb"
        )

    def _server(self, variation: Variation) -> ForkServer:
        if variation not in self._servers:
            self._servers[variation] = self._start(variation)
        return self._servers[variation]

    def _start(self, variation: Variation) -> ForkServer:
        if variation.wide:
            require("scipy")
        server = ForkServer(variation, self._wanted)
        try:
            if self.settings.require_seccomp and _REQUIRED & ~server.barriers:
                raise SandboxError(
                    "this machine does not let the evaluation use seccomp, so programs would not be "
                    "isolated; run elsewhere, or accept that with evaluation.require_seccomp = false"
                )
            canary.check(server)
        except BaseException:
            server.close()
            raise
        return server

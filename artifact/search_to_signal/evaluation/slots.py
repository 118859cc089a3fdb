"""Slots of a pool: each a fork server that scores and one that replays, both replaced when they die.

One program on several slots at a time is how elapsed time is measured as the host measures it (D33); by
processor time it ends sooner.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import replace

import msgspec

from search_to_signal.errors import SandboxError
from search_to_signal.evaluation import canary
from search_to_signal.evaluation.candidate_run import Run, run_candidate
from search_to_signal.evaluation.channel import BY_ELAPSED_TIME
from search_to_signal.evaluation.dialogues import ProgramTask
from search_to_signal.evaluation.fork_server import (
    REPLAYING,
    SCORING,
    ForkServer,
    ForkServerGoneError,
    Variation,
)
from search_to_signal.evaluation.locks import Barrier
from search_to_signal.evaluation.outcomes import Isolation
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

    def run(self, task: ProgramTask, code: str, shards: int = 1) -> Run:
        """Run a program in the scoring fork server; one of ``shards`` has that share of the processor time.

        Raises SandboxError for a fault of the sandbox.
        """
        return self._run(SCORING, task, code, shards)

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

    def _run(self, variation: Variation, task: ProgramTask, code: str, shards: int = 1) -> Run:
        settings, variation = self.settings, replace(variation, wide=needs_wide(code))
        if settings.clock == "wall":
            return self._attempt(variation, task, code, settings)
        settings = msgspec.structs.replace(settings, timeout_s=settings.timeout_s / shards)
        run = self._attempt(variation, task, code, settings)
        # A suspended machine or a stopped process ends a program that way too.
        return self._attempt(variation, task, code, settings) if _ended_by_elapsed_time(run) else run

    def _attempt(
        self, variation: Variation, task: ProgramTask, code: str, settings: EvaluationSettings
    ) -> Run:
        for _ in range(_ATTEMPTS):
            try:
                return run_candidate(self._server(variation), task, code, settings)
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


def _ended_by_elapsed_time(run: Run) -> bool:
    return run.isolation is Isolation.TIMEOUT and run.detail in BY_ELAPSED_TIME


def run_sharded(
    take: Callable[[], AbstractContextManager[Slot]],
    threads: ThreadPoolExecutor,
    task: ProgramTask,
    code: str,
    settings: EvaluationSettings,
) -> Run:
    """Run a program on the instances of a task, dealt out to as many shards as there are slots.

    Every shard takes a slot of its own. By elapsed time their clocks start together where all are free, so
    that one limit holds for all instances. By processor time each shard has its share of the limit, and where
    one ends otherwise than well, a run of all instances one after another says how the program ends, so that
    the slots have no say in it. Raises SandboxError for a fault of the sandbox, once every shard has ended.
    """
    count = min(settings.slots, len(task.instances))

    def run_shard(shard: ProgramTask) -> Run:
        with take() as slot:
            return slot.run(shard, code, count)

    if count == 1:
        return run_shard(task)
    shards = [replace(task, instances=task.instances[start::count]) for start in range(count)]
    running = [threads.submit(run_shard, shard) for shard in shards]
    wait(running)
    run = merge_shards([future.result() for future in running])
    if run.isolation is not Isolation.OK and settings.clock == "processor":
        with take() as slot:
            return slot.run(task, code)
    return run


def merge_shards(runs: Sequence[Run]) -> Run:
    """Merge the runs of shards into one: their results in the order of the instances, or the first failure.

    A kill from outside counts last, because it says nothing about the program. Processor seconds add up.
    """
    cpu_s, wall_s = sum(run.cpu_s for run in runs), max(run.wall_s for run in runs)
    failed = [run for run in runs if run.isolation is not Isolation.OK]
    if failed:
        outcome = min(failed, key=lambda run: run.isolation is Isolation.KILLED)
        return replace(outcome, cpu_s=cpu_s, wall_s=wall_s)
    order = sorted((place, shard) for shard, run in enumerate(runs) for place in range(len(run.scores)))
    scores = tuple(runs[shard].scores[place] for place, shard in order)
    decisions = tuple(runs[shard].decisions[place] for place, shard in order)
    return replace(runs[0], scores=scores, decisions=decisions, cpu_s=cpu_s, wall_s=wall_s)

"""A checkpoint's answers in a process of its own, whose end gives the card back.

vLLM 0.7.3 keeps its share of the card after the last reference to an engine is gone, so that a second engine
in the same process finds no room.
"""

import os
import signal
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection

from search_to_signal.base.errors import RunFailedError, S2SError
from search_to_signal.base.processes import end_with_parent
from search_to_signal.base.progress import Progress
from search_to_signal.layers.probe.answers import Barriers, ProbeTask


@dataclass(frozen=True)
class _Relay:
    """Sends what a process reports to the one that started it."""

    to: Connection

    def update(self, task: str, done: int, total: int, note: str = "") -> None:
        self.to.send(("update", task, done, total, note))

    def say(self, line: str) -> None:
        self.to.send(("say", line))


def write_answers_apart(task: ProbeTask, progress: Progress) -> Barriers:
    """Do as ``write_answers`` in a new process, and raise what it raises there.

    Raises RunFailedError where the process ends without an answer; it ends with this one in any case.
    """
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, os.getpid(), task))
    process.start()
    sender.close()
    try:
        barriers = _received(receiver, progress)
        process.join()
    finally:
        process.terminate()
        process.join()
    if barriers is None:
        raise RunFailedError(
            f"the process that answers for checkpoint {task.checkpoint.name} ended with exit code "
            f"{process.exitcode} before it was done: see what it printed, and go on with --resume"
        )
    return barriers


def _received(receiver: Connection, progress: Progress) -> Barriers | None:
    """Pass reports on until the process ends; None where it ends without a result."""
    while True:
        try:
            kind, *message = receiver.recv()
        except EOFError:
            return None
        if kind == "update":
            progress.update(*message)
        elif kind == "say":
            progress.say(*message)
        elif kind == "failed":
            raise message[0]
        else:
            barriers: Barriers = message[0]
            return barriers


def _answer(to: Connection, parent: int, task: ProbeTask) -> None:
    # Ctrl-C is for the process that started this one, which then ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)
    from search_to_signal.layers.probe.answers import write_answers

    try:
        barriers = write_answers(task, _Relay(to))
    except S2SError as error:
        to.send(("failed", error))
    else:
        to.send(("done", barriers))

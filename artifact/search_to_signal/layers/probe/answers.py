"""The completions of one checkpoint for the prompts of the bank, with their evaluations."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from search_to_signal.base.errors import RecordError, RunFailedError, S2SError
from search_to_signal.base.processes import end_with_parent, keep_freed_memory
from search_to_signal.base.progress import Progress
from search_to_signal.base.seeding import derive_seed
from search_to_signal.models.base import Generation, Generator
from search_to_signal.models.device import memory_errors, prepare_processor
from search_to_signal.problems import get_problem
from search_to_signal.records.files import RecordWriter
from search_to_signal.records.probe import BankPrompt, Checkpoint, ProbeRecord
from search_to_signal.run.config import ADAPTER, RunConfig
from search_to_signal.run.group import EvaluatedCompletion, evaluate_group, evaluation_kind
from search_to_signal.run.learning import base_model, load_stored_adapter, open_run_generator
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.programs import sha256_text


@dataclass(frozen=True)
class ProbeTask:
    """The prompts of ``bank`` for a checkpoint, whose adapter lies in ``cohort``; records go to ``file``."""

    config: RunConfig
    checkpoint: Checkpoint
    cohort: Path
    bank: Sequence[BankPrompt]
    file: Path


Barriers = dict[str, str | bool]
"""The isolation barriers that were in force while answers were evaluated."""


def load(task: ProbeTask, scratch: Path) -> Generator:
    """Return a generator that samples with the task's checkpoint, newly loaded from files."""
    config, checkpoint = task.config, task.checkpoint
    generator = open_run_generator(config, config.generation, scratch)
    if checkpoint.adapter_sha256 is not None:
        adapter, base = task.cohort / checkpoint.name / ADAPTER, base_model(config, generator)
        load_stored_adapter(adapter, checkpoint.adapter_sha256, base, generator)
    return generator


def _records(
    name: str, prompt: int, generation: Generation, evaluated: Sequence[EvaluatedCompletion]
) -> Iterator[ProbeRecord]:
    for position, item in enumerate(evaluated):
        yield ProbeRecord(
            checkpoint=name,
            prompt=prompt,
            position=position,
            outcome=item.outcome,
            detail=item.detail,
            score=item.score,
            evaluation=evaluation_kind(item),
            response_sha256=sha256_text(item.completion.text),
            program_sha256=item.program,
            prompt_tokens=generation.prompt_tokens(position),
            completion_tokens=item.completion.tokens,
            truncated=item.completion.truncated,
            text=item.completion.text,
        )


@memory_errors("the probe's answers")
def write_answers(task: ProbeTask, progress: Progress) -> Barriers:
    """Write the records of a task to its file; returns the isolation barriers that were in force.

    Model and evaluation pool are new, and sampling seeds depend on the prompt's number alone, so records do
    not depend on the checkpoints that were probed before. Raises RecordError when a rendered prompt differs
    from the recorded one.
    """
    config, name, bank = task.config, task.checkpoint.name, task.bank
    progress.update(f"probe/{name}", 0, len(bank), "starting")
    keep_freed_memory()
    prepare_processor(config.threads)
    unfinished = task.file.with_suffix(".partial")
    unfinished.unlink(missing_ok=True)
    problem = get_problem(config.problem)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="s2s-")))
        generator = load(task, scratch)
        pool = stack.enter_context(EvaluationPool(problem, config.split, config.evaluation))
        writer = stack.enter_context(RecordWriter(unfinished))
        for done, entry in enumerate(bank, start=1):
            generation = generator.generate(entry, derive_seed(config.seed, "probe", entry.prompt))
            if sha256_text(generation.prompt) != entry.prompt_sha256:
                raise RecordError(
                    f"prompt {entry.prompt} of the bank is not the one that {entry.run} recorded"
                )
            evaluated = evaluate_group(generation.completions, pool, config.reading)
            for record in _records(name, entry.prompt, generation, evaluated):
                writer.write(record)
            progress.update(f"probe/{name}", done, len(bank))
        isolation = dict(pool.barriers())
    unfinished.replace(task.file)
    return isolation


# The same in a process of its own, whose end gives the card back: vLLM 0.7.3 keeps its share of the card when
# the last reference to an engine is gone, so that a second engine in the same process finds no room.


@dataclass(frozen=True)
class _Relay:
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
            f"the process that answers for checkpoint {task.checkpoint.name} failed with exit code "
            f"{process.exitcode}: read what it printed, and go on with --resume"
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
    try:
        barriers = write_answers(task, _Relay(to))
    except S2SError as error:
        to.send(("failed", error))
    else:
        to.send(("done", barriers))

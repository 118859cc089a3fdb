"""One run in this process: from a configuration, or where it was stopped, to a checksummed directory."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from search_to_signal.evaluation.pool import EvaluationPool
from search_to_signal.generators.loopback import reachable
from search_to_signal.generators.opening import open_generator
from search_to_signal.hosts import host_errors, open_host
from search_to_signal.learner.device import memory_errors, prepare_processor
from search_to_signal.loop.directory import finish, lock_directory, refuse_occupied
from search_to_signal.loop.learning import begin_restart, begin_training, open_run_generator
from search_to_signal.loop.live_loop import (
    Live,
    Parts,
    Position,
    can_replay_behind,
    run_live,
    starting_position,
)
from search_to_signal.loop.new_manifest import record_interruption
from search_to_signal.loop.record_files import read_timing, run_files
from search_to_signal.loop.resuming import (
    ResumePoint,
    begin_again_where_changed,
    known_evaluations,
    open_run,
    refuse_changed_credit,
    refuse_changed_problem,
    replayed_state,
)
from search_to_signal.loop.retraining import remake_learner
from search_to_signal.problems import get_problem
from search_to_signal.profiles.run_config import RunConfig
from search_to_signal.progress import Progress
from search_to_signal.provenance.checksums import SUMS
from search_to_signal.records.database import write_database
from search_to_signal.records.files import storage_errors
from search_to_signal.records.manifest import Manifest
from search_to_signal.runtime import keep_freed_memory
from search_to_signal.search.host import HasDatabase, database_of
from search_to_signal.stopping import StopRequest

Assemble = Callable[[RunConfig], AbstractContextManager[Parts]]


@contextmanager
def assembled(config: RunConfig) -> Iterator[Parts]:
    """The model, the learner and the evaluation workers of a run, before its first step."""
    problem, host = get_problem(config.problem), open_host(config.host, config.host_setup)
    with ExitStack() as stack:
        settings = stack.enter_context(reachable(config.generation, config.model, config.base.loading))
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="s2s-")))
        pool = stack.enter_context(EvaluationPool(problem, config.split, config.evaluation))
        if settings.backend == "api" and not config.trained:
            yield Parts(problem, host, open_generator(settings, config.model, scratch), pool, None)
            return
        generator = open_run_generator(config, settings, scratch)
        training = begin_training(config, generator) if config.trained else None
        yield Parts(problem, host, generator, pool, training)


@memory_errors("this run")
def run(
    config: RunConfig,
    directory: Path,
    progress: Progress,
    *,
    resume: bool = False,
    checkpoint_every: int = 1,
    wait_s: float = 0.0,
    assemble: Assemble = assembled,
    plan: str | None = None,
    stop: StopRequest | None = None,
) -> Manifest:
    """Run into an empty directory; its manifest says ``running`` until everything else is on disk.

    With ``resume`` an unfinished run in it goes on from its last checkpoint, and its record files will be
    those of an undisturbed run, byte for byte; a finished one stays as it is. A run of a ``plan``, whose
    SHA-256 its manifest holds, begins again where another version of the source began it. A ``stop`` ends it
    with KeyboardInterrupt after the group that it is in; nothing of that is lost.

    Raises RunDirectoryError, before anything is touched, for a directory that holds something else, and when
    another process still writes it after ``wait_s`` seconds; RecordError when its records were damaged;
    ConfigError where a card has too little memory.
    """
    if plan is not None:
        begin_again_where_changed(directory, config, plan)
    refuse_occupied(directory, resume)
    keep_freed_memory()
    prepare_processor(config.threads)
    then = "give the same command again" if resume else "go on with --resume"
    with storage_errors(directory, then), lock_directory(directory, wait_s) as descriptor:
        refuse_occupied(directory, resume)
        manifest, point = open_run(directory, descriptor, config, plan or msgspec.UNSET)
        if manifest.status == "running":
            paired = config.trained and manifest.of_rule.pairs
            with assemble(config) as parts, run_files(directory, point and point.marks, paired) as files:
                if point is not None:
                    manifest = record_interruption(directory, manifest)
                restarted = begin_restart(config, directory, parts.generator)
                manifest = msgspec.structs.replace(manifest, initial_adapter_sha256=restarted)
                live = Live(config, *parts, files, checkpoint_every, can_replay_behind(config))
                state = run_live(live, _position(live, point, progress), progress, stop)
                if isinstance(live.host, HasDatabase):
                    with host_errors(config.host):
                        database = database_of(live.host, state)
                    write_database(directory, database)
                manifest = _completed(manifest, live)
        elif (directory / SUMS).exists():
            return manifest
        finish(directory, manifest)
    return manifest


def _position(live: Live, point: ResumePoint | None, progress: Progress) -> Position:
    directory, training = live.files.directory, live.training
    if point is None or not point.marks["heuristics"].bytes:
        return starting_position(live)
    if training is not None and point.learner is not None:
        training.restore(point.learner)
    elif training is not None and point.learner_sha256 is not None:
        remake_learner(training, live.config, directory, point.learner_sha256, progress)
    if training is not None:
        refuse_changed_credit(directory, training.mapping, training.normalizer, point.done)
    known = known_evaluations(directory)
    refuse_changed_problem(directory, live.problem, known, live.pool.key)
    live.pool.remember(known)
    return Position(replayed_state(directory, live.host, live.config, point.done), point.done)


def _completed(manifest: Manifest, live: Live) -> Manifest:
    training = live.training
    return msgspec.structs.replace(
        manifest,
        status="complete",
        isolation=dict(live.pool.barriers()),
        initial_adapter_sha256=training.initial_sha256 if training else manifest.initial_adapter_sha256,
        final_adapter_sha256=training.sha256 if training else None,
        timing=read_timing(live.files.directory),
    )

"""A live run: search and learner side by side on one stream of evaluated candidates."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.base.processes import StopRequest, keep_freed_memory
from search_to_signal.base.progress import Progress, counted
from search_to_signal.base.seeding import derive_seed, stream
from search_to_signal.credit.assignment import assign_credit
from search_to_signal.learner import get_rule
from search_to_signal.learner.base import reads_records
from search_to_signal.models.base import Generation, Generator, StreamsCompletions
from search_to_signal.models.device import memory_errors, prepare_processor
from search_to_signal.models.opening import generator_errors, open_generator
from search_to_signal.models.serving import reachable
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import Problem
from search_to_signal.records import schema
from search_to_signal.records.checksums import SUMS
from search_to_signal.records.files import RunFiles, storage_errors
from search_to_signal.records.manifest import Manifest, write_database, write_manifest
from search_to_signal.run import learning, resuming
from search_to_signal.run.clock import StepClock
from search_to_signal.run.config import RunConfig
from search_to_signal.run.directory import (
    EvaluationNote,
    finish,
    lock_directory,
    read_timing,
    refuse_occupied,
    run_files,
    save_checkpoint,
)
from search_to_signal.run.group import (
    EvaluatedCompletion,
    completion_records,
    evaluate_group,
    generation_record,
    nondeterministic_programs,
    replay_admitted,
    replayed_record,
    step_record,
)
from search_to_signal.run.replayed import final_population
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.programs import Proposal, parse
from search_to_signal.search.host import (
    HasDatabase,
    Host,
    Transition,
    begin,
    database_of,
    exposures_of,
    update_search,
    wants_instance_scores,
)
from search_to_signal.search.hosts import host_errors, open_host
from search_to_signal.search.member import heuristic_record, seed_member


class Parts(NamedTuple):
    """What a run works with; ``training`` is None when frozen."""

    problem: Problem
    host: Host
    generator: Generator
    pool: EvaluationPool
    training: learning.Training | None


class Position(NamedTuple):
    """Between two groups: the host's state, and how many groups are done."""

    state: Any
    done: int


@dataclass(frozen=True)
class Live:
    """The parts of a run that stay while its state moves, and how many groups apart its checkpoints are.

    ``replays_behind``: what a group admitted is replayed while the next ones go on, not before.
    """

    config: RunConfig
    problem: Problem
    host: Host
    generator: Generator
    pool: EvaluationPool
    training: learning.Training | None
    files: RunFiles
    checkpoint_every: int = 1
    replays_behind: bool = False


class LiveGroup(NamedTuple):
    """A group that search and learner have taken; ``replayed`` is what it evaluated, after the replay."""

    state: Any
    step: schema.StepRecord
    transition: Transition
    generation: Generation
    records: list[schema.CompletionRecord]
    pairs: schema.PreferenceRecord | None
    replayed: "Future[list[EvaluatedCompletion]]"


def can_replay_behind(config: RunConfig) -> bool:
    """Whether a replay may go on during the next groups; no byte of a record depends on it.

    On a card, because a processor would be shared. A replay changes what a record says of the evaluation, no
    outcome and no score (D20), unless behaviour decides what is random: search and mapping need not wait, nor
    a rule that reads no record. By elapsed time a program has the machine to itself.
    """
    waits = config.trained and reads_records(get_rule(config.learning_rule))
    limits = config.evaluation
    return config.on_card and not waits and limits.clock == "processor" and limits.randomness == "text"


_STOPPING = "stopping after this group"
# Groups that wait for their replays, which go on side by side. A program is replayed on one slot, and a slow
# one for as long as several groups take.
_MOST_UNWRITTEN = 8
_SEED_REMEDIES = {
    Isolation.TIMEOUT: "raise evaluation.timeout_s in the profile",
    Isolation.MEMORY: "raise evaluation.memory_mb in the profile",
}


def starting_population(config: RunConfig, directory: Path) -> tuple[schema.HeuristicRecord, ...]:
    """The population that a run starts from, besides the seed: its parent's last archive, if configured.

    Raises RunDirectoryError when that is not the archive that the configuration was made of.
    """
    parent = config.parent
    if parent is None or parent.archive_sha256 is msgspec.UNSET:
        return ()
    population = final_population(directory / parent.run, config.search)
    if schema.population_sha256(population) != parent.archive_sha256:
        raise RunDirectoryError(
            f"{directory / parent.run} does not end with the archive that this run has to begin with: "
            "restore it"
        )
    return population


def starting_position(live: Live) -> Position:
    """Before the first group: the evaluated seed heuristic, and a population where the run was given one."""
    seed = live.problem.seed
    (evaluation,) = live.pool.evaluate([seed.code])
    if evaluation.score is None:
        remedy = _SEED_REMEDIES.get(evaluation.isolation, "fix the problem's seed heuristic or its score")
        raise ConfigError(
            f"the seed heuristic of {live.problem.name} failed ({evaluation.isolation.value}: "
            f"{evaluation.detail}): {remedy}"
        )
    scores = evaluation.per_instance if wants_instance_scores(live.host) else ()
    member = seed_member(seed, evaluation.score, scores)
    population = starting_population(live.config, live.files.directory)
    with host_errors(live.config.host):
        state = begin(live.host, member, population)
    for record in (heuristic_record(member), *population):
        live.files.heuristics.write(record)
    _checkpoint(live, 0)
    return Position(state, 0)


def live_step(live: Live, state: Any, step: int, clock: StepClock, replays: Executor) -> LiveGroup:
    """One round of the paper's loop: propose, sample, evaluate, update the search, train the model."""
    config, host = live.config, live.host
    with host_errors(config.host):
        request = host.propose(state, stream(config.seed, "search", step))
    with clock.phase("generation"), generator_errors(config.generation.backend):
        generation = live.generator.generate(request.prompt, derive_seed(config.seed, "sample", step))
    with clock.phase("evaluation"):
        evaluated = evaluate_group(
            generation.completions, live.pool, config.reading, wants_instance_scores(host)
        )
    results = [item.evaluated for item in evaluated]
    with host_errors(config.host):
        transition = update_search(host, request, results, step)
        exposures = exposures_of(host, request, results)
    replay = partial(replay_admitted, evaluated, transition.events, live.pool)
    if live.replays_behind:
        replayed = replays.submit(replay)
    else:
        with clock.phase("evaluation"):
            evaluated = replay()
        replayed = Future()
        replayed.set_result(evaluated)
    records = completion_records(
        request, step, config.problem, generation, evaluated, transition.events, exposures
    )
    result = None
    if live.training is not None:
        records = assign_credit(records, live.training.mapping, live.training.normalizer)
        with clock.phase("update"):
            result = live.training.update(generation, records)
    mapping = None if result is None else config.mapping
    record = step_record(request, transition, generation, records, mapping, result)
    pairs = result.pairs if result is not None else None
    return LiveGroup(transition.state, record, transition, generation, records, pairs, replayed)


def begin_evaluation(live: Live, text: str) -> None:
    """Begin to evaluate a completion while others of its group are sampled; its group asks for it later."""
    parsed = parse(text, live.config.reading)
    if isinstance(parsed, Proposal):
        live.pool.begin(parsed.code)


def run_live(live: Live, start: Position, progress: Progress, stop: StopRequest | None = None) -> Any:
    """Run every group that is not done yet; returns the host's final state.

    A ``stop`` that is asked for ends it with KeyboardInterrupt after a group, whose checkpoint is written.
    """
    state, clock, groups = start.state, StepClock(), live.config.groups
    stop = stop or StopRequest()
    if isinstance(live.generator, StreamsCompletions):
        live.generator.stream_to(partial(begin_evaluation, live))
    replays = ThreadPoolExecutor(_MOST_UNWRITTEN + 1, thread_name_prefix="replay")
    unwritten, found = deque[LiveGroup](), dict[str, str]()
    try:
        for done in range(start.done + 1, groups + 1):
            stop.tell = partial(progress.update, live.config.name, done - 1, groups, _STOPPING)
            group = live_step(live, state, done - 1, clock, replays)
            unwritten.append(group)
            # The last group too: what a complete run says has to be on disk before it says it is complete.
            is_checkpoint = stop.asked or done % live.checkpoint_every == 0 or done == groups
            most = 0 if is_checkpoint else _MOST_UNWRITTEN
            while unwritten and (len(unwritten) > most or unwritten[0].replayed.done()):
                found |= write_group(live, unwritten.popleft(), found, clock)
            live.files.timings.write(clock.timing(done - 1))
            if is_checkpoint:
                _checkpoint(live, done)
            state = group.state
            progress.update(live.config.name, done, groups, _note(group.step))
            if group.step.not_finite is True:
                progress.say(f"step {done - 1}: the gradient is not finite, so the adapter was not updated")
            # Where a stop is asked for too late for a checkpoint here, it is after the next group.
            if stop.asked and is_checkpoint and done < groups:
                after = f"after {done} of {counted(groups, 'group')}"
                progress.say(f"stopped {after}")
                stop.end(after)
    finally:
        stop.tell = None
        # A run that is stopped does not wait for a program.
        replays.shutdown(wait=False, cancel_futures=True)
    if live.training is not None:
        live.training.save(live.files.directory / "adapter")
    return state


def write_group(live: Live, group: LiveGroup, found: Mapping[str, str], clock: StepClock) -> dict[str, str]:
    """Write the records of a group, as soon as what it admitted has been replayed.

    ``found`` are the programs that decided otherwise in the replays of groups before, each with the detail of
    that, which holds for their repeats. Returns those of this group.
    """
    with clock.phase("evaluation"):
        replayed = group.replayed.result()
    for record, item in zip(group.records, replayed, strict=True):
        live.files.completions.write(replayed_record(record, item, found))
    live.files.generations.write(generation_record(group.step.step, group.generation))
    for member in group.transition.admitted:
        live.files.heuristics.write(heuristic_record(member))
    live.files.steps.write(group.step)
    if group.pairs is not None and live.files.preferences is not None:
        live.files.preferences.write(group.pairs)
    return nondeterministic_programs(replayed)


def _note(step: schema.StepRecord) -> str:
    best = [] if step.frontier_after is None else [f"best {step.frontier_after:.4f}"]
    cut = [f"prompt cut by {step.prompt_tokens_cut} tokens"] if step.prompt_tokens_cut else []
    dropped = ["no advantage, drawn again"] if step.dropped else []
    return " ".join([*best, f"archive {step.archive_size}", *cut, *dropped])


def _checkpoint(live: Live, done: int) -> None:
    for key, run in live.pool.new_runs().items():
        live.files.evaluations.write(EvaluationNote(key, run))
    # Before its first step a learner is what the configuration makes it.
    save_checkpoint(live.files, done, live.training.learner if live.training and done else None)


# One run in this process: from a configuration, or where it was stopped, to a checksummed directory.

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
        generator = learning.open_run_generator(config, settings, scratch)
        training = learning.begin_training(config, generator) if config.trained else None
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
        resuming.begin_again_where_changed(directory, config, plan)
    refuse_occupied(directory, resume)
    keep_freed_memory()
    prepare_processor(config.threads)
    then = "give the same command again" if resume else "go on with --resume"
    with storage_errors(directory, then), lock_directory(directory, wait_s) as descriptor:
        refuse_occupied(directory, resume)
        manifest, point = resuming.open_run(directory, descriptor, config, plan or msgspec.UNSET)
        if manifest.status == "running":
            paired = config.trained and manifest.of_rule.pairs
            with assemble(config) as parts, run_files(directory, point and point.marks, paired) as files:
                if point is not None:
                    more = manifest.interruptions + 1
                    manifest = msgspec.structs.replace(manifest, interruptions=more)
                    write_manifest(directory, manifest)
                restarted = learning.begin_restart(config, directory, parts.generator)
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


def _position(live: Live, point: resuming.ResumePoint | None, progress: Progress) -> Position:
    directory, training = live.files.directory, live.training
    if point is None or not point.marks["heuristics"].bytes:
        return starting_position(live)
    if training is not None and point.learner is not None:
        training.restore(point.learner)
    elif training is not None and point.learner_sha256 is not None:
        learning.remake_learner(training, live.config, directory, point.learner_sha256, progress)
    if training is not None:
        resuming.refuse_changed_credit(directory, training.mapping, training.normalizer, point.done)
    known = resuming.known_evaluations(directory)
    resuming.refuse_changed_problem(directory, live.problem, known, live.pool.key)
    live.pool.remember(known)
    return Position(resuming.replayed_state(directory, live.host, live.config, point.done), point.done)


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

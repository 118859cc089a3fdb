"""A live run: search and learner side by side on one stream of evaluated candidates."""

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from search_to_signal.errors import ConfigError, RunDirectoryError
from search_to_signal.evaluation.outcomes import Isolation
from search_to_signal.evaluation.pool import EvaluationPool
from search_to_signal.generators.base import Generation, Generator, StreamsCompletions
from search_to_signal.hosts import host_errors
from search_to_signal.hosts.rewards_and_advantages import assign_credit
from search_to_signal.learner import get_rule
from search_to_signal.learner.base import reads_records
from search_to_signal.loop.checkpoints import save_checkpoint
from search_to_signal.loop.clock import StepClock
from search_to_signal.loop.group import (
    EvaluatedCompletion,
    completion_records,
    evaluate_group,
    generation_record,
    nondeterministic_programs,
    replay_admitted,
    replayed_record,
    step_record,
)
from search_to_signal.loop.learning import Training
from search_to_signal.loop.record_files import EvaluationNote
from search_to_signal.loop.recorded import final_population
from search_to_signal.problems.base import Problem
from search_to_signal.profiles.run_config import RunConfig
from search_to_signal.programs.parsing import Proposal, parse
from search_to_signal.progress import Progress, counted
from search_to_signal.records.population import population_sha256
from search_to_signal.records.preferences import PreferenceRecord
from search_to_signal.records.schema import CompletionRecord, HeuristicRecord, StepRecord
from search_to_signal.records.writer import RunFiles
from search_to_signal.search.host import (
    Host,
    Transition,
    begin,
    exposures_of,
    update_search,
    wants_instance_scores,
)
from search_to_signal.search.member import heuristic_record, seed_member
from search_to_signal.seeding import derive_seed, stream
from search_to_signal.stopping import StopRequest


class Parts(NamedTuple):
    """What a run works with; ``training`` is None when frozen."""

    problem: Problem
    host: Host
    generator: Generator
    pool: EvaluationPool
    training: Training | None


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
    training: Training | None
    files: RunFiles
    checkpoint_every: int = 1
    replays_behind: bool = False


class LiveGroup(NamedTuple):
    """A group that search and learner have taken; ``replayed`` is what it evaluated, after the replay."""

    state: Any
    step: StepRecord
    transition: Transition
    generation: Generation
    records: list[CompletionRecord]
    pairs: PreferenceRecord | None
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


def starting_population(config: RunConfig, directory: Path) -> tuple[HeuristicRecord, ...]:
    """The population that a run starts from, besides the seed: its parent's last archive, if configured.

    Raises RunDirectoryError when that is not the archive that the configuration was made of.
    """
    parent = config.parent
    if parent is None or parent.archive_sha256 is msgspec.UNSET:
        return ()
    population = final_population(directory / parent.run, config.search)
    if population_sha256(population) != parent.archive_sha256:
        raise RunDirectoryError(
            f"{directory / parent.run} ends with another archive than this run is to begin with: restore it"
        )
    return population


def starting_position(live: Live) -> Position:
    """Before the first group: the evaluated seed heuristic, and a population where the run was given one."""
    seed = live.problem.seed
    (evaluation,) = live.pool.evaluate([seed.code])
    if evaluation.score is None:
        remedy = _SEED_REMEDIES.get(evaluation.isolation, "mend the problem's seed heuristic or its score")
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
    with clock.phase("generation"):
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
    record = step_record(request, transition, generation, records, config, result)
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
                progress.say(f"step {done - 1}: the gradient is not finite, the adapter stays as it is")
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


def _note(step: StepRecord) -> str:
    best = [] if step.frontier_after is None else [f"best {step.frontier_after:.4f}"]
    cut = [f"prompt cut by {step.prompt_tokens_cut} tokens"] if step.prompt_tokens_cut else []
    return " ".join([*best, f"archive {step.archive_size}", *cut])


def _checkpoint(live: Live, done: int) -> None:
    for key, run in live.pool.new_runs().items():
        live.files.evaluations.write(EvaluationNote(key, run))
    # Before its first step a learner is what the configuration makes it.
    save_checkpoint(live.files, done, live.training.learner if live.training and done else None)

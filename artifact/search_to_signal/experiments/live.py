"""A live run: search and learner side by side on one stream of evaluated candidates."""

from dataclasses import dataclass
from typing import NamedTuple

from search_to_signal.errors import ConfigError
from search_to_signal.evaluation.outcomes import Isolation
from search_to_signal.evaluation.pool import EvaluationPool
from search_to_signal.experiments.clock import StepClock
from search_to_signal.experiments.configuration import RunConfig
from search_to_signal.experiments.group import completion_records, confirm, judge
from search_to_signal.experiments.learning import Training
from search_to_signal.experiments.run_files import EvaluationNote, RunFiles, save_checkpoint
from search_to_signal.experiments.step_records import generation_record, step_record
from search_to_signal.generators.base import Generation, Generator
from search_to_signal.hosts.credit import credited
from search_to_signal.problems.base import Problem
from search_to_signal.progress import Progress
from search_to_signal.records.schema import CompletionRecord, StepRecord
from search_to_signal.search.exposure import exposures
from search_to_signal.search.planning import Draw, plan_round, prompt_of
from search_to_signal.search.prompts import Prompt
from search_to_signal.search.state import SearchState, heuristic_record, initial_state
from search_to_signal.search.transition import transition
from search_to_signal.seeding import derive_seed, stream


class Parts(NamedTuple):
    """What a run works with; ``training`` is None when frozen."""

    problem: Problem
    generator: Generator
    pool: EvaluationPool
    training: Training | None


class Position(NamedTuple):
    """Between two groups: the search state, and how many groups are done."""

    state: SearchState
    done: int


@dataclass(frozen=True)
class Live:
    """The parts of a run that stay while its state moves, and how many groups apart its checkpoints are."""

    config: RunConfig
    problem: Problem
    generator: Generator
    pool: EvaluationPool
    training: Training | None
    files: RunFiles
    checkpoint_every: int = 1

    def prompt(self, draw: Draw) -> Prompt:
        """The prompt of a draw."""
        return prompt_of(self.problem, draw, self.config.search.prompts)


_SEED_REMEDIES = {
    Isolation.TIMEOUT: "raise evaluation.timeout_s in the profile",
    Isolation.MEMORY: "raise evaluation.memory_mb in the profile",
}


def starting_position(live: Live) -> Position:
    """Before the first group: the evaluated seed heuristic."""
    seed = live.problem.seed
    (evaluation,) = live.pool.evaluate([seed.code])
    if evaluation.score is None:
        remedy = _SEED_REMEDIES.get(evaluation.isolation, "mend the problem's seed heuristic or its score")
        raise ConfigError(
            f"the seed heuristic of {live.problem.name} failed ({evaluation.isolation.value}: "
            f"{evaluation.detail}): {remedy}"
        )
    state = initial_state(seed, evaluation.score)
    live.files.heuristics.write(heuristic_record(state.archive[0]))
    _checkpoint(live, 0)
    return Position(state, 0)


def live_step(live: Live, state: SearchState, step: int, clock: StepClock) -> tuple[SearchState, StepRecord]:
    """One round of the paper's loop: draw, generate, evaluate, move the search, teach the model."""
    config = live.config
    rng = stream(config.seed, "search", step)
    draw = plan_round(state, rng, config.search, lambda d: live.prompt(d).user)
    with clock.phase("generation"):
        generation = live.generator.generate(live.prompt(draw), derive_seed(config.seed, "sample", step))
    with clock.phase("evaluation"):
        judged = judge(generation.completions, live.pool)
    evaluated = [item.evaluated for item in judged]
    after, events = transition(
        draw.state, evaluated, operator=draw.operator, step=step, settings=config.search
    )
    with clock.phase("evaluation"):
        judged = confirm(judged, events, live.pool)
    reach = exposures(draw.state, evaluated, config.search)
    records = completion_records(draw, step, config.problem, generation, judged, events, reach)
    result = None
    if live.training is not None:
        records = credited(records, live.training.mapping)
        with clock.phase("update"):
            result = live.training.update(generation, records)
    played = step_record(draw, after, generation, records, config, result)
    _write(live, draw, after, generation, records, played)
    live.files.timings.write(clock.timing(step))
    return after, played


def run_live(live: Live, start: Position, progress: Progress) -> SearchState:
    """Run every group that is not done yet; returns the final search state."""
    state, clock, groups = start.state, StepClock(), live.config.groups
    for done in range(start.done + 1, groups + 1):
        state, played = live_step(live, state, done - 1, clock)
        # The last group too: what a complete run says has to be on disk before it says it is complete.
        if done % live.checkpoint_every == 0 or done == groups:
            _checkpoint(live, done)
        progress.update(live.config.name, done, groups, _note(played))
    if live.training is not None:
        live.training.save(live.files.directory / "adapter")
    return state


def _note(step: StepRecord) -> str:
    best = [] if step.frontier_after is None else [f"best {step.frontier_after:.4f}"]
    cut = [f"prompt cut by {step.prompt_tokens_cut} tokens"] if step.prompt_tokens_cut else []
    return " ".join([*best, f"archive {step.archive_size}", *cut])


def _checkpoint(live: Live, done: int) -> None:
    for key, run in live.pool.news().items():
        live.files.evaluations.write(EvaluationNote(key, run))
    # Before its first step a learner is what the configuration makes it.
    save_checkpoint(live.files, done, live.training.learner if live.training and done else None)


def _write(
    live: Live,
    draw: Draw,
    after: SearchState,
    generation: Generation,
    records: list[CompletionRecord],
    played: StepRecord,
) -> None:
    for record in records:
        live.files.completions.write(record)
    live.files.generations.write(generation_record(records[0].step, generation))
    for member in after.archive[len(draw.state.archive) :]:
        live.files.heuristics.write(heuristic_record(member))
    live.files.steps.write(played)

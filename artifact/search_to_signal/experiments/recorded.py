"""A recorded search, round by round: what a run that goes on and a bank of its prompts both start from."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from search_to_signal.errors import RecordError
from search_to_signal.problems import get_problem
from search_to_signal.records.reader import GENERATIONS, HEURISTICS, STEPS, read_groups, read_records
from search_to_signal.records.schema import GenerationRecord, HeuristicRecord, StepRecord
from search_to_signal.search.replay import Round, replay
from search_to_signal.search.settings import SearchSettings
from search_to_signal.search.state import SearchState, initial_state


def recorded_rounds(directory: Path) -> Iterator[Round]:
    """The rounds of a run directory in order; raises RecordError for a line that is unreadable or missing."""
    steps = read_records(directory / STEPS, StepRecord)
    generations = read_records(directory / GENERATIONS, GenerationRecord)
    for step, group, generation in zip_longest(steps, read_groups(directory), generations):
        if not (step and group and generation and len(group) == len(generation.completions)):
            raise RecordError(
                f"{directory} does not hold a step, its completions and their texts throughout: restore it"
            )
        yield Round(step.step, step.operator, step.collapsed, group, generation.completions)


def recorded_states(
    directory: Path, problem: str, settings: SearchSettings
) -> Iterator[tuple[Round, SearchState]]:
    """The rounds of a run directory, each with the search before it; raises RecordError as replay does."""
    seed = next(read_records(directory / HEURISTICS, HeuristicRecord), None)
    if seed is None:
        raise RecordError(f"{directory} holds no seed heuristic: restore it")
    state = initial_state(get_problem(problem).seed, seed.score)
    rounds = list(recorded_rounds(directory))
    for played, after in zip(rounds, replay(state, rounds, settings), strict=True):
        yield played, state
        state = after

"""The parent's side of each dialogue: ask for decisions, check them, score them with the problem."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from search_to_signal.evaluation import frames
from search_to_signal.evaluation.channel import Channel
from search_to_signal.evaluation.outcomes import CandidateError, Isolation
from search_to_signal.problems.base import Array, InfeasibleAnswerError, Instance, Problem

Dialogue = Callable[[Channel, Problem, Sequence[Instance]], Iterator[Array]]


def tours(channel: Channel, problem: Problem, instances: Sequence[Instance]) -> Iterator[Array]:
    """Ask for the visiting order of one instance after the other; int64 arrays of shape (n,)."""
    for instance in instances:
        channel.ask(frames.TOUR, frames.pack_arrays(instance))
        nodes = len(instance["distance"])
        yield np.frombuffer(channel.data(8 * nodes), dtype="<i8")


DIALOGUES: Mapping[str, Dialogue] = MappingProxyType({"tour": tours})


def score(problem: Problem, instance: Instance, answer: Array) -> float:
    """Score one answer; raises CandidateError when it is no solution or has no finite score (D17)."""
    try:
        value = problem.score(instance, answer)
    except InfeasibleAnswerError as error:
        raise CandidateError(Isolation.INVALID_DECISION, frames.printable(str(error))) from error
    if not np.isfinite(value):
        raise CandidateError(Isolation.BAD_OUTPUT, "the score is not finite")
    return value

"""The seed's tour and the best heuristic's on one instance, built once more in isolation, for a picture."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_low
from typing import Any, cast

import numpy as np

from search_to_signal.analysis.results import Results
from search_to_signal.evaluation.pool import EvaluationPool
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.problems import find_problem
from search_to_signal.problems.base import Array, InfeasibleAnswerError, Instance, Problem
from search_to_signal.records.heldout import final_heuristic
from search_to_signal.records.reader import HEURISTICS, read_records
from search_to_signal.records.schema import HeuristicRecord
from search_to_signal.records.tours import TOURS, Tour, Tours, read_tours, write_tours

_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class _Answers:
    """A problem that keeps the answer to each instance of the split, by place."""

    problem: Any
    shown: tuple[Instance, ...]
    answers: dict[int, Array] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)

    def instances(self, split: str) -> tuple[Instance, ...]:
        return self.shown

    def score(self, instance: Instance, answer: Array) -> float:
        place = next(number for number, one in enumerate(self.shown) if one is instance)
        self.answers[place] = answer
        return float(self.problem.score(instance, answer))


def record_tours(results: Path) -> bool:
    """Write two tours of a finished cohort's search; whether there are any: only problems with a map have.

    The best heuristic is that of the best run, the first of equal ones. The instance is that of the median
    gain over the split, so that it shows neither the best nor the worst case.
    """
    runs = Results(results).cohort
    problem, split = find_problem(runs[0].facts.problem), runs[0].facts.split
    if not hasattr(problem, "coordinates") or problem.dialogue != "tour":
        return False
    run = max(runs, key=lambda run: final_heuristic(run.directory).score)
    seed = next(iter(read_records(run.directory / HEURISTICS, HeuristicRecord)))
    tours = [_tours(problem, split, heuristic) for heuristic in (seed, final_heuristic(run.directory))]
    if not all(tours):
        return False
    place = _median_gain(*tours)
    x_y = problem.coordinates(split)[place]
    record = Tours(
        problem=problem.name,
        split=split,
        instance=place,
        run=run.path,
        coordinates=tuple((float(x), float(y)) for x, y in x_y),
        seed=tours[0][place],
        best=tours[1][place],
    )
    write_tours(results, record)
    return True


def _median_gain(seed: list[Tour], best: list[Tour]) -> int:
    """The instance of the lower median gain, the first of equal ones."""
    gains = [
        (after.score - before.score, place)
        for place, (before, after) in enumerate(zip(seed, best, strict=True))
    ]
    return median_low(gains)[1]


def _tours(problem: Problem, split: str, heuristic: HeuristicRecord) -> list[Tour]:
    """The heuristic's tours; none where it does not finish, as on a machine that is much slower."""
    answers = _Answers(problem, problem.instances(split))
    limits = EvaluationSettings(timeout_s=_TIMEOUT_S, replay="off")
    with EvaluationPool(cast(Problem, answers), split, limits) as pool:
        (result,) = pool.evaluate([heuristic.code])
    return [
        Tour(heuristic=heuristic.id, order=tuple(map(int, answers.answers[place])), score=score)
        for place, score in enumerate(result.per_instance)
    ]


def tour_problems(results: Path) -> Iterator[str]:
    """What is wrong with recorded tours: an order that is none, or a score that is not its length."""
    if not (results / TOURS).is_file():
        return
    found = read_tours(results)
    problem = find_problem(found.problem)
    instance = problem.instances(found.split)[found.instance]
    for name, tour in (("seed", found.seed), ("best", found.best)):
        try:
            score = problem.score(instance, np.array(tour.order))
        except InfeasibleAnswerError as error:
            yield f"{TOURS}: {name}: {error}"
            continue
        if score != tour.score:
            yield f"{TOURS}: {name}: the order has score {score!r}, {tour.score!r} is recorded"

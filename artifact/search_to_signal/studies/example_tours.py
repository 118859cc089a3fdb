"""Example tours for a picture: the seed's and the best heuristic's on one instance, built in isolation."""

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

_LIMITS = EvaluationSettings(timeout_s=60.0, replay="off")


@dataclass(frozen=True)
class _RecordingProblem:
    """A problem that records the answer to each instance, by its position in the split."""

    problem: Any
    split_instances: tuple[Instance, ...]
    answers: dict[int, Array] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)

    def instances(self, split: str) -> tuple[Instance, ...]:
        return self.split_instances

    def score(self, instance: Instance, answer: Array) -> float:
        position = next(number for number, other in enumerate(self.split_instances) if other is instance)
        self.answers[position] = answer
        return float(self.problem.score(instance, answer))


def record_tours(results: Path) -> bool:
    """Write two tours of a finished cohort's search; returns False for a problem without coordinates.

    The best heuristic is that of the best run, the first of equal ones. The instance is the one with the
    median gain over the split, so that it is neither the best nor the worst case. False also where a
    heuristic does not finish. Raises RunDirectoryError where the cohort is not complete.
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
    position = _median_gain(*tours)
    coordinates = problem.coordinates(split)[position]
    record = Tours(
        problem=runs[0].facts.problem,
        split=split,
        instance=position,
        run=run.path,
        coordinates=tuple((float(x), float(y)) for x, y in coordinates),
        seed=tours[0][position],
        best=tours[1][position],
    )
    write_tours(results, record)
    return True


def _median_gain(seed: list[Tour], best: list[Tour]) -> int:
    """The position of the instance with the lower median gain, the first of equal ones."""
    gains = [
        (after.score - before.score, position)
        for position, (before, after) in enumerate(zip(seed, best, strict=True))
    ]
    return median_low(gains)[1]


def _tours(problem: Problem, split: str, heuristic: HeuristicRecord) -> list[Tour]:
    """The heuristic's tours; none where it does not finish, for example on a much slower machine."""
    recording = _RecordingProblem(problem, problem.instances(split))
    with EvaluationPool(cast(Problem, recording), split, _LIMITS) as pool:
        (result,) = pool.evaluate([heuristic.code])
    return [
        Tour(heuristic=heuristic.id, order=tuple(map(int, recording.answers[position])), score=score)
        for position, score in enumerate(result.per_instance)
    ]


def tour_problems(results: Path) -> Iterator[str]:
    """Yield recorded tours whose order is no tour, or whose score differs from that of their order."""
    if not (results / TOURS).is_file():
        return
    tours = read_tours(results)
    problem = find_problem(tours.problem)
    instance = problem.instances(tours.split)[tours.instance]
    for name, tour in (("seed", tours.seed), ("best", tours.best)):
        try:
            score = problem.score(instance, np.array(tour.order))
        except InfeasibleAnswerError as error:
            yield f"{TOURS}: {name}: {error}"
            continue
        if score != tour.score:
            yield f"{TOURS}: {name}: the order has score {score!r}, {tour.score!r} is recorded"

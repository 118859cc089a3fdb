"""Programs scored on the held-out TSP instances, in isolation: the field's, and the best ones found."""

from collections.abc import Iterator, Mapping

from search_to_signal.evaluation.pool import EvaluationPool
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import heldout_splits
from search_to_signal.progress import Progress
from search_to_signal.records.heldout import ProgramScores
from search_to_signal.studies.layers.heldout import first_instances

PROBLEM = "tsp"


def score_programs(
    codes: Mapping[str, str], timeout_s: float, count: int | None, progress: Progress, slots: int = 1
) -> Iterator[ProgramScores]:
    """Yield the scores of programs, given by the hash of their text, split by split.

    ``count`` is the number of instances of each split, the first ones; None for all. ``timeout_s`` is the
    processor time of a program on one split, ``slots`` the number of programs that are evaluated at once.
    Raises SandboxError where isolation cannot be had.
    """
    problem, names = get_problem(PROBLEM), list(codes)
    limits = EvaluationSettings(timeout_s=timeout_s, replay="off", slots=slots)
    for split in heldout_splits(problem):
        with EvaluationPool(first_instances(problem, count), split, limits) as pool:
            for start in range(0, len(names), slots):
                batch = names[start : start + slots]
                results = pool.evaluate([codes[sha256] for sha256 in batch])
                progress.update(f"{PROBLEM}/{split}", start + len(batch), len(names))
                for sha256, result in zip(batch, results, strict=True):
                    yield ProgramScores(
                        code_sha256=sha256,
                        split=split,
                        outcome=result.outcome,
                        detail=result.detail,
                        scores=result.per_instance,
                        timeout_s=timeout_s,
                    )

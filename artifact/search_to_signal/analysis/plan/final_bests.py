"""The final best of every recorded run of a TSP cohort: the program that its search ended with."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from search_to_signal.problems.tsp import Tsp
from search_to_signal.programs.canonical import sha256_text
from search_to_signal.records.heldout import final_heuristic
from search_to_signal.records.layers import COHORT
from search_to_signal.records.manifest import finished_manifest, run_directories
from search_to_signal.records.reader import HEURISTICS

SEED_SHA256 = sha256_text(Tsp.seed.code)
"""Of the heuristic that every search begins with."""


@dataclass(frozen=True)
class FinalBest:
    """The best program of a run by its score in training; ``run`` is the run's path below the evidence.

    ``score`` is on the instances of the search (higher is better).
    """

    profile: str
    condition: str
    seed: int
    run: str
    model: str
    score: float
    idea: str
    code: str

    @property
    def sha256(self) -> str:
        """The hash of the program's text."""
        return sha256_text(self.code)

    @property
    def name(self) -> str:
        """What problems call it."""
        return f"{self.run}, its final best"


def find_final_bests(root: Path, profiles: Iterable[str]) -> list[FinalBest]:
    """Return the final bests of the TSP cohorts below ``root``, by profile, condition and seed, frozen first.

    Of equal scores the first of the search counts. Runs that keep no heuristics are left out. Raises
    RunDirectoryError and RecordError for records that cannot be read.
    """
    return [final for profile in profiles for final in _find_in_cohort(root, profile)]


def _find_in_cohort(root: Path, profile: str) -> Iterator[FinalBest]:
    finished = [(run, finished_manifest(run)) for run in run_directories(root / profile / COHORT)]
    runs = [
        (run, manifest.facts)
        for run, manifest in finished
        if manifest is not None and manifest.facts.problem == Tsp.name and _keeps_heuristics(run)
    ]
    for run, facts in sorted(runs, key=lambda pair: pair[1].rank):
        best = final_heuristic(run)
        yield FinalBest(
            profile=profile,
            condition=facts.condition,
            seed=facts.seed,
            run=run.relative_to(root).as_posix(),
            model=Path(facts.model).name,
            score=best.score,
            idea=best.idea,
            code=best.code,
        )


def _keeps_heuristics(run: Path) -> bool:
    file = run / HEURISTICS
    return file.is_file() and file.stat().st_size > 0

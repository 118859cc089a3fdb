"""The best programs of recorded cohorts beside heuristics of the field, on the held-out TSP instances."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from search_to_signal.analysis.tables.cells import Cell, Row, Table
from search_to_signal.analysis.tables.evaluations import optimality_gap
from search_to_signal.problems.base import heldout_splits
from search_to_signal.problems.known_heuristics import KnownHeuristic, known_heuristics, known_scores
from search_to_signal.problems.references import reference_file, reference_lengths
from search_to_signal.problems.tsp import Tsp
from search_to_signal.programs.canonical import sha256_text
from search_to_signal.progress import counted
from search_to_signal.records.heldout import ProgramScores, final_heuristic
from search_to_signal.records.layers import COHORT
from search_to_signal.records.manifest import finished_manifest, run_directories
from search_to_signal.records.reader import HEURISTICS

NAME, TITLE = "standings", "Where the programs found here stand"
SPLITS = heldout_splits(Tsp())
_SIZES = tuple(split.rpartition("_")[2] for split in SPLITS)
_FOUND_WITH = "Found with"
_SEED_SHA256 = sha256_text(Tsp.seed.code)
_NOTE = (
    "Mean tour length and mean gap to the shipped reference tours, lower is better, on the same 64 instances "
    "of each size for every row. A condition's program is the best of its seeds by its score in training: "
    "one program, so no mean and no test. A dash: it failed there, or ran out of its time. What sources "
    "report stands with each program below: on their own instances, by their own references, so that no "
    "difference to the table has a meaning."
)


@dataclass(frozen=True)
class FoundProgram:
    """The best program of a condition by its score in training, over ``seeds`` runs; ``run`` is its run.

    ``profile`` is that of the cohort, ``score`` on the instances of the search (higher is better).
    """

    profile: str
    condition: str
    seeds: int
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
        """The label of its row."""
        same = ", the seed itself" if self.sha256 == _SEED_SHA256 else ""
        return f"{self.profile}: {self.condition}, best of {counted(self.seeds, 'seed')}{same}"


def find_best_programs(root: Path, profiles: Iterable[str]) -> list[FoundProgram]:
    """Return the best program of every condition of the TSP cohorts below ``root``, by profile.

    Of equal scores the first counts, by seed and then in the order of the search. Runs that keep no
    heuristics are left out. Raises RunDirectoryError and RecordError for records that cannot be read.
    """
    return [program for profile in profiles for program in _find_in_cohort(root, profile)]


def _find_in_cohort(root: Path, profile: str) -> Iterator[FoundProgram]:
    finished = [(run, finished_manifest(run)) for run in run_directories(root / profile / COHORT)]
    runs = [
        (run, manifest.facts)
        for run, manifest in finished
        if manifest is not None and manifest.facts.problem == Tsp.name and _keeps_heuristics(run)
    ]
    ranked = sorted(runs, key=lambda pair: pair[1].rank)
    for condition, members in groupby(ranked, key=lambda pair: pair[1].condition):
        finals = [(final_heuristic(run), run, facts) for run, facts in members]
        best, run, facts = max(finals, key=lambda final: final[0].score)
        yield FoundProgram(
            profile=profile,
            condition=condition,
            seeds=len(finals),
            run=run.relative_to(root).as_posix(),
            model=Path(facts.model).name,
            score=best.score,
            idea=best.idea,
            code=best.code,
        )


def _keeps_heuristics(run: Path) -> bool:
    file = run / HEURISTICS
    return file.is_file() and file.stat().st_size > 0


@dataclass(frozen=True)
class Standings:
    """The table, a sentence about each cohort, and what the page shows of each program, folded."""

    table: Table
    sentences: tuple[str, ...]
    programs: tuple[tuple[str, str, str, str], ...]
    """Name, rule in words, origin, and source text."""


def scores_by_place(scores: Iterable[ProgramScores]) -> dict[tuple[str, str], ProgramScores]:
    """Return scores by the hash of the program's text and the split."""
    return {(scored.code_sha256, scored.split): scored for scored in scores}


def build_standings(found: Sequence[FoundProgram], scores: Sequence[ProgramScores]) -> Standings:
    """Return the standings of found programs; ``scores`` are theirs, those of the field are shipped."""
    by_program = scores_by_place((*scores, *known_scores()))
    known = [_known_row(heuristic, by_program) for heuristic in known_heuristics()]
    own = [_found_row(program, by_program) for program in found]
    columns = (
        _FOUND_WITH,
        *(f"{what} {size}" for size in _SIZES for what in ("Length", "Gap (%)")),
    )
    table = Table(NAME, TITLE, COHORT, columns, (*known, *own), "Program", _NOTE)
    field = (
        (each.name, each.idea, f"{each.source}. It reports {_reported(each)}", each.program)
        for each in known_heuristics()
    )
    ours = ((program.name, program.idea, _origin(program), program.code) for program in found)
    return Standings(table, _conclude(table, found, len(known)), (*field, *ours))


def _origin(found: FoundProgram) -> str:
    return f"{found.run}; score in training {found.score:.4f}"


def _reported(known: KnownHeuristic) -> str:
    reported = known.reported
    unit = " %" if reported.unit == "gap" else ""
    values = " / ".join(f"{value:g}" for value in reported.values)
    sizes = " / ".join(_SIZES[: len(reported.values)])
    return f"mean {reported.unit} {values}{unit} on {sizes} nodes, {reported.instances}, of the {reported.of}"


def _known_row(known: KnownHeuristic, scores: Mapping[tuple[str, str], ProgramScores]) -> Row:
    cells = _split_cells(sha256_text(known.program), scores)
    return Row(known.name, (Cell(known.found_with), *cells))


def _found_row(found: FoundProgram, scores: Mapping[tuple[str, str], ProgramScores]) -> Row:
    return Row(found.name, (Cell(found.model), *_split_cells(found.sha256, scores)))


def _split_cells(sha256: str, scores: Mapping[tuple[str, str], ProgramScores]) -> Iterator[Cell]:
    for split in SPLITS:
        scored = scores.get((sha256, split))
        lengths = None if scored is None or not scored.scores else -np.array(scored.scores)
        if lengths is None:
            yield from (Cell(None), Cell(None))
            continue
        gap = optimality_gap(-lengths, reference_lengths(split)[: len(lengths)])
        yield Cell(float(lengths.mean()), len(lengths), "mean tour length over instances")
        yield Cell(gap, len(lengths), "mean of (length - reference) / reference, in percent", decimals=2)


def _conclude(table: Table, found: Sequence[FoundProgram], field: int) -> tuple[str, ...]:
    """Return a sentence per cohort about its best program by training score, which no held-out score chose.

    ``field`` is the number of rows of the field's heuristics, the table's first ones. A cohort whose best
    program lacks a score has no sentence.
    """
    cohorts = [list(members) for _, members in groupby(found, key=lambda program: program.profile)]
    best = (max(members, key=lambda program: program.score) for members in cohorts)
    sentences = (_sentence(table, program, table.rows[:field]) for program in best)
    return tuple(sentence for sentence in sentences if sentence)


def _sentence(table: Table, best: FoundProgram, field: Sequence[Row]) -> str:
    gaps, shorter = [], []
    for column in (f"Gap (%) {size}" for size in _SIZES):
        own = table.cell(best.name, column)
        known = [table.cell(row.label, column).number for row in field]
        if own.number is None:
            return ""
        gaps.append(f"{own.text()} %")
        shorter.append(sum(gap is not None and gap < own.number for gap in known))
    return (
        f"{best.profile}'s best program by its score in training ({best.condition}, best of "
        f"{counted(best.seeds, 'seed')}) is {_listed(gaps)} above the reference tours on {_listed(_SIZES)} "
        f"nodes; {_listed(shorter)} of the field's {len(field)} heuristics are shorter."
        f"{_beside_seed(table, best)}"
    )


def _beside_seed(table: Table, best: FoundProgram) -> str:
    """Say how its tours compare with those of the heuristic that its search began with."""
    if best.sha256 == _SEED_SHA256:
        return ""
    seed = next(known for known in known_heuristics() if sha256_text(known.program) == _SEED_SHA256)

    def length(name: str, size: str) -> float:
        return table.cell(name, f"Length {size}").number or np.nan

    percents = [100.0 * (length(best.name, size) / length(seed.name, size) - 1.0) for size in _SIZES]
    than = _listed(f"{abs(more):.2f} % {'longer' if more > 0.0 else 'shorter'}" for more in percents)
    return f" Its tours are {than} than those of the heuristic that its search began with."


def _listed(parts: Iterable[object]) -> str:
    *most, last = map(str, parts)
    return f"{', '.join(most)} and {last}"


def score_problems(found: Sequence[FoundProgram], scores: Sequence[ProgramScores]) -> Iterator[str]:
    """Yield found programs without scores, scores of no such program, and scores that cannot be."""
    wanted = {(program.sha256, split): program.name for program in found for split in SPLITS}
    given = Counter((scored.code_sha256, scored.split) for scored in scores)
    shipped = scores_by_place(known_scores())
    for place, name in wanted.items():
        if place not in given and place not in shipped:
            yield f"{name} has no scores on {place[1]}: s2s standings makes them"
    for scored in scores:
        place = (scored.code_sha256, scored.split)
        where = f"program {scored.code_sha256[:12]} on {scored.split}"
        if place not in wanted or given[place] > 1:
            yield f"{where} is no best program of a condition, or listed twice: s2s standings makes it anew"
        elif not _possible(scored):
            yield f"{where}: scores that no tours of these instances have: restore the file"


def _possible(scores: ProgramScores) -> bool:
    """Whether no tour is shorter than its instance's lower bound, and a failure has no scores."""
    bounds = [reference.lower_bound for reference in reference_file().splits[scores.split].instances]
    if not scores.scores:
        return scores.outcome.value != "valid"
    whole = scores.outcome.value == "valid" and len(scores.scores) == len(bounds)
    return whole and all(-score >= bound - 1e-9 for score, bound in zip(scores.scores, bounds, strict=True))

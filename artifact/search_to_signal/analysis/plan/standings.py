"""The best programs of recorded cohorts beside heuristics of the field, on the held-out TSP instances."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from search_to_signal.analysis.plan.beside_seed import BesideSeed
from search_to_signal.analysis.plan.final_bests import SEED_SHA256, FinalBest
from search_to_signal.analysis.plan.heldout_scores import SIZES, SPLITS, scores_by_place
from search_to_signal.analysis.tables.cells import Cell, Row, Table
from search_to_signal.analysis.tables.evaluations import optimality_gap
from search_to_signal.problems.known_heuristics import KnownHeuristic, known_heuristics, known_scores
from search_to_signal.problems.references import reference_lengths
from search_to_signal.programs.canonical import sha256_text
from search_to_signal.progress import counted, listed
from search_to_signal.records.heldout import ProgramScores
from search_to_signal.records.layers import COHORT

NAME, TITLE = "standings", "Where the programs found here stand"
_FOUND_WITH = "Found with"
_NOTE = (
    "Mean tour length and mean gap to the shipped reference tours, lower is better, on the same 64 instances "
    "of each size for every row. A condition's program is the best of its seeds by its score in training: "
    "one program, so no mean and no test. A dash: it failed there, or ran out of its time. What sources "
    "report stands with each program below: on their own instances, by their own references, so that no "
    "difference to the table has a meaning."
)


@dataclass(frozen=True)
class FoundProgram:
    """The best program of a condition by its score in training: of ``seeds`` final bests, ``final``."""

    final: FinalBest
    seeds: int

    @property
    def sha256(self) -> str:
        """The hash of the program's text."""
        return self.final.sha256

    @property
    def name(self) -> str:
        """The label of its row."""
        same = ", the seed itself" if self.sha256 == SEED_SHA256 else ""
        final = self.final
        return f"{final.profile}: {final.condition}, best of {counted(self.seeds, 'seed')}{same}"


def best_programs(root: Path, finals: Iterable[FinalBest]) -> list[FoundProgram]:
    """Return the best program of every condition of the final bests whose runs are still below ``root``.

    They lie by profile and condition. Of equal scores the first counts, by seed and then in the order of the
    search.
    """
    here = (final for final in finals if (root / final.run).is_dir())
    conditions = groupby(here, key=lambda final: (final.profile, final.condition))
    return [_best_of(list(members)) for _, members in conditions]


def _best_of(finals: Sequence[FinalBest]) -> FoundProgram:
    return FoundProgram(max(finals, key=lambda final: final.score), len(finals))


@dataclass(frozen=True)
class Standings:
    """The table, a sentence about each cohort, and what the page shows of each program, folded."""

    table: Table
    sentences: tuple[str, ...]
    programs: tuple[tuple[str, str, str, str], ...]
    """Name, rule in words, origin, and source text."""
    beside_seed: BesideSeed | None = None
    """Of every final best, where all have scores."""


def build_standings(found: Sequence[FoundProgram], scores: Sequence[ProgramScores]) -> Standings:
    """Return the standings of found programs; ``scores`` are theirs, those of the field are shipped."""
    by_program = scores_by_place((*scores, *known_scores()))
    known = [_known_row(heuristic, by_program) for heuristic in known_heuristics()]
    own = [_found_row(program, by_program) for program in found]
    columns = (
        _FOUND_WITH,
        *(f"{what} {size}" for size in SIZES for what in ("Length", "Gap (%)")),
    )
    table = Table(NAME, TITLE, COHORT, columns, (*known, *own), "Program", _NOTE)
    field = (
        (each.name, each.idea, f"{each.source}. It reports {_reported(each)}", each.program)
        for each in known_heuristics()
    )
    ours = ((program.name, program.final.idea, _origin(program), program.final.code) for program in found)
    return Standings(table, _conclude(table, found, len(known)), (*field, *ours))


def _origin(found: FoundProgram) -> str:
    return f"{found.final.run}; score in training {found.final.score:.4f}"


def _reported(known: KnownHeuristic) -> str:
    reported = known.reported
    unit = " %" if reported.unit == "gap" else ""
    values = " / ".join(f"{value:g}" for value in reported.values)
    sizes = " / ".join(SIZES[: len(reported.values)])
    return f"mean {reported.unit} {values}{unit} on {sizes} nodes, {reported.instances}, of the {reported.of}"


def _known_row(known: KnownHeuristic, scores: Mapping[tuple[str, str], ProgramScores]) -> Row:
    cells = _split_cells(sha256_text(known.program), scores)
    return Row(known.name, (Cell(known.found_with), *cells))


def _found_row(found: FoundProgram, scores: Mapping[tuple[str, str], ProgramScores]) -> Row:
    return Row(found.name, (Cell(found.final.model), *_split_cells(found.sha256, scores)))


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
    cohorts = [list(members) for _, members in groupby(found, key=lambda program: program.final.profile)]
    best = (max(members, key=lambda program: program.final.score) for members in cohorts)
    sentences = (_sentence(table, program, table.rows[:field]) for program in best)
    return tuple(sentence for sentence in sentences if sentence)


def _sentence(table: Table, best: FoundProgram, field: Sequence[Row]) -> str:
    gaps, shorter = [], []
    for column in (f"Gap (%) {size}" for size in SIZES):
        own = table.cell(best.name, column)
        known = [table.cell(row.label, column).number for row in field]
        if own.number is None:
            return ""
        gaps.append(f"{own.text()} %")
        shorter.append(sum(gap is not None and gap < own.number for gap in known))
    return (
        f"{best.final.profile}'s best program by its score in training ({best.final.condition}, best of "
        f"{counted(best.seeds, 'seed')}) is {listed(gaps)} above the reference tours on {listed(SIZES)} "
        f"nodes; {listed(shorter)} of the field's {len(field)} heuristics are shorter."
        f"{_beside_seed(table, best)}"
    )


def _beside_seed(table: Table, best: FoundProgram) -> str:
    """Say how its tours compare with those of the heuristic that its search began with."""
    if best.sha256 == SEED_SHA256:
        return ""
    seed = next(known for known in known_heuristics() if sha256_text(known.program) == SEED_SHA256)

    def length(name: str, size: str) -> float:
        return table.cell(name, f"Length {size}").number or np.nan

    percents = [100.0 * (length(best.name, size) / length(seed.name, size) - 1.0) for size in SIZES]
    than = listed(f"{abs(more):.2f} % {'longer' if more > 0.0 else 'shorter'}" for more in percents)
    return f" Its tours are {than} than those of the heuristic that its search began with."

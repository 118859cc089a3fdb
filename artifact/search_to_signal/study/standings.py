"""Final bests of recorded TSP cohorts on held-out instances, beside the field's and their seed heuristic.

A final best was chosen by its score on the instances of the search: whether it is better on others is another
question. The run is the unit.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import mean

import numpy as np

from search_to_signal.base.numerics import Floats
from search_to_signal.base.progress import counted, listed
from search_to_signal.layers.heldout.tables import optimality_gap
from search_to_signal.problems.base import heldout_splits
from search_to_signal.problems.tsp import (
    KnownHeuristic,
    Tsp,
    known_heuristics,
    known_scores,
    reference_file,
    reference_lengths,
)
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.heldout import ProgramScores, final_heuristic
from search_to_signal.records.layers import COHORT
from search_to_signal.records.manifest import finished_manifest, run_directories
from search_to_signal.records.reader import HEURISTICS
from search_to_signal.report.results import Origin
from search_to_signal.report.tables.cells import NOTHING, Cell, Cells, Line, Row, Table, table_of
from search_to_signal.sandbox.programs import sha256_text
from search_to_signal.study.verdicts import t_interval

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
    finals = []
    for profile in profiles:
        runs = []
        for run in run_directories(root / profile / COHORT):
            manifest, file = finished_manifest(run), run / HEURISTICS
            keeps = file.is_file() and file.stat().st_size > 0
            if manifest is not None and manifest.facts.problem == Tsp.name and keeps:
                runs.append((run, manifest.facts))
        for run, facts in sorted(runs, key=lambda pair: pair[1].rank):
            best = final_heuristic(run)
            finals.append(
                FinalBest(
                    profile=profile,
                    condition=facts.condition,
                    seed=facts.seed,
                    run=run.relative_to(root).as_posix(),
                    model=Path(facts.model).name,
                    score=best.score,
                    idea=best.idea,
                    code=best.code,
                )
            )
    return finals


SPLITS = heldout_splits(Tsp())
SIZES = tuple(split.rpartition("_")[2] for split in SPLITS)
"""Their numbers of nodes."""


def scores_by_place(scores: Iterable[ProgramScores]) -> dict[tuple[str, str], ProgramScores]:
    """Return scores by the hash of the program's text and the split."""
    return {(scored.code_sha256, scored.split): scored for scored in scores}


def score_problems(wanted: Sequence["ScoredProgram"], scores: Sequence[ProgramScores]) -> Iterator[str]:
    """Yield wanted programs without scores, scores of no such program, and scores that cannot be."""
    names = {(program.sha256, split): program.name for program in wanted for split in SPLITS}
    given = Counter((scored.code_sha256, scored.split) for scored in scores)
    shipped = scores_by_place(known_scores())
    for place, name in names.items():
        if place not in given and place not in shipped:
            yield f"{name} has no scores on {place[1]}: s2s standings makes them"
    for scored in scores:
        place = (scored.code_sha256, scored.split)
        where = f"program {scored.code_sha256[:12]} on {scored.split}"
        if place not in names or given[place] > 1:
            yield (
                f"{where} is not one of the programs to score, or is listed twice: s2s standings makes "
                "the file again"
            )
        elif not _possible(scored):
            yield f"{where}: scores that no tours of these instances have: restore the file"


def _possible(scores: ProgramScores) -> bool:
    bounds = [reference.lower_bound for reference in reference_file().splits[scores.split].instances]
    if not scores.scores:
        return scores.outcome.value != "valid"
    whole = scores.outcome.value == "valid" and len(scores.scores) == len(bounds)
    return whole and all(-score >= bound - 1e-9 for score, bound in zip(scores.scores, bounds, strict=True))


_FINAL_BESTS_NOTE = (
    "Exploratory where the plan does not announce it: no question asks for it, and no verdict follows. "
    "The gap of a final best is the mean, over 64 instances, of (its length - the seed heuristic's) / the"
    " seed heuristic's, in percent. Lower is better; above zero is worse than what the search began with."
    " Rows are means over runs. A condition has all of its recorded runs, so conditions may differ in "
    "seeds. A difference is taken within the seeds that both sides have, and is below zero where training"
    " gave the shorter tours. Shorter counts the runs, or seeds, with a gap below zero. A program that "
    "failed or ran out of time is counted and left out of the mean."
)


@dataclass(frozen=True)
class BesideSeed:
    """The table with every value, the same in fewer columns for people, and a sentence about each cohort."""

    table: Table
    text_rows: tuple[tuple[str, ...], ...]
    sentences: tuple[str, ...]


Lengths = Mapping[tuple[str, str], Floats]
"""(instances,) tour lengths by the hash of a program's text and split; none of a program that failed."""


@dataclass(frozen=True)
class _Gaps:
    """The values of one row by split and seed; ``seeds`` are those of its runs, failed ones included."""

    profile: str
    what: str
    seeds: tuple[int, ...]
    by_split: tuple[Mapping[int, float], ...]
    origins: tuple[Origin, ...]


def build_beside_seed(
    finals: Sequence[FinalBest], controls: Sequence[FinalBest], scores: Sequence[ProgramScores], level: float
) -> BesideSeed:
    """Set final bests beside the seed heuristic: each condition's, and their differences to frozen ones.

    ``controls`` are final bests of another plan's runs, from which every condition differs, too. ``scores``
    are of both, ``level`` is that of the intervals. Every condition has all of its own runs, a difference the
    seeds of which both runs are there.
    """
    by_place = scores_by_place((*scores, *known_scores()))
    lengths = {place: -np.array(scored.scores) for place, scored in by_place.items() if scored.scores}
    cohorts = [list(members) for _, members in groupby(finals, key=lambda final: final.profile)]
    conditions = [list(_condition_gaps(cohort, lengths)) for cohort in cohorts]
    of_controls = list(_condition_gaps(controls, lengths))
    rows: list[_Gaps] = []
    for own in conditions:
        # Trained conditions differ from frozen, where that is recorded.
        rows += own
        for frozen in (gaps for gaps in own if gaps.what == FROZEN):
            rows += (_difference(gaps, frozen) for gaps in own if gaps is not frozen)
        rows += (_difference(gaps, control) for control in of_controls for gaps in own)
    note = f"{_FINAL_BESTS_NOTE} Intervals at {level:.0%}, uncorrected."
    title = "Every final best, compared with the heuristic that its search began with"
    table = table_of("final_bests", title, "Final best of", [_line(gaps, level) for gaps in rows], note)
    head = ("Final best of", *(text for size in SIZES for text in (f"Gap {size} (%)", "Shorter")))
    sentences = tuple(_sentence_beside_seed(*both, lengths) for both in zip(cohorts, conditions, strict=True))
    return BesideSeed(table, (head, *(_text_row(table, row) for row in table.rows)), sentences)


def _condition_gaps(cohort: Sequence[FinalBest], lengths: Lengths) -> Iterator[_Gaps]:
    for condition, members in groupby(cohort, key=lambda final: final.condition):
        finals, by_split = list(members), []
        for split in SPLITS:
            known = ((final.seed, lengths.get((final.sha256, split))) for final in finals)
            of_seed = lengths[SEED_SHA256, split]
            by_split.append({seed: optimality_gap(-own, of_seed) for seed, own in known if own is not None})
        seeds = tuple(final.seed for final in finals)
        origins = tuple(Origin(f"{final.run}/{HEURISTICS}") for final in finals)
        yield _Gaps(finals[0].profile, condition, seeds, tuple(by_split), origins)


def _difference(first: _Gaps, second: _Gaps) -> _Gaps:
    by_split = tuple(
        {seed: values[seed] - others[seed] for seed in values if seed in others}
        for values, others in zip(first.by_split, second.by_split, strict=True)
    )
    seeds = tuple(seed for seed in first.seeds if seed in second.seeds)
    elsewhere = f"{second.profile}'s " if second.profile != first.profile else ""
    name, origins = f"{first.what} minus {elsewhere}{second.what}", (*first.origins, *second.origins)
    return _Gaps(first.profile, name, seeds, by_split, origins)


def _line(gaps: _Gaps, level: float) -> Line:
    runs = len(gaps.seeds)

    def count(number: int) -> Cell:
        return Cell(number, runs, "runs, or seeds of a difference", gaps.origins)

    cells = {"Seeds": count(runs)}
    for size, by_seed in zip(SIZES, gaps.by_split, strict=True):
        values = list(by_seed.values())
        low, high = t_interval(values, level) if len(values) > 1 else (None, None)
        ends = {"Gap (%)": mean(values) if values else None, "Low": low, "High": high}
        for what, number in ends.items():
            formula = "mean over runs of gaps, or its interval"
            cells[f"{what} {size}"] = Cell(number, len(values), formula, gaps.origins, decimals=2)
        cells[f"Shorter {size}"] = count(sum(value < 0.0 for value in values))
        cells[f"Failed {size}"] = count(runs - len(values))
    return f"{gaps.profile}: {gaps.what}", cells


def _text_row(table: Table, row: Row) -> tuple[str, ...]:
    def text(column: str) -> str:
        number = table.cell(row.label, column).number
        return NOTHING if number is None else f"{number:+.2f}"

    cells = [row.label]
    for size in SIZES:
        ends = [text(f"{end} {size}") for end in ("Low", "High")]
        shorter, failed = (table.cell(row.label, f"{what} {size}") for what in ("Shorter", "Failed"))
        interval = "" if NOTHING in ends else f" [{', '.join(ends)}]"
        cells.append(f"{text(f'Gap (%) {size}')}{interval}")
        cells.append(f"{shorter.text()} of {shorter.n}{f', {failed.text()} failed' if failed.value else ''}")
    return tuple(cells)


def _sentence_beside_seed(cohort: Sequence[FinalBest], conditions: Sequence[_Gaps], lengths: Lengths) -> str:
    by_split = zip(*(gaps.by_split for gaps in conditions), strict=True)
    shorter = [sum(gap < 0.0 for gaps in same for gap in gaps.values()) for same in by_split]
    in_all = []  # By the total length over all instances.
    for split in SPLITS:
        known, total = (lengths.get((final.sha256, split)) for final in cohort), lengths[SEED_SHA256, split]
        in_all.append(sum(own is not None and own.sum() < total.sum() for own in known))
    same = sum(final.sha256 == SEED_SHA256 for final in cohort)
    itself = f"; {same} {'is' if same == 1 else 'are'} that heuristic itself" if same else ""
    return (
        f"Of {cohort[0].profile}'s {counted(len(cohort), 'final best')}, {listed(shorter)} give shorter "
        f"tours than the heuristic that every search began with, on instances of {listed(SIZES)} nodes "
        f"that no search has seen (by the mean ratio per instance; {listed(in_all)} by the total "
        f"length{itself})."
    )


_NOTE = (
    "Mean tour length and mean gap to the shipped reference tours, on the same 64 instances of each size for "
    "every row; lower is better. A condition's program is the best of its seeds by its score in training: "
    "one program, so there is no mean and no test. A dash: it failed there, or ran out of time. Below, each "
    "program has the numbers that its source reports. They are for other instances and references, and "
    "cannot be compared with the table."
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


ScoredProgram = FinalBest | FoundProgram
"""A program that held-out scores are wanted of."""


def best_programs(root: Path, finals: Iterable[FinalBest]) -> list[FoundProgram]:
    """Return the best program of every condition of the final bests whose runs are still below ``root``.

    They lie by profile and condition. Of equal scores the first counts, by seed and then in the order of the
    search.
    """
    here = (final for final in finals if (root / final.run).is_dir())
    conditions = groupby(here, key=lambda final: (final.profile, final.condition))
    groups = (list(members) for _, members in conditions)
    return [FoundProgram(max(same, key=lambda final: final.score), len(same)) for same in groups]


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
    field_lines = [
        (known.name, _score_cells(known.found_with, sha256_text(known.program), by_program))
        for known in known_heuristics()
    ]
    own_lines = [
        (program.name, _score_cells(program.final.model, program.sha256, by_program)) for program in found
    ]
    title = "The programs found here, compared with published heuristics"
    table = table_of("standings", title, "Program", [*field_lines, *own_lines], _NOTE)
    field = (
        (each.name, each.idea, f"{each.source}. It reports {_reported(each)}", each.program)
        for each in known_heuristics()
    )
    ours = (
        (program.name, final.idea, f"{final.run}; score in training {final.score:.4f}", final.code)
        for program in found
        for final in (program.final,)
    )
    # Of each cohort the best program by its score in training, which no held-out score chose.
    cohorts = groupby(found, key=lambda program: program.final.profile)
    best = (max(members, key=lambda program: program.final.score) for _, members in cohorts)
    sentences = (_sentence(table, program, table.rows[: len(field_lines)]) for program in best)
    return Standings(table, tuple(filter(None, sentences)), (*field, *ours))


def _reported(known: KnownHeuristic) -> str:
    reported = known.reported
    unit = " %" if reported.unit == "gap" else ""
    values = " / ".join(f"{value:g}" for value in reported.values)
    sizes = " / ".join(SIZES[: len(reported.values)])
    return f"mean {reported.unit} {values}{unit} on {sizes} nodes, {reported.instances}, of the {reported.of}"


def _score_cells(found_with: str, sha256: str, scores: Mapping[tuple[str, str], ProgramScores]) -> Cells:
    cells = {"Found with": Cell(found_with)}
    for size, split in zip(SIZES, SPLITS, strict=True):
        scored, length, gap = scores.get((sha256, split)), Cell(None), Cell(None)
        if scored is not None and scored.scores:
            lengths, n = -np.array(scored.scores), len(scored.scores)
            mean_gap = optimality_gap(-lengths, reference_lengths(split)[:n])
            length = Cell(float(lengths.mean()), n, "mean tour length over instances")
            gap = Cell(mean_gap, n, "mean of (length - reference) / reference, in percent", decimals=2)
        cells |= {f"Length {size}": length, f"Gap (%) {size}": gap}
    return cells


def _sentence(table: Table, best: FoundProgram, field: Sequence[Row]) -> str:
    """Say where a cohort's best program is among the field's; empty where it lacks a score."""
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

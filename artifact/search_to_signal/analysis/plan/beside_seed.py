"""The final bests of all runs beside the heuristic that their searches began with, on held-out TSP instances.

A final best was chosen by its score on the instances of the search: whether it is better on others is another
question. The run is the unit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean

import numpy as np

from search_to_signal.analysis.plan.final_bests import SEED_SHA256, FinalBest
from search_to_signal.analysis.plan.heldout_scores import SIZES, SPLITS, scores_by_place
from search_to_signal.analysis.plan.verdicts import t_interval
from search_to_signal.analysis.results import Origin
from search_to_signal.analysis.tables.cells import NOTHING, Cell, Row, Table
from search_to_signal.analysis.tables.evaluations import optimality_gap
from search_to_signal.numerics import Floats
from search_to_signal.problems.known_heuristics import known_scores
from search_to_signal.progress import counted, listed
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.heldout import ProgramScores
from search_to_signal.records.layers import COHORT
from search_to_signal.records.reader import HEURISTICS

NAME, TITLE = "final_bests", "Every final best beside the heuristic that its search began with"
_NOTE = (
    "Exploratory: the plan does not ask for it, and no verdict follows. The gap of a final best is the "
    "mean, over 64 instances, of (its length - the seed heuristic's) / the seed heuristic's, in percent: "
    "lower is better, above zero is worse than what the search began with. Rows are means over runs. A "
    "condition has all of its recorded runs, so conditions may differ in seeds; a difference is within the "
    "seeds that both sides have, below zero where training gave the shorter tours. Shorter counts runs, or "
    "seeds, of which that is so. A program that failed there, or ran out of its time, is counted and left "
    "out of the mean."
)
_OF_SIZE = ("Gap (%)", "Low", "High", "Shorter", "Failed")


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
    finals: Sequence[FinalBest], scores: Sequence[ProgramScores], level: float
) -> BesideSeed:
    """Set final bests beside the seed heuristic: each condition's, and their differences to frozen ones.

    ``scores`` are of the final bests, ``level`` is that of the intervals. Every condition has all of its own
    runs, a difference the seeds of which both runs are there.
    """
    lengths = _read_lengths(scores)
    cohorts = [list(members) for _, members in groupby(finals, key=lambda final: final.profile)]
    conditions = [list(_condition_gaps(cohort, lengths)) for cohort in cohorts]
    rows = [gaps for own in conditions for gaps in (*own, *_differences(own))]
    note = f"{_NOTE} Intervals at {level:.0%}, for each alone."
    columns = ("Seeds", *(f"{what} {size}" for size in SIZES for what in _OF_SIZE))
    table = Table(
        NAME, TITLE, COHORT, columns, tuple(_row(gaps, level) for gaps in rows), "Final best of", note
    )
    head = ("Final best of", *(text for size in SIZES for text in (f"Gap {size} (%)", "Shorter")))
    sentences = tuple(_sentence(*both, lengths) for both in zip(cohorts, conditions, strict=True))
    return BesideSeed(table, (head, *(_text_row(table, row) for row in table.rows)), sentences)


def _read_lengths(scores: Sequence[ProgramScores]) -> Lengths:
    by_place = scores_by_place((*scores, *known_scores()))
    return {place: -np.array(scored.scores) for place, scored in by_place.items() if scored.scores}


def _gaps_of(finals: Sequence[FinalBest], split: str, lengths: Lengths) -> dict[int, float]:
    """Gaps to the seed heuristic by seed, of the programs that did not fail."""
    seed_lengths = lengths[SEED_SHA256, split]
    known = ((final.seed, lengths.get((final.sha256, split))) for final in finals)
    return {seed: optimality_gap(-own, seed_lengths) for seed, own in known if own is not None}


def _condition_gaps(cohort: Sequence[FinalBest], lengths: Lengths) -> Iterator[_Gaps]:
    for condition, members in groupby(cohort, key=lambda final: final.condition):
        finals = list(members)
        yield _Gaps(
            finals[0].profile,
            condition,
            tuple(final.seed for final in finals),
            tuple(_gaps_of(finals, split, lengths) for split in SPLITS),
            tuple(Origin(f"{final.run}/{HEURISTICS}") for final in finals),
        )


def _differences(conditions: Sequence[_Gaps]) -> Iterator[_Gaps]:
    """The differences of trained conditions to frozen, where that is recorded."""
    for frozen in (gaps for gaps in conditions if gaps.what == FROZEN):
        yield from (_difference(gaps, frozen) for gaps in conditions if gaps is not frozen)


def _difference(first: _Gaps, second: _Gaps) -> _Gaps:
    by_split = tuple(
        {seed: values[seed] - others[seed] for seed in values if seed in others}
        for values, others in zip(first.by_split, second.by_split, strict=True)
    )
    seeds = tuple(seed for seed in first.seeds if seed in second.seeds)
    return _Gaps(
        first.profile, f"{first.what} minus {second.what}", seeds, by_split, (*first.origins, *second.origins)
    )


def _row(gaps: _Gaps, level: float) -> Row:
    runs = len(gaps.seeds)

    def count(number: int) -> Cell:
        return Cell(number, runs, "runs, or seeds of a difference", gaps.origins)

    cells = [count(runs)]
    for by_seed in gaps.by_split:
        values = list(by_seed.values())
        low, high = t_interval(values, level) if len(values) > 1 else (None, None)
        formula = "mean over runs of gaps, or its interval"
        cells += [
            Cell(number, len(values), formula, gaps.origins, decimals=2)
            for number in (mean(values) if values else None, low, high)
        ]
        cells += [count(sum(value < 0.0 for value in values)), count(runs - len(values))]
    return Row(f"{gaps.profile}: {gaps.what}", tuple(cells))


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


def _shorter_in_all(cohort: Sequence[FinalBest], split: str, lengths: Lengths) -> int:
    """How many final bests have the shorter tours over all instances together."""
    known = (lengths.get((final.sha256, split)) for final in cohort)
    return sum(own is not None and own.sum() < lengths[SEED_SHA256, split].sum() for own in known)


def _sentence(cohort: Sequence[FinalBest], conditions: Sequence[_Gaps], lengths: Lengths) -> str:
    by_split = zip(*(gaps.by_split for gaps in conditions), strict=True)
    shorter = [sum(gap < 0.0 for gaps in same for gap in gaps.values()) for same in by_split]
    in_all = [_shorter_in_all(cohort, split, lengths) for split in SPLITS]
    same = sum(final.sha256 == SEED_SHA256 for final in cohort)
    itself = f"; {same} {'is' if same == 1 else 'are'} that heuristic itself" if same else ""
    return (
        f"Of {cohort[0].profile}'s {counted(len(cohort), 'final best')}, {listed(shorter)} give shorter "
        f"tours than the heuristic that every search began with, on instances of {listed(SIZES)} nodes "
        f"that no search has seen, by the mean ratio per instance, {listed(in_all)} by the total "
        f"length{itself}."
    )

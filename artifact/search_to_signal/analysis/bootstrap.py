"""Bootstrap intervals over seeds, where there are enough seeds to say anything, and a refusal where not."""

import math
from collections.abc import Sequence
from functools import cache
from itertools import groupby

import numpy as np

from search_to_signal.analysis.aggregate import label, mean_cell
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.tables.cells import Cell, NoTableError, Row, Table
from search_to_signal.analysis.tables.measures import ALL, differences
from search_to_signal.analysis.tables.paired import comparisons
from search_to_signal.numerics import Floats
from search_to_signal.seeding import stream

LEAST_SEEDS = 5
"""With n seeds a resample is n times the lowest seed with probability n^-n. Below five seeds that alone is
1/27 (n = 3) or 1/256 (n = 4): at three the lower end of a 95 % interval is the lowest seed itself and says
nothing that the seeds do not. Above, an interval still covers less often than it says: ``coverage`` measures
how often, and the table prints it."""

DRAWS = 10_000
LEVEL = 0.95
TRIALS = 4_000
COLUMNS = ("Mean", "Low", "High", "Seeds", "Measured coverage (%)")


def percentile_interval(values: Sequence[float], rng: np.random.Generator) -> tuple[float, float]:
    """Percentile interval of the mean of n independent seeds; values: (n,).

    Raises NoTableError below LEAST_SEEDS: then only the seeds themselves may be shown, as the paper does.
    """
    if len(values) < LEAST_SEEDS:
        raise NoTableError(
            f"too few seeds for an interval ({len(values)}, {LEAST_SEEDS} are needed): read the seed rows"
        )
    seeds = np.asarray(values)
    means: Floats = seeds[rng.integers(len(seeds), size=(DRAWS, len(seeds)))].mean(axis=1)
    low, high = np.quantile(means, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    return float(low), float(high)


@cache
def coverage(seeds: int) -> float:
    """How often ``percentile_interval`` of so many normal values covers their mean, over TRIALS samples.

    Seeds of a run need not be normal; this is what the method does where nothing else is wrong. Raises
    NoTableError below LEAST_SEEDS.
    """
    rng = stream(0, "bootstrap", "coverage", seeds)
    ends = [percentile_interval(sample, rng) for sample in rng.normal(size=(TRIALS, seeds)).tolist()]
    return sum(low <= 0.0 <= high for low, high in ends) / TRIALS


def intervals(results: Results) -> Table:
    """Intervals of every condition's means, and of same-seed differences, each resampled by itself.

    Stratified: seeds are resampled within a condition, and a difference resamples pairs of one seed whole.
    Raises NoTableError below LEAST_SEEDS.
    """
    rows: list[Row] = []
    for condition, members in groupby(results.cohort, key=lambda run: run.condition):
        rows += _rows(condition, [tuple(measure.cell(run) for measure in ALL) for run in members])
    for comparison in comparisons(results):
        rows += _rows(comparison.name, [differences(one, other) for one, other in comparison.pairs])
    return Table(
        "intervals", "Bootstrap intervals", "cohort", COLUMNS, tuple(rows), "Condition/measure", _note(rows)
    )


def _note(rows: Sequence[Row]) -> str:
    """What the intervals are called, what they cover, and how many there are at once."""
    sizes = [row.cells[0].n for row in rows if row.cells[1].value is not None]
    shares = {n: coverage(n) for n in sorted(set(sizes))}
    measured = ", ".join(f"{c:.1%} ± {_error(c):.1%} at n = {n}" for n, c in shares.items())
    missed = sum(1.0 - shares[n] for n in sizes)
    return (
        f"Percentile intervals of the mean over seeds, nominally {LEVEL:.0%}; {DRAWS} resamples. "
        f"Measured on {TRIALS} simulated samples of normal seeds (± standard error) they cover {measured}. "
        f"{len(sizes)} intervals stand here at once, uncorrected: at that coverage about {missed:.0f} of "
        "them miss their mean."
    )


def _error(share: float) -> float:
    """Standard error of a share of TRIALS."""
    return math.sqrt(share * (1.0 - share) / TRIALS)


def _rows(name: str, seeds: Sequence[tuple[Cell, ...]]) -> list[Row]:
    rows = []
    for measure, cells in zip(ALL, zip(*seeds, strict=True), strict=True):
        middle = mean_cell(cells)
        values = [float(cell.value) for cell in cells if isinstance(cell.value, int | float)]
        rng = stream(0, "bootstrap", name, measure.field)
        ends = percentile_interval(values, rng) if middle.value is not None else (None, None)
        formula = f"end of the {LEVEL:.0%} percentile interval of the {middle.formula}"
        interval = [Cell(end, len(cells), formula, middle.origins, middle.decimals) for end in ends]
        size = Cell(len(cells), len(cells), "seeds", middle.origins)
        rows.append(Row(label(name, measure.heading), (middle, *interval, size, _coverage_cell(middle))))
    return rows


def _coverage_cell(middle: Cell) -> Cell:
    value = None if middle.value is None else 100.0 * coverage(middle.n)
    formula = f"of {TRIALS} samples of {middle.n} normal values those whose interval covers, in percent"
    return Cell(value, middle.n, formula, middle.origins, 1)

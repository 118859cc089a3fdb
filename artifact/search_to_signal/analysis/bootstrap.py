"""Bootstrap intervals over seeds, where there are enough seeds to say anything, and a refusal where not."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from search_to_signal.analysis.aggregate import label, mean_cell
from search_to_signal.analysis.cells import Cell, NoTableError, Row, Table
from search_to_signal.analysis.measures import ALL, differences
from search_to_signal.analysis.paired import comparisons
from search_to_signal.analysis.results import Results
from search_to_signal.numerics import Floats
from search_to_signal.seeding import stream

LEAST_SEEDS = 5
"""With n seeds a resample is n times the lowest seed with probability n^-n. Below five seeds that alone is
1/27 (n = 3) or 1/256 (n = 4): at three the lower end of a 95 % interval is the lowest seed itself and says
nothing that the seeds do not. On simulated normal seeds a nominal 95 % interval covers the mean 75 % of the
time at three seeds, 83 % at five and 90 % at ten: read it as a lower bound of the uncertainty."""

DRAWS = 10_000
LEVEL = 0.95
COLUMNS = ("Mean", "Low", "High")


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
    note = f"{LEVEL:.0%} percentile intervals of the mean over seeds; {DRAWS} resamples."
    return Table(
        "intervals", "Bootstrap intervals", "cohort", COLUMNS, tuple(rows), "Condition/measure", note
    )


def _rows(name: str, seeds: Sequence[tuple[Cell, ...]]) -> list[Row]:
    rows = []
    for measure, cells in zip(ALL, zip(*seeds, strict=True), strict=True):
        middle = mean_cell(cells)
        values = [float(cell.value) for cell in cells if isinstance(cell.value, int | float)]
        rng = stream(0, "bootstrap", name, measure.field)
        ends = percentile_interval(values, rng) if middle.value is not None else (None, None)
        formula = f"end of the {LEVEL:.0%} percentile interval of the {middle.formula}"
        interval = (Cell(end, len(cells), formula, middle.origins, middle.decimals) for end in ends)
        rows.append(Row(label(name, measure.heading), (middle, *interval)))
    return rows

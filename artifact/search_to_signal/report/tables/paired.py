"""Within-seed differences, two runs of one seed at a time, never pools; their directions and intervals.

Paper, fig. paired-effects.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import numpy as np

from search_to_signal.base.seeding import stream
from search_to_signal.report.results import NoTableError, Results
from search_to_signal.report.tables import measures
from search_to_signal.report.tables.cells import (
    Cell,
    Cells,
    Line,
    Noted,
    count_directions,
    label,
    mean_cell,
    seed_numbers,
    table,
)
from search_to_signal.report.tables.measures import RunComparison

DIRECTIONS = "Seeds in which the first is better (strictly above), equal (to the last bit) and worse."


def comparisons(results: Results) -> tuple[RunComparison, ...]:
    """Each trained condition minus Frozen, and each minus Native where the cohort has it."""
    return (*measures.compare_with_frozen(results.cohort), *measures.compare_with(results.cohort, "native"))


@table("Paired differences", label="Comparison")
def paired(results: Results) -> Noted:
    """Same-seed differences of every measure of the live cohort."""
    note = "First minus second, seed by seed; mean ± sample standard deviation over seeds."
    return paired_of(results.once(comparisons), note)


@table("Directions of paired differences", label="Comparison/direction")
def paired_signs(results: Results) -> Noted:
    """In how many seeds the first condition is above, equal to and below the second, measure by measure."""
    return signs_of(results.once(comparisons))


def few_seeds(numbers: Iterable[int]) -> str:
    """Describe the number of seeds of the comparisons, and the smallest p-value that they allow.

    Of the 2^n ways to flip the signs of n differences, the one with all in one direction and its mirror
    image are the most extreme: a two-sided sign-flipping test gives at least 2/2^n.
    """
    distinct = sorted(set(numbers))
    least = " or ".join(f"{2.0 / 2**n:.3g}" for n in distinct)
    return f"With {seed_numbers(distinct)} a two-sided sign-flipping test cannot give p below {least}."


def paired_of(compared: Sequence[RunComparison], note: str) -> Noted:
    lines = measures.paired_rows(compared, measures.measured)
    return Noted(lines, f"{note} {few_seeds(len(one.pairs) for one in compared)}")


def signs_of(compared: Sequence[RunComparison]) -> Noted:
    """Three rows per comparison: the seeds with a positive difference, with none, and with a negative one."""
    lines: list[Line] = []
    for comparison in compared:
        seeds = [measures.differences(first, second) for first, second in comparison.pairs]
        counts = {heading: count_directions([cells[heading] for cells in seeds]) for heading in seeds[0]}
        for direction in ("better", "equal", "worse"):
            cells = {heading: count[direction] for heading, count in counts.items()}
            lines.append((label(comparison.name, direction), cells))
    return Noted(lines, f"{DIRECTIONS} {few_seeds(len(one.pairs) for one in compared)}")


LEAST_SEEDS = 5
"""With n seeds a resample is n times the lowest seed with probability n^-n. Below five seeds that alone is
1/27 (n = 3) or 1/256 (n = 4): at three the lower end of a 95 % interval is the lowest seed itself and adds
nothing to the seeds. With more seeds an interval still covers less often than its nominal level:
``interval_coverage`` measures how often, and the table prints it."""

DRAWS = 10_000
LEVEL = 0.95
TRIALS = 4_000
_SAMPLES_PER_RESAMPLES = 100


def percentile_interval(
    values: Sequence[float], rng: np.random.Generator, level: float = LEVEL
) -> tuple[float, float]:
    """Percentile interval of the mean of n independent seeds; values: (n,).

    Raises NoTableError below LEAST_SEEDS: then only the seeds themselves may be shown, as the paper does.
    """
    _refuse_few(len(values))
    from scipy.stats import bootstrap

    sample = (np.asarray(values),)
    resampled = bootstrap(
        sample, np.mean, n_resamples=DRAWS, confidence_level=level, method="percentile", random_state=rng
    )
    return float(resampled.confidence_interval.low), float(resampled.confidence_interval.high)


def _refuse_few(seeds: int) -> None:
    if seeds < LEAST_SEEDS:
        raise NoTableError(
            f"too few seeds for an interval ({seeds}, {LEAST_SEEDS} are needed): read the seed rows"
        )


@cache
def interval_coverage(seeds: int) -> float:
    """Estimate the coverage of ``percentile_interval`` for so many normal values, over TRIALS samples.

    Seeds of a run need not be normal; this is what the method does where nothing else is wrong. Samples share
    sets of resamples: drawing those is most of the work. Raises NoTableError below LEAST_SEEDS.
    """
    _refuse_few(seeds)
    rng = stream(0, "bootstrap", "coverage", seeds)
    covered = 0
    for _ in range(TRIALS // _SAMPLES_PER_RESAMPLES):
        picks = rng.integers(seeds, size=(DRAWS, seeds))
        weights = np.array([(picks == seed).mean(axis=1) for seed in range(seeds)])
        means = rng.normal(size=(_SAMPLES_PER_RESAMPLES, seeds)) @ weights
        low, high = np.quantile(means, ((1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0), axis=1)
        covered += np.count_nonzero((low <= 0.0) & (high >= 0.0))
    return covered / TRIALS


@table("Bootstrap intervals", label="Condition/measure")
def intervals(results: Results) -> Noted:
    """Intervals of every condition's means, and of same-seed differences, each resampled by itself.

    Stratified: seeds are resampled within a condition, and a difference resamples pairs of one seed whole.
    Raises NoTableError below LEAST_SEEDS.
    """
    seeds: dict[str, list[Cells]] = {}
    for run in results.cohort:
        seeds.setdefault(run.condition, []).append(measures.measured(run))
    for comparison in results.once(comparisons):
        seeds[comparison.name] = [measures.differences(first, second) for first, second in comparison.pairs]
    covered = {n: interval_coverage(n) for n in sorted({len(cells) for cells in seeds.values()})}
    lines = [
        (label(name, measure.heading), _interval_cells(name, measure.field, cells, covered))
        for name, own in seeds.items()
        for measure, *cells in zip(measures.ALL, *(cells.values() for cells in own), strict=True)
    ]
    sizes = [cells["Mean"].n for _, cells in lines if cells["Low"].value is not None]
    errors = {n: math.sqrt(share * (1.0 - share) / TRIALS) for n, share in covered.items()}
    measured = ", ".join(f"{covered[n]:.1%} ± {errors[n]:.1%} at n = {n}" for n in sorted(set(sizes)))
    missed = sum(1.0 - covered[n] for n in sizes)
    note = (
        f"Percentile intervals of the mean over seeds, nominally {LEVEL:.0%}; {DRAWS} resamples. "
        f"Measured on {TRIALS} simulated samples of normal seeds (± standard error) they cover {measured}. "
        f"The table has {len(sizes)} intervals, uncorrected: at that coverage about {missed:.0f} of them "
        "miss their mean."
    )
    return Noted(lines, note)


def _interval_cells(name: str, field: str, cells: Sequence[Cell], covered: Mapping[int, float]) -> Cells:
    middle, n = mean_cell(cells), len(cells)
    values = [cell.number for cell in cells if cell.number is not None]
    rng, known = stream(0, "bootstrap", name, field), middle.value is not None
    low, high = percentile_interval(values, rng) if known else (None, None)
    formula = f"end of the {LEVEL:.0%} percentile interval of the {middle.formula}"
    share = 100.0 * covered[middle.n] if known else None
    covers = f"samples of {middle.n} normal values whose interval covers their mean, of {TRIALS}, in percent"
    return {
        "Mean": middle,
        "Low": Cell(low, n, formula, middle.origins, middle.decimals),
        "High": Cell(high, n, formula, middle.origins, middle.decimals),
        "Seeds": Cell(n, n, "seeds", middle.origins),
        "Measured coverage (%)": Cell(share, middle.n, covers, middle.origins, 1),
    }

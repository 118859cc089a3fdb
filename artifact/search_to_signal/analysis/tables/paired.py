"""Within-seed differences, two runs of one seed at a time, never pools; their directions and intervals.

Paper, fig. paired-effects; Checkpoint and Search-State Attribution; supplement, Live versus population-reset
search.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np

from search_to_signal.analysis.results import NoTableError, Results, Runs
from search_to_signal.analysis.tables import measures
from search_to_signal.analysis.tables.cells import (
    Cell,
    Cells,
    Row,
    Table,
    count_directions,
    label,
    mean_cell,
    seed_numbers,
    summarized,
)
from search_to_signal.analysis.tables.measures import RunComparison
from search_to_signal.errors import RunDirectoryError
from search_to_signal.records.conditions import FROZEN
from search_to_signal.seeding import stream

DIRECTIONS = "Seeds in which the first is better (strictly above), equal (to the last bit) and worse."


def comparisons(results: Results) -> tuple[RunComparison, ...]:
    """Each trained condition minus Frozen, and each minus Native where the cohort has it."""
    return (*measures.compare_with_frozen(results.cohort), *measures.compare_with(results.cohort, "native"))


def paired(results: Results) -> Table:
    """Same-seed differences of every measure of the live cohort."""
    note = "First minus second, seed by seed; mean ± sample standard deviation over seeds."
    return _paired("paired", "Paired differences", "cohort", results.once(comparisons), note)


def paired_signs(results: Results) -> Table:
    """In how many seeds the first condition is above, equal to and below the second, measure by measure."""
    title = "Directions of paired differences"
    return _signs("paired_signs", title, "cohort", results.once(comparisons))


def few_seeds(numbers: Iterable[int]) -> str:
    """Describe the number of seeds of the comparisons, and the smallest p-value that they allow.

    Of the 2^n ways to flip the signs of n differences, the one with all in one direction and its mirror
    image are the most extreme: a two-sided sign-flipping test gives at least 2/2^n.
    """
    distinct = sorted(set(numbers))
    least = " or ".join(f"{2.0 / 2**n:.3g}" for n in distinct)
    return f"With {seed_numbers(distinct)} a two-sided sign-flipping test cannot give p below {least}."


def _signs(name: str, title: str, layer: str, comparisons: Sequence[RunComparison]) -> Table:
    """Three rows per comparison: the seeds with a positive difference, with none, and with a negative one."""
    rows = []
    for comparison in comparisons:
        seeds = [measures.differences(first, second) for first, second in comparison.pairs]
        columns = [count_directions(cells) for cells in zip(*seeds, strict=True)]
        rows += [Row(label(comparison.name, k), tuple(column[k] for column in columns)) for k in columns[0]]
    note = f"{DIRECTIONS} {few_seeds(len(c.pairs) for c in comparisons)}"
    return Table(name, title, layer, measures.CHANGES, tuple(rows), "Comparison/direction", note)


def _paired(name: str, title: str, layer: str, comparisons: Sequence[RunComparison], note: str) -> Table:
    rows = measures.paired_rows(comparisons, lambda run: {"": measures.measured(run)})
    note = f"{note} {few_seeds(len(c.pairs) for c in comparisons)}"
    return Table(name, title, layer, measures.CHANGES, rows, "Comparison", note)


def restart_runs(results: Results) -> Runs:
    """Return the restarts, checked against their live parents: the same adapter, and no update since.

    Raises RunDirectoryError naming a restart without parent, of another adapter, or that was trained.
    """
    parents = {(run.condition, run.seed): run for run in results.cohort}
    for run in results.restart:
        parent = parents.get((run.condition, run.seed))
        if parent is None:
            raise RunDirectoryError(f"{run.path} has no live parent in the cohort: restore {run.name} there")
        if parent.manifest.final_adapter_sha256 != run.manifest.initial_adapter_sha256:
            raise RunDirectoryError(f"{run.path} did not start from the final adapter of {parent.path}")
        if any(step.training_tokens or step.adapter_sha256 for step in run.steps):
            raise RunDirectoryError(f"{run.path} has optimizer steps: a restart has none")
    return results.restart


def restarts_and_live(results: Results) -> tuple[Runs, Runs]:
    """(restarts, live cohort) over one horizon; raises NoTableError where formal ones have several."""
    restarts = restart_runs(results)
    runs = measures.at_one_horizon((*restarts, *results.cohort))
    return runs[: len(restarts)], runs[len(restarts) :]


def restart_comparisons(results: Results) -> tuple[RunComparison, ...]:
    """Restart minus Frozen and minus its live parent, per condition, and restarts minus Native's restart.

    Raises NoTableError as ``restarts_and_live`` does.
    """
    runs, cohort = restarts_and_live(results)
    live = {(run.condition, run.seed): run for run in cohort}
    to_references: list[RunComparison] = []
    for condition in dict.fromkeys(run.condition for run in runs):
        same = [run for run in runs if run.condition == condition]
        for other in (FROZEN, condition):
            pairs = tuple((r, live[other, r.seed]) for r in same if (other, r.seed) in live)
            if len(pairs) == len(same):
                to_references.append(RunComparison(f"restart/{condition}", f"live/{other}", pairs))
    between = (
        RunComparison(f"restart/{c.first}", f"restart/{c.second}", c.pairs)
        for c in measures.compare_with(runs, "native")
    )
    return (*to_references, *between)


def restart(results: Results) -> Table:
    """Every measure of the restarted searches, by condition and run."""
    rows = summarized(restart_runs(results), lambda run: {"": measures.seed_cells(run)})
    note = "Final adapter, fresh population, no update; mean ± sample standard deviation over seeds."
    return Table("restart", "Frozen restarts", "restart", measures.SEED_COLUMNS, rows, "Condition", note)


def restart_paired(results: Results) -> Table:
    """Same-seed differences of restarts to Frozen, to their live parents, and to each other."""
    note = "First minus second, seed by seed; layers are compared, never pooled."
    return _paired("restart_paired", "Restarts compared", "restart", results.once(restart_comparisons), note)


def restart_signs(results: Results) -> Table:
    """In how many seeds the restart is above, equal to and below what it is compared with."""
    compared = results.once(restart_comparisons)
    return _signs("restart_signs", "Directions of restarts", "restart", compared)


LEAST_SEEDS = 5
"""With n seeds a resample is n times the lowest seed with probability n^-n. Below five seeds that alone is
1/27 (n = 3) or 1/256 (n = 4): at three the lower end of a 95 % interval is the lowest seed itself and adds
nothing to the seeds. With more seeds an interval still covers less often than its nominal level:
``interval_coverage`` measures how often, and the table prints it."""

DRAWS = 10_000
LEVEL = 0.95
TRIALS = 4_000
_SAMPLES_PER_RESAMPLES = 100
INTERVAL_COLUMNS = ("Mean", "Low", "High", "Seeds", "Measured coverage (%)")


def percentile_interval(
    values: Sequence[float], rng: np.random.Generator, level: float = LEVEL
) -> tuple[float, float]:
    """Percentile interval of the mean of n independent seeds; values: (n,).

    Raises NoTableError below LEAST_SEEDS: then only the seeds themselves may be shown, as the paper does.
    """
    if len(values) < LEAST_SEEDS:
        raise _too_few(len(values))
    from scipy.stats import bootstrap

    sample = (np.asarray(values),)
    resampled = bootstrap(
        sample, np.mean, n_resamples=DRAWS, confidence_level=level, method="percentile", random_state=rng
    )
    return float(resampled.confidence_interval.low), float(resampled.confidence_interval.high)


def _too_few(seeds: int) -> NoTableError:
    return NoTableError(
        f"too few seeds for an interval ({seeds}, {LEAST_SEEDS} are needed): read the seed rows"
    )


@cache
def interval_coverage(seeds: int) -> float:
    """Estimate the coverage of ``percentile_interval`` for so many normal values, over TRIALS samples.

    Seeds of a run need not be normal; this is what the method does where nothing else is wrong. Samples share
    sets of resamples: drawing those is most of the work. Raises NoTableError below LEAST_SEEDS.
    """
    if seeds < LEAST_SEEDS:
        raise _too_few(seeds)
    rng = stream(0, "bootstrap", "coverage", seeds)
    covered = 0
    for _ in range(TRIALS // _SAMPLES_PER_RESAMPLES):
        picks = rng.integers(seeds, size=(DRAWS, seeds))
        weights = np.array([(picks == seed).mean(axis=1) for seed in range(seeds)])
        means = rng.normal(size=(_SAMPLES_PER_RESAMPLES, seeds)) @ weights
        low, high = np.quantile(means, ((1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0), axis=1)
        covered += np.count_nonzero((low <= 0.0) & (high >= 0.0))
    return covered / TRIALS


def intervals(results: Results) -> Table:
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
    rows = tuple(row for name, cells in seeds.items() for row in _interval_rows(name, cells, covered))
    note, head = _interval_note(rows, covered), "Condition/measure"
    return Table("intervals", "Bootstrap intervals", "cohort", INTERVAL_COLUMNS, rows, head, note)


def _interval_note(rows: Sequence[Row], covered: Mapping[int, float]) -> str:
    """Describe the intervals: their method, their coverage, and their number."""
    sizes = [row.cells[0].n for row in rows if row.cells[1].value is not None]
    errors = {n: math.sqrt(share * (1.0 - share) / TRIALS) for n, share in covered.items()}
    measured = ", ".join(f"{covered[n]:.1%} ± {errors[n]:.1%} at n = {n}" for n in sorted(set(sizes)))
    missed = sum(1.0 - covered[n] for n in sizes)
    return (
        f"Percentile intervals of the mean over seeds, nominally {LEVEL:.0%}; {DRAWS} resamples. "
        f"Measured on {TRIALS} simulated samples of normal seeds (± standard error) they cover {measured}. "
        f"{len(sizes)} intervals stand here at once, uncorrected: at that coverage about {missed:.0f} of "
        "them miss their mean."
    )


def _interval_rows(name: str, seeds: Sequence[Cells], covered: Mapping[int, float]) -> Iterator[Row]:
    for measure, cells in zip(measures.ALL, zip(*seeds, strict=True), strict=True):
        middle = mean_cell(cells)
        values = [cell.number for cell in cells if cell.number is not None]
        rng = stream(0, "bootstrap", name, measure.field)
        ends = percentile_interval(values, rng) if middle.value is not None else (None, None)
        formula = f"end of the {LEVEL:.0%} percentile interval of the {middle.formula}"
        interval = [Cell(end, len(cells), formula, middle.origins, middle.decimals) for end in ends]
        size = Cell(len(cells), len(cells), "seeds", middle.origins)
        share = None if middle.value is None else 100.0 * covered[middle.n]
        formula = f"of {TRIALS} samples of {middle.n} normal values those whose interval covers, in percent"
        coverage = Cell(share, middle.n, formula, middle.origins, 1)
        yield Row(label(name, measure.heading), (middle, *interval, size, coverage))

"""Core results of searches, how much of them was new, and their long prompts, over seeds and run by run.

Paper, tables core-results, core-seeds; Metrics; supplement, Collapse and exact recurrence. Texts are compared
by hash, which sees exact replay, no semantic or algorithmic likeness. Programs are compared in canonical
form, so that names, comments and layout do not count. Differences (fig. paired-effects) are of two runs of
one seed at a time, never of pools.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.numerics import Bools, Floats
from search_to_signal.base.progress import counted
from search_to_signal.base.seeding import stream
from search_to_signal.records.groups import OUTCOMES, GroupBatch
from search_to_signal.records.layers import BREADTH, COHORT
from search_to_signal.records.schema import CALM_OPERATORS, Outcome
from search_to_signal.report.metrics.search import beats_frontier, improves, ratio
from search_to_signal.report.results import NoTableError, Origin, RecordedRun, Results
from search_to_signal.report.tables import measures
from search_to_signal.report.tables.cells import (
    Cell,
    Cells,
    Line,
    Noted,
    Parts,
    RowsOf,
    TableSpec,
    combined_cells,
    count_cell,
    count_directions,
    difference_cell,
    known_mean_cell,
    label,
    mean_cell,
    number_cell,
    percent_cell,
    run_table,
    seed_numbers,
    share_cell,
    summarized,
    table,
    total_cell,
)
from search_to_signal.report.tables.measures import RunComparison


@table("Core results")
def core_results(results: Results) -> Noted:
    """Final best, AUC, validity, valid-only performance and improve yield, over seeds."""
    conditions = groupby(results.cohort, key=lambda run: run.condition)
    lines = []
    for name, runs in conditions:
        cells = [measures.measured(run, measures.CORE) for run in runs]
        lines.append((name, combined_cells(cells, mean_cell)))
    seeds = counted(len({run.seed for run in results.cohort}), "seed")
    return Noted(lines, f"Mean ± sample standard deviation over {seeds}; higher is better.")


@table("Core results by seed", "One run each; higher is better.", label="Run")
def core_seeds(results: Results) -> list[Line]:
    """Every run of the live cohort, with its strict-frontier yield and its training tokens."""
    return [(run.name, measures.seed_cells(run)) for run in results.cohort]


def calls_after(run: RecordedRun) -> NDArray[np.int64]:
    """(T,) evaluator calls up to and including each group: completions that reached the evaluator.

    A program that was evaluated before counts again: the host would have run it again. A completion without
    rationale, code or function is none: the host never calls its evaluator on it (D04).
    """
    return np.cumsum(run.batch.evaluated.sum(axis=1))


def truncated(online: RecordedRun, frozen: RecordedRun) -> Cells:
    """One seed: the whole groups that need no more calls than Frozen made in all.

    More valid completions mean more evaluator calls at equal groups (paper, Live-Search Results).
    """
    budget = int(calls_after(frozen)[-1])
    kept = int(np.searchsorted(calls_after(online), budget, side="right"))
    prefix = online.completions_of(0, kept)
    best = measures.FINAL_BEST.of(float(online.best[kept - 1]) if kept else None, prefix)
    base = measures.FINAL_BEST.cell(frozen)
    calls = "completions of Frozen that reached the evaluator"
    return {
        "Evaluator calls": number_cell(budget, calls, frozen.all_completions, decimals=0),
        "Groups kept": number_cell(kept, "groups within these calls", prefix, decimals=1),
        "Final best": best,
        "Frozen final best": base,
        "Difference": difference_cell(best, base),
    }


@table(
    "At equal evaluator calls",
    "Online runs cut at Frozen's evaluator calls of the same seed; mean ± sample deviation over seeds.",
)
def truncation(results: Results) -> list[Line]:
    """Final best of every online run at the evaluator calls of the frozen run of its seed."""
    rows: list[Line] = []
    singles: list[Line] = []
    for comparison in measures.compare_with_frozen(results.cohort):
        seeds = [truncated(online, frozen) for online, frozen in comparison.pairs]
        rows.append((comparison.first, combined_cells(seeds, mean_cell)))
        singles += [(online.name, cells) for (online, _), cells in zip(comparison.pairs, seeds, strict=True)]
    return rows + singles


@run_table(
    "Coverage", "Distinct things per hundred; mean ± sample standard deviation over seeds.", combine=mean_cell
)
def coverage(run: RecordedRun) -> Cells:
    """Distinct items per item: proxies of coverage, none of them semantic diversity."""
    records = [record for group in run.groups for record in group]
    programs = [record.program_sha256 for record in records if record.program_sha256 is not None]
    valid = [record for record in records if record.score is not None]

    def distinct(keys: Sequence[Hashable], what: str) -> Cell:
        return percent_cell(len(set(keys)), len(keys), f"distinct {what}", run.all_completions)

    return measures.measured(run, (measures.RESPONSES, measures.PROMPTS, measures.PARENTS)) | {
        "Unique programs (%)": distinct(programs, "canonical programs / completions with a program"),
        "Unique valid programs (%)": distinct(
            [record.program_sha256 for record in valid], "canonical programs / valid completions"
        ),
        "Unique scores (%)": distinct([record.score for record in valid], "scores / valid completions"),
    }


RECURRENCE_GROUPS = 25
RECURRING_GAP = "Positive minus not positive (points)"


def next_occurrence(run: RecordedRun) -> NDArray[np.float64]:
    """(T, G): groups until the same response text occurs in a later group; infinite if never."""
    distance = np.full(run.batch.outcome.shape, np.inf)
    following: dict[str, int] = {}
    for t in reversed(range(len(run.groups))):
        texts = [record.response_sha256 for record in run.groups[t]]
        distance[t] = [following.get(text, np.inf) - t for text in texts]
        following.update(dict.fromkeys(texts, t))
    return distance


def recurrence_cells(run: RecordedRun, within: int = RECURRENCE_GROUPS) -> Cells:
    """Over the groups that have ``within`` groups after them."""
    whole = max(len(run.groups) - within, 0)
    again: Bools = next_occurrence(run)[:whole] <= within
    origin = run.completions_of(0, whole)
    if run.advantages is None:
        positive = other = np.zeros_like(again)
    else:
        positive = run.advantages[:whole] > 0.0
        other = ~positive
    base = f"completions whose text recurs within {within} later groups / completions"
    up = percent_cell((again & positive).sum(), positive.sum(), f"{base} with positive advantage", origin)
    down = percent_cell((again & other).sum(), other.sum(), f"{base} without positive advantage", origin)
    return {
        "Recurring (%)": percent_cell(again.sum(), again.size, base, origin),
        "Recurring, positive (%)": up,
        "Recurring, not positive (%)": down,
        RECURRING_GAP: difference_cell(up, down),
    }


@table(
    "Exact recurrence",
    f"Within {RECURRENCE_GROUPS} later groups; groups nearer to a run's end are left out. Means of the "
    "seeds' shares ± sample standard deviation.",
)
def recurrence(results: Results) -> list[Line]:
    """Raises NoTableError where all runs are too short for it."""
    if all(len(run.groups) <= RECURRENCE_GROUPS for run in results.cohort):
        raise NoTableError(f"no run of the cohort has more than {RECURRENCE_GROUPS} groups")
    return summarized(results.cohort, recurrence_cells, mean_cell)


def prompt_cuts(run: RecordedRun) -> list[int]:
    """Return the number of tokens cut from the prompt of each group."""
    return [step.prompt_tokens_cut or 0 for step in run.steps]


def prompt_cells(runs: Sequence[RecordedRun]) -> Cells:
    """Prompts and those over their limit, over the groups of one or several runs."""
    cuts = [prompt_cuts(run) for run in runs]
    lost = [cut for own in cuts for cut in own if cut]
    longest = max(
        max(record.prompt_tokens for record in group) + cut
        for run, own in zip(runs, cuts, strict=True)
        for group, cut in zip(run.groups, own, strict=True)
    )
    steps = tuple(run.all_steps for run in runs)
    where = [
        run.steps_at([t for t, cut in enumerate(own) if cut]) for run, own in zip(runs, cuts, strict=True)
    ]
    read = (*steps, *(run.all_completions for run in runs))
    groups, n = sum(len(run.steps) for run in runs), len(runs)
    return {
        "Groups": count_cell(groups, "groups, one prompt each", *steps, n=n),
        "Cut prompts": count_cell(len(lost), "prompts over their limit", *where, n=n),
        "Tokens cut": count_cell(sum(lost), "tokens that these lost on their left", *where, n=n),
        "Longest prompt": count_cell(longest, "tokens of the longest prompt before its cut", *read, n=n),
    }


def prompts_of(layer: str) -> TableSpec[RowsOf]:
    """Return the table of a layer's prompts over their limit, which are cut on the left (D26).

    Without such prompts only the cohort has the table.
    """

    def rows(results: Results) -> list[Line]:
        cells = results.breadth if layer == BREADTH else {"": getattr(results, layer)}
        if layer != COHORT and not any(any(prompt_cuts(run)) for runs in cells.values() for run in runs):
            raise NoTableError(f"no prompt of layer {layer} was over its limit")
        # Cells are never summed: only a layer without cells has rows by condition.
        conditions = groupby(cells.get("", ()), key=lambda run: run.condition)
        lines = [(name, prompt_cells(list(runs))) for name, runs in conditions]
        for cell, runs in cells.items():
            lines += [(f"{cell}/{run.name}" if cell else run.name, prompt_cells([run])) for run in runs]
        return lines

    note = "Sums over seeds, and each run. Of a prompt over its limit the last tokens were read and scored."
    name = "prompts" if layer == COHORT else f"{layer}_prompts"
    return TableSpec(name, "Prompts over their limit", layer, "Condition", note, (), rows, rows)


prompts = prompts_of(COHORT)


# The proposal stream by operator, by stage of a run and around collapses, and what the archive admitted
# (paper, Proposal-Stream Analysis, fig. stage-dynamics; supplement, Operators and proposal outcomes,
# Population admission). Observational: when a collapse comes depends on what went before.

FUNNEL: Mapping[str, str] = {
    "Parsed (%)": "completions with rationale, code and required function, which reach the evaluator",
    "Executable (%)": "of these, completions that ran to an answer on every instance",
    "Valid (%)": "of these, completions without detected randomness, hence with a score",
    "Parent-improving (%)": "completions better than their best prompt base",
    "Frontier (%)": "completions better than the frontier before their group",
}


def funnel_masks(batch: GroupBatch) -> tuple[Bools, ...]:
    """(N, G) for each of FUNNEL. The first three are nested by the host's order of checks (D04).

    Parent-improving and frontier are subsets of valid; without a comparator nothing is parent-improving
    (D05), so a creation can reach the frontier without it.
    """
    parsed = batch.evaluated
    executable = parsed & (batch.outcome != OUTCOMES.index(Outcome.RUNTIME_FAILURE))
    return parsed, executable, batch.valid, improves(batch), beats_frontier(batch)


def funnel_cells(batch: GroupBatch, origin: Origin) -> Cells:
    """The number of completions of some groups, and shares of them all."""
    shares = {
        heading: share_cell(ratio(int(mask.sum()), mask.size), f"{what} / completions", origin)
        for mask, (heading, what) in zip(funnel_masks(batch), FUNNEL.items(), strict=True)
    }
    return {"Completions": count_cell(batch.outcome.size, "completions", origin), **shares}


def operator_names(runs: Sequence[RecordedRun]) -> tuple[str, ...]:
    """Return the operators with rows in tables: CALM's, or the recorded ones if any other occurs."""
    recorded = {name for run in runs for name in run.operators}
    return CALM_OPERATORS if recorded <= set(CALM_OPERATORS) else tuple(sorted(recorded))


def funnels(run: RecordedRun, names: Sequence[str]) -> Parts:
    """Return the funnel of every operator and of all together; an unused operator has no shares."""
    shape = run.batch.outcome.shape
    parts: dict[str, Cells] = {"all": funnel_cells(run.batch, run.all_completions)}
    for operator in names:
        drawn = np.array([used == operator for used in run.operators])
        lines = run.completions(np.broadcast_to(drawn[:, None], shape))
        parts[operator] = funnel_cells(run.batch.at(drawn), lines)
    return parts


def _funnels(results: Results) -> dict[str, Parts]:
    names = operator_names(results.cohort)
    return {run.name: funnels(run, names) for run in results.cohort}


@table(
    "Funnels by operator",
    "Shares of the completions that were asked for with the operator: means of the seeds' shares ± "
    "sample standard deviation, none where a seed never drew it; counts are sums over seeds.",
    label="Condition/operator",
)
def operators(results: Results) -> list[Line]:
    """Funnels by condition and operator, and by run and operator."""
    funnels_by_run = results.once(_funnels)
    return summarized(results.cohort, lambda run: funnels_by_run[run.name])


@table(
    "Gains by operator",
    "Same-seed differences to Frozen, mean ± sample standard deviation over seeds.",
    label="Comparison/operator",
)
def operator_gains(results: Results) -> list[Line]:
    """Funnel shares minus those of the frozen run of the same seed, in points, by operator."""
    pairs, funnels_by_run = measures.compare_with_frozen(results.cohort), results.once(_funnels)

    def shares(run: RecordedRun) -> Parts:
        parts = funnels_by_run[run.name].items()
        return {part: {heading: cells[heading] for heading in FUNNEL} for part, cells in parts}

    return measures.paired_rows(pairs, shares)


# The paper's groups 1-100, 101-250 and 251-500 of 500, as shares of a run of any length.
STAGES = (("early", 0.2), ("middle", 0.5), ("late", 1.0))


def stage_bounds(groups: int) -> dict[str, tuple[int, int]]:
    """First group and end of each stage, counted from 0; a stage may be empty in a very short run."""
    ends = [round(share * groups) for _, share in STAGES]
    return {name: (start, end) for (name, _), start, end in zip(STAGES, [0, *ends[:-1]], ends, strict=True)}


@run_table(
    "Stage dynamics",
    "Early, middle and late: the first 20 %, the next 30 % and the last 50 % of the groups. Means of the "
    "seeds' values ± sample standard deviation.",
    label="Condition/stage",
)
def stages(run: RecordedRun) -> Parts:
    """Stages of each condition's own contexts: no fixed-prompt evaluation."""
    parts = {}
    for name, (start, stop) in stage_bounds(len(run.groups)).items():
        value, origin = float(run.best[stop - 1]) if stop else None, run.completions_of(0, stop)
        best = measures.FINAL_BEST.of(value, origin)
        parts[name] = {**measures.stream_cells(run, start, stop), "Best at the end": best}
    return parts


# The paper gives no width; ten groups stay well below its stagnation threshold of 25.
WINDOW = 10


def windows(collapses: Sequence[int], groups: int, width: int = WINDOW) -> list[tuple[int, int, int]]:
    """(start, collapse, stop) per collapse: up to ``width`` groups on each side, counted from 0.

    A window reaches neither beyond the run nor into the next collapse's population, so that "before" and
    "after" are one population each. A collapse without a group before it has no window.
    """
    edges = [0, *collapses, groups]
    return [
        (max(before, at - width), at, min(after, at + width))
        for before, at, after in zip(edges[:-2], edges[1:-1], edges[2:], strict=True)
        if at > 0
    ]


def collapse_parts(run: RecordedRun) -> Parts:
    """By measure of the proposal stream: means over windows with a value on both sides."""
    events = [t for t, step in enumerate(run.steps) if step.collapsed]
    spans = windows(events, len(run.groups))
    bare = sorted(set(events) - {at for _, at, _ in spans})
    cut = [at for start, at, stop in spans if min(at - start, stop - at) < WINDOW]
    counts = {
        heading: count_cell(len(steps), formula, run.steps_at(steps))
        for heading, steps, formula in (
            ("Collapses", events, "collapses"),
            ("No window", bare, "collapses without a group before them"),
            ("Cut windows", cut, f"windows with a side of under {WINDOW} groups"),
        )
    }
    sides = (
        [measures.stream_cells(run, start, at) for start, at, _ in spans],
        [measures.stream_cells(run, at, stop) for _, at, stop in spans],
    )
    parts = {}
    for measure in measures.STREAM:
        # (windows,), NaN where a side has no value.
        before, after = (
            np.array([np.nan if (n := c[measure.heading].number) is None else n for c in side])
            for side in sides
        )
        parts[measure.heading] = _window_cells(run, measure, counts, before, after)
    return parts


def _window_cells(
    run: RecordedRun, measure: measures.Measure, counts: Cells, before: Floats, after: Floats
) -> Cells:
    both, origin = ~np.isnan(before) & ~np.isnan(after), run.all_completions

    def mean(values: Floats, what: str) -> Cell:
        formula = f"mean over windows with a value on both sides of ({measure.formula}) {what} the collapse"
        value = float(values[both].mean()) if both.any() else None
        return number_cell(value, formula, origin, decimals=measure.decimals)

    return {
        "Seeds": count_cell(int(both.any()), "runs with such a window", origin),
        **counts,
        "Windows": count_cell(int(both.sum()), "windows with a value on both sides", origin),
        "Before": mean(before, "before"),
        "After": mean(after, "after"),
        "Change": mean(after - before, "after minus before"),
    }


@table("Around collapses", label="Condition/measure")
def collapses(results: Results) -> Noted:
    """Raises NoTableError where nothing collapsed."""
    runs = results.cohort
    if not any(step.collapsed for run in runs for step in run.steps):
        raise NoTableError("no population of the cohort collapsed")
    seeds = seed_numbers(Counter(run.condition for run in runs).values())
    note = (
        f"A window has up to {WINDOW} groups on each side of a collapse; it is cut where run or population "
        "end sooner, and missing without a group before. Means over the windows with a value on both sides, "
        f"then over the seeds with any, of {seeds}; counts are sums."
    )

    def combined(cells: Sequence[Cell]) -> Cell:
        return total_cell(cells) if isinstance(cells[0].value, int) else known_mean_cell(cells)

    return Noted(summarized(runs, collapse_parts, combined), note)


@run_table(
    "Archive admissions",
    "Counts are sums over seeds; shares are means of the seeds' shares ± sample standard deviation.",
)
def admissions(run: RecordedRun) -> Cells:
    """Admissions, and those that beat the frontier before their group: memory, not credit, not discovery."""
    best = run.admitted & beats_frontier(run.batch)
    admitted, beat = int(run.admitted.sum()), int(best.sum())
    chosen, above = run.completions(run.admitted), run.completions(best)
    better = "admissions better than the frontier before their group"
    of_admitted, of_all = "admissions that beat the frontier / admissions", "admissions / completions"
    return {
        "Admissions": count_cell(admitted, "completions taken into the archive", chosen),
        "Beat the frontier": count_cell(beat, better, above),
        "Precision (%)": percent_cell(beat, admitted, of_admitted, chosen),
        "Admitted (%)": percent_cell(admitted, run.admitted.size, of_all, run.all_completions),
    }


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

"""The proposal stream by operator, by stage of a run and around collapses, and what the archive admitted.

Paper, Proposal-Stream Analysis, fig. stage-dynamics; supplement, Operators and proposal outcomes, Population
admission, Collapse and exact recurrence. Observational: when a collapse comes depends on what went before.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from search_to_signal.base.numerics import Bools, Floats
from search_to_signal.records.groups import OUTCOMES, GroupBatch
from search_to_signal.records.schema import CALM_OPERATORS, Outcome
from search_to_signal.report.metrics.search import beats_frontier, improves, ratio
from search_to_signal.report.results import NoTableError, Origin, RecordedRun, Results
from search_to_signal.report.tables.cells import (
    Cell,
    Cells,
    Line,
    Noted,
    Parts,
    count_cell,
    known_mean_cell,
    number_cell,
    percent_cell,
    run_table,
    seed_numbers,
    share_cell,
    summarized,
    table,
    total_cell,
)
from search_to_signal.report.tables.measures import (
    FINAL_BEST,
    STREAM,
    Measure,
    compare_with_frozen,
    paired_rows,
    stream_cells,
)

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
    pairs, funnels_by_run = compare_with_frozen(results.cohort), results.once(_funnels)

    def shares(run: RecordedRun) -> Parts:
        parts = funnels_by_run[run.name].items()
        return {part: {heading: cells[heading] for heading in FUNNEL} for part, cells in parts}

    return paired_rows(pairs, shares)


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
        best = FINAL_BEST.of(float(run.best[stop - 1]) if stop else None, run.completions_of(0, stop))
        parts[name] = {**_stream_cells(run, start, stop), "Best at the end": best}
    return parts


def _stream_cells(run: RecordedRun, start: int, stop: int) -> Cells:
    return stream_cells(run.batch.at(slice(start, stop)), run.completions_of(start, stop))


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
        [_stream_cells(run, start, at) for start, at, _ in spans],
        [_stream_cells(run, at, stop) for _, at, stop in spans],
    )
    parts = {}
    for measure in STREAM:
        # (windows,), NaN where a side has no value.
        before, after = (
            np.array([np.nan if (n := c[measure.heading].number) is None else n for c in side])
            for side in sides
        )
        parts[measure.heading] = _window_cells(run, measure, counts, before, after)
    return parts


def _window_cells(run: RecordedRun, measure: Measure, counts: Cells, before: Floats, after: Floats) -> Cells:
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
    return Noted(summarized(runs, collapse_parts, _combined), note)


def _combined(cells: Sequence[Cell]) -> Cell:
    return total_cell(cells) if isinstance(cells[0].value, int) else known_mean_cell(cells)


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

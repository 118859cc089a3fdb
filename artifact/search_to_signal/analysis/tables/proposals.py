"""The proposal stream by operator, by stage of a run and around collapses, and what the archive admitted.

Paper, Proposal-Stream Analysis, fig. stage-dynamics; supplement, Operators and proposal outcomes, Population
admission, Collapse and exact recurrence. Observational: when a collapse comes depends on what went before.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from search_to_signal.analysis.metrics.search import beats_frontier, improves, ratio
from search_to_signal.analysis.results import NoTableError, Origin, RecordedRun, Results
from search_to_signal.analysis.tables.cells import (
    Cell,
    Cells,
    Parts,
    Table,
    change_of,
    known_mean_cell,
    number_cell,
    percent_cell,
    seed_numbers,
    share_cell,
    summarized,
    total_cell,
)
from search_to_signal.analysis.tables.measures import (
    FINAL_BEST,
    STREAM,
    Measure,
    compare_with_frozen,
    paired_rows,
    stream_cells,
)
from search_to_signal.numerics import Bools, Floats
from search_to_signal.records.abilities import CALM_OPERATORS
from search_to_signal.records.groups import OUTCOMES, GroupBatch
from search_to_signal.records.schema import Outcome

FUNNEL: tuple[tuple[str, str], ...] = (
    ("Parsed (%)", "completions with rationale, code and required function, which reach the evaluator"),
    ("Executable (%)", "of these, completions that ran to an answer on every instance"),
    ("Valid (%)", "of these, completions without detected randomness, hence with a score"),
    ("Parent-improving (%)", "completions better than their best prompt base"),
    ("Frontier (%)", "completions better than the frontier before their group"),
)
FUNNEL_COLUMNS = ("Completions", *(heading for heading, _ in FUNNEL))


def funnel_masks(batch: GroupBatch) -> tuple[Bools, ...]:
    """(N, G) for each of FUNNEL. The first three are nested by the host's order of checks (D04).

    Parent-improving and frontier are subsets of valid; without a comparator nothing is parent-improving
    (D05), so a creation can reach the frontier without it.
    """
    parsed = batch.evaluated
    executable = parsed & (batch.outcome != OUTCOMES.index(Outcome.RUNTIME_FAILURE))
    return parsed, executable, batch.valid, improves(batch), beats_frontier(batch)


def funnel_cells(batch: GroupBatch, origin: Origin) -> Cells:
    """The cells of FUNNEL_COLUMNS over some groups; shares of all their completions."""
    shares = (
        share_cell(ratio(int(mask.sum()), mask.size), f"{what} / completions", origin)
        for mask, (_, what) in zip(funnel_masks(batch), FUNNEL, strict=True)
    )
    return (Cell(batch.outcome.size, formula="completions", origins=(origin,)), *shares)


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


def operators(results: Results) -> Table:
    """Funnels by condition and operator, and by run and operator."""
    note = (
        "Shares of the completions that were asked for with the operator: means of the seeds' shares ± "
        "sample standard deviation, none where a seed never drew it; counts are sums over seeds."
    )
    funnels_by_run = results.once(_funnels)
    head, rows = "Condition/operator", summarized(results.cohort, lambda run: funnels_by_run[run.name])
    return Table("operators", "Funnels by operator", "cohort", FUNNEL_COLUMNS, rows, head, note)


def operator_gains(results: Results) -> Table:
    """Funnel shares minus those of the frozen run of the same seed, in points, by operator."""
    note = "Same-seed differences to Frozen, mean ± sample standard deviation over seeds."
    columns = tuple(change_of(heading) for heading, _ in FUNNEL)
    pairs = compare_with_frozen(results.cohort)
    funnels_by_run = results.once(_funnels)
    rows = paired_rows(
        pairs, lambda run: {part: cells[1:] for part, cells in funnels_by_run[run.name].items()}
    )
    return Table("operator_gains", "Gains by operator", "cohort", columns, rows, "Comparison/operator", note)


# The paper's groups 1-100, 101-250 and 251-500 of 500, as shares of a run of any length.
STAGES = (("early", 0.2), ("middle", 0.5), ("late", 1.0))
STAGE_COLUMNS = (*(measure.heading for measure in STREAM), "Best at the end")


def stage_bounds(groups: int) -> dict[str, tuple[int, int]]:
    """First group and end of each stage, counted from 0; a stage may be empty in a very short run."""
    ends = [round(share * groups) for _, share in STAGES]
    return {name: (start, end) for (name, _), start, end in zip(STAGES, [0, *ends[:-1]], ends, strict=True)}


def stage_parts(run: RecordedRun) -> Parts:
    """STAGE_COLUMNS of each stage of a run."""
    parts = {}
    for name, (start, stop) in stage_bounds(len(run.groups)).items():
        origin = run.completions_of(start, stop)
        best = float(run.best[stop - 1]) if stop else None
        cells = stream_cells(run.batch.at(slice(start, stop)), origin)
        parts[name] = (*cells, FINAL_BEST.of(best, run.completions_of(0, stop)))
    return parts


def stages(results: Results) -> Table:
    """Stages by condition and run, of each condition's own contexts: no fixed-prompt evaluation."""
    note = (
        "Early, middle and late: the first 20 %, the next 30 % and the last 50 % of the groups. Means of the "
        "seeds' values ± sample standard deviation."
    )
    rows = summarized(results.cohort, stage_parts)
    return Table("stages", "Stage dynamics", "cohort", STAGE_COLUMNS, rows, "Condition/stage", note)


# The paper gives no width; ten groups stay well below its stagnation threshold of 25.
WINDOW = 10
COLLAPSE_COLUMNS = ("Seeds", "Collapses", "No window", "Cut windows", "Windows", "Before", "After", "Change")


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
    """COLLAPSE_COLUMNS by measure of the proposal stream: means over windows with a value on both sides."""
    events = [t for t, step in enumerate(run.steps) if step.collapsed]
    spans = windows(events, len(run.groups))
    bare = sorted(set(events) - {at for _, at, _ in spans})
    cut = [at for start, at, stop in spans if min(at - start, stop - at) < WINDOW]
    counts = tuple(
        Cell(len(steps), formula=formula, origins=(run.steps_at(steps),))
        for steps, formula in (
            (events, "collapses"),
            (bare, "collapses without a group before them"),
            (cut, f"windows with a side of under {WINDOW} groups"),
        )
    )
    before = np.array([_stream_values(run, start, at) for start, at, _ in spans]).reshape(-1, len(STREAM))
    after = np.array([_stream_values(run, at, stop) for _, at, stop in spans]).reshape(-1, len(STREAM))
    return {
        measure.heading: _window_cells(run, measure, counts, before[:, m], after[:, m])
        for m, measure in enumerate(STREAM)
    }


def _window_cells(run: RecordedRun, measure: Measure, counts: Cells, before: Floats, after: Floats) -> Cells:
    """COLLAPSE_COLUMNS of one measure; before and after: (windows,), NaN where a side has no value."""
    both = ~np.isnan(before) & ~np.isnan(after)
    sides = ((before, "before"), (after, "after"), (after - before, "after minus before"))
    origins = (run.all_completions,)
    return (
        Cell(int(both.any()), formula="runs with such a window", origins=origins),
        *counts,
        Cell(int(both.sum()), formula="windows with a value on both sides", origins=origins),
        *(_window_mean(values[both], measure, what, run) for values, what in sides),
    )


def collapses(results: Results) -> Table:
    """Collapse-centred windows by condition and run; raises NoTableError where nothing collapsed."""
    runs = results.cohort
    if not any(step.collapsed for run in runs for step in run.steps):
        raise NoTableError("no population of the cohort collapsed")
    seeds = seed_numbers(Counter(run.condition for run in runs).values())
    note = (
        f"A window has up to {WINDOW} groups on each side of a collapse; it is cut where run or population "
        "end sooner, and missing without a group before. Means over the windows with a value on both sides, "
        f"then over the seeds with any, of {seeds}; counts are sums."
    )
    rows = summarized(runs, collapse_parts, _combined)
    return Table("collapses", "Around collapses", "cohort", COLLAPSE_COLUMNS, rows, "Condition/measure", note)


def _combined(cells: Sequence[Cell]) -> Cell:
    return total_cell(cells) if isinstance(cells[0].value, int) else known_mean_cell(cells)


def _stream_values(run: RecordedRun, start: int, stop: int) -> list[float]:
    cells = stream_cells(run.batch.at(slice(start, stop)), run.completions_of(start, stop))
    return [np.nan if cell.number is None else cell.number for cell in cells]


def _window_mean(values: Floats, measure: Measure, what: str, run: RecordedRun) -> Cell:
    formula = f"mean over windows with a value on both sides of ({measure.formula}) {what} the collapse"
    value = float(values.mean()) if len(values) else None
    return number_cell(value, formula, run.all_completions, decimals=measure.decimals)


ADMISSION_COLUMNS = ("Admissions", "Beat the frontier", "Precision (%)", "Admitted (%)")


def admission_cells(run: RecordedRun) -> Parts:
    """Admissions, those of them that beat the frontier before their group, and the shares of both."""
    best = run.admitted & beats_frontier(run.batch)
    admitted, beat = int(run.admitted.sum()), int(best.sum())
    chosen, above = run.completions(run.admitted), run.completions(best)
    return {
        "": (
            Cell(admitted, formula="completions taken into the archive", origins=(chosen,)),
            Cell(beat, formula="admissions better than the frontier before their group", origins=(above,)),
            percent_cell(beat, admitted, "admissions that beat the frontier / admissions", chosen),
            percent_cell(admitted, run.admitted.size, "admissions / completions", run.all_completions),
        )
    }


def admissions(results: Results) -> Table:
    """Admissions by condition and run: search memory, not credit and not discovery."""
    note = "Counts are sums over seeds; shares are means of the seeds' shares ± sample standard deviation."
    rows = summarized(results.cohort, admission_cells)
    return Table("admissions", "Archive admissions", "cohort", ADMISSION_COLUMNS, rows, "Condition", note)

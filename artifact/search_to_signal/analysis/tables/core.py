"""Core results of searches, how much of them was new, and their long prompts, over seeds and run by run.

Paper, tables core-results, core-seeds, live-breadth, api-reference; Metrics; supplement, Collapse and exact
recurrence. Texts are compared by hash, which sees exact replay, no semantic or algorithmic likeness.
Programs are compared in canonical form, so that names, comments and layout do not count.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from search_to_signal.analysis.results import NoTableError, RecordedRun, Results
from search_to_signal.analysis.tables import measures
from search_to_signal.analysis.tables.cells import (
    Cell,
    Cells,
    Parts,
    Row,
    Table,
    condition_rows,
    difference_cell,
    label,
    mean_cell,
    number_cell,
    over_seeds,
    percent_cell,
    seed_rows,
    summarized,
)
from search_to_signal.numerics import Bools
from search_to_signal.progress import counted
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.layers import BREADTH, COHORT


def core_results(results: Results) -> Table:
    """Final best, AUC, validity, valid-only performance and improve yield, over seeds."""
    runs = results.cohort
    seeds = counted(len({run.seed for run in runs}), "seed")
    note = f"Mean ± sample standard deviation over {seeds}; higher is better."
    columns = tuple(measure.heading for measure in measures.CORE)
    rows = condition_rows(runs, lambda run: {"": measures.measured(run, measures.CORE)}, mean_cell)
    return Table("core_results", "Core results", "cohort", columns, rows, "Condition", note)


def core_seeds(results: Results) -> Table:
    """Every run of the live cohort by itself, with its strict-frontier yield and its training tokens."""
    rows = seed_rows(results.cohort, lambda run: {"": measures.seed_cells(run)})
    note = "One run each; higher is better."
    return Table("core_seeds", "Core results by seed", "cohort", measures.SEED_COLUMNS, rows, "Run", note)


TRUNCATION_COLUMNS = ("Evaluator calls", "Groups kept", "Final best", "Frozen final best", "Difference")


def calls_after(run: RecordedRun) -> NDArray[np.int64]:
    """(T,) evaluator calls up to and including each group: completions that reached the evaluator.

    A program that was evaluated before counts again: the host would have run it again. A completion without
    rationale, code or function is none: the host never calls its evaluator on it (D04).
    """
    return np.cumsum(run.batch.evaluated.sum(axis=1))


def truncated(online: RecordedRun, frozen: RecordedRun) -> Parts:
    """TRUNCATION_COLUMNS of one seed: the whole groups that need no more calls than Frozen made in all.

    More valid completions mean more evaluator calls at equal groups (paper, Live-Search Results).
    """
    budget = int(calls_after(frozen)[-1])
    kept = int(np.searchsorted(calls_after(online), budget, side="right"))
    prefix = online.completions_of(0, kept)
    best = measures.FINAL_BEST.of(float(online.best[kept - 1]) if kept else None, prefix)
    base = measures.FINAL_BEST.cell(frozen)
    calls = "completions of Frozen that reached the evaluator"
    return {
        "": (
            number_cell(budget, calls, frozen.all_completions, decimals=0),
            number_cell(kept, "groups within these calls", prefix, decimals=1),
            best,
            base,
            difference_cell(best, base),
        )
    }


def truncation(results: Results) -> Table:
    """Final best of every online run at the evaluator calls of the frozen run of its seed."""
    rows: list[Row] = []
    singles: list[Row] = []
    for comparison in measures.compare_with_frozen(results.cohort):
        seeds = [truncated(online, frozen) for online, frozen in comparison.pairs]
        rows += over_seeds(comparison.first, seeds, mean_cell)
        singles += [Row(online.name, s[""]) for (online, _), s in zip(comparison.pairs, seeds, strict=True)]
    note = "Online runs cut at Frozen's evaluator calls of the same seed; mean ± sample deviation over seeds."
    title, rows = "At equal evaluator calls", [*rows, *singles]
    return Table("truncation", title, "cohort", TRUNCATION_COLUMNS, tuple(rows), "Condition", note)


def breadth(results: Results) -> Table:
    """Every run of every cell by itself: no cell is averaged with another, directions only."""
    rows = tuple(
        Row(label(cell, run.name), measures.seed_cells(run))
        for cell, runs in results.breadth.items()
        for run in runs
    )
    note = "One run each, by task-model cell; no aggregate over cells."
    return Table("breadth", "Directional breadth", "breadth", measures.SEED_COLUMNS, rows, "Cell/run", note)


def breadth_comparisons(results: Results) -> list[tuple[str, measures.RunComparison]]:
    """Trained conditions minus Frozen by cell; raises NoTableError where no cell has both."""
    cells = results.breadth.items()
    comparisons = [
        (cell, comparison) for cell, runs in cells for comparison in measures.compare_with(runs, FROZEN)
    ]
    if not comparisons:
        raise NoTableError("no cell has a trained run beside its frozen one")
    return comparisons


def breadth_gains(results: Results) -> Table:
    """Online minus Frozen within each cell and seed."""
    rows = tuple(
        Row(label(cell, comparison.of_seed(online.seed)), measures.differences(online, frozen))
        for cell, comparison in breadth_comparisons(results)
        for online, frozen in comparison.pairs
    )
    note = "First minus second of one seed, by cell; directions only."
    return Table(
        "breadth_gains", "Directions by cell", "breadth", measures.CHANGES, rows, "Cell/comparison", note
    )


_API_MEASURES = (*measures.STREAM, measures.FINAL_BEST, measures.AUC)
API_COLUMNS = (*(measure.heading for measure in _API_MEASURES), "Prompt tokens", "Completion tokens")


def api_cells(run: RecordedRun) -> Parts:
    """API_COLUMNS of one run; a prompt is counted once per request, hence once per completion."""
    records = [record for group in run.groups for record in group]
    tokens = {
        "prompt tokens": sum(record.prompt_tokens for record in records),
        "completion tokens": sum(record.completion_tokens for record in records),
    }
    counts = (
        number_cell(number, f"{what} over all requests", run.all_completions, decimals=0)
        for what, number in tokens.items()
    )
    return {"": (*(measure.cell(run) for measure in _API_MEASURES), *counts)}


def api(results: Results) -> Table:
    """Means over complete runs and every run of a frozen system behind an API, matched in completions alone.

    A reference, no causal comparison: provider, model and grouping differ from the local runs.
    """
    rows = summarized(results.api, api_cells, mean_cell)
    note = "Frozen, one completion per request; mean ± sample standard deviation over seeds."
    return Table("api", "API system reference", "api", API_COLUMNS, rows, "Run", note)


COVERAGE_COLUMNS = (
    measures.RESPONSES.heading,
    measures.PROMPTS.heading,
    measures.PARENTS.heading,
    "Unique programs (%)",
    "Unique valid programs (%)",
    "Unique scores (%)",
)


def coverage_parts(run: RecordedRun) -> Parts:
    """Return COVERAGE_COLUMNS of a run: distinct items per item."""
    records = [record for group in run.groups for record in group]
    programs = [record.program_sha256 for record in records if record.program_sha256 is not None]
    valid = [record for record in records if record.score is not None]
    return {
        "": (
            *(measure.cell(run) for measure in (measures.RESPONSES, measures.PROMPTS, measures.PARENTS)),
            _distinct(programs, "canonical programs / completions with a program", run),
            _distinct([r.program_sha256 for r in valid], "canonical programs / valid completions", run),
            _distinct([r.score for r in valid], "scores / valid completions", run),
        )
    }


def coverage(results: Results) -> Table:
    """Uniqueness by condition and run: proxies of coverage, none of them semantic diversity."""
    note = "Distinct things per hundred; mean ± sample standard deviation over seeds."
    rows = summarized(results.cohort, coverage_parts, mean_cell)
    return Table("coverage", "Coverage", "cohort", COVERAGE_COLUMNS, rows, "Condition", note)


def _distinct(keys: Sequence[Hashable], what: str, run: RecordedRun) -> Cell:
    return percent_cell(len(set(keys)), len(keys), f"distinct {what}", run.all_completions)


RECURRENCE_GROUPS = 25
RECURRENCE_COLUMNS = (
    "Recurring (%)",
    "Recurring, positive (%)",
    "Recurring, not positive (%)",
    "Positive minus not positive (points)",
)


def next_occurrence(run: RecordedRun) -> NDArray[np.float64]:
    """(T, G): groups until the same response text occurs in a later group; infinite if never."""
    distance = np.full(run.batch.outcome.shape, np.inf)
    following: dict[str, int] = {}
    for t in reversed(range(len(run.groups))):
        texts = [record.response_sha256 for record in run.groups[t]]
        distance[t] = [following.get(text, np.inf) - t for text in texts]
        following.update(dict.fromkeys(texts, t))
    return distance


def recurrence_parts(run: RecordedRun, within: int = RECURRENCE_GROUPS) -> Parts:
    """RECURRENCE_COLUMNS of a run, over the groups that have ``within`` groups after them."""
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
    return {"": (percent_cell(again.sum(), again.size, base, origin), up, down, difference_cell(up, down))}


def recurrence(results: Results) -> Table:
    """Exact recurrence by condition and run; raises NoTableError where runs are too short for it."""
    runs = results.cohort
    if all(len(run.groups) <= RECURRENCE_GROUPS for run in runs):
        raise NoTableError(f"no run of the cohort has more than {RECURRENCE_GROUPS} groups")
    note = (
        f"Within {RECURRENCE_GROUPS} later groups; groups nearer to a run's end are left out. Means of the "
        "seeds' shares ± sample standard deviation."
    )
    rows = summarized(runs, recurrence_parts, mean_cell)
    return Table("recurrence", "Exact recurrence", "cohort", RECURRENCE_COLUMNS, rows, "Condition", note)


PROMPT_COLUMNS = ("Groups", "Cut prompts", "Tokens cut", "Longest prompt")


def prompt_cuts(run: RecordedRun) -> list[int]:
    """Return the number of tokens cut from the prompt of each group."""
    return [step.prompt_tokens_cut or 0 for step in run.steps]


def prompt_lengths(run: RecordedRun) -> list[int]:
    """Return the prompt length of each group in tokens, before the cut."""
    read = (max(record.prompt_tokens for record in group) for group in run.groups)
    return [tokens + cut for tokens, cut in zip(read, prompt_cuts(run), strict=True)]


def prompt_cells(runs: Sequence[RecordedRun]) -> Cells:
    """PROMPT_COLUMNS over the groups of one or several runs."""
    lost = [cut for run in runs for cut in prompt_cuts(run) if cut]
    longest = max(tokens for run in runs for tokens in prompt_lengths(run))
    steps = tuple(run.all_steps for run in runs)
    where = tuple(run.steps_at([t for t, cut in enumerate(prompt_cuts(run)) if cut]) for run in runs)
    read = (*steps, *(run.all_completions for run in runs))
    return (
        Cell(sum(len(run.steps) for run in runs), len(runs), "groups, one prompt each", steps),
        Cell(len(lost), len(runs), "prompts over their limit", where),
        Cell(sum(lost), len(runs), "tokens that these lost on their left", where),
        Cell(longest, len(runs), "tokens of the longest prompt before its cut", read),
    )


def prompts_of(layer: str) -> Callable[[Results], Table]:
    """Return the builder of a layer's table of prompts over their limit, which are cut on the left (D26).

    Without such prompts only the cohort has the table.
    """

    def table(results: Results) -> Table:
        cells = results.breadth if layer == BREADTH else {"": getattr(results, layer)}
        if layer != COHORT and not any(any(prompt_cuts(run)) for runs in cells.values() for run in runs):
            raise NoTableError(f"no prompt of layer {layer} was over its limit")
        rows = tuple(row for cell, runs in cells.items() for row in _prompt_rows(cell, runs))
        note = (
            "Sums over seeds, and each run. Of a prompt over its limit the last tokens were read and scored."
        )
        name = "prompts" if layer == COHORT else f"{layer}_prompts"
        return Table(name, "Prompts over their limit", layer, PROMPT_COLUMNS, rows, "Condition", note)

    return table


def _prompt_rows(cell: str, runs: Sequence[RecordedRun]) -> Iterator[Row]:
    """Yield rows by condition (cells are never summed), then by run."""
    for condition, members in groupby(() if cell else runs, key=lambda run: run.condition):
        yield Row(condition, prompt_cells(list(members)))
    for run in runs:
        yield Row(label(cell, run.name) if cell else run.name, prompt_cells([run]))

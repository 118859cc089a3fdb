"""Core results of searches, how much of them was new, and their long prompts, over seeds and run by run.

Paper, tables core-results, core-seeds; Metrics; supplement, Collapse and exact recurrence. Texts are compared
by hash, which sees exact replay, no semantic or algorithmic likeness. Programs are compared in canonical
form, so that names, comments and layout do not count.
"""

from collections.abc import Hashable, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.numerics import Bools
from search_to_signal.base.progress import counted
from search_to_signal.records.layers import BREADTH, COHORT
from search_to_signal.report.results import NoTableError, RecordedRun, Results
from search_to_signal.report.tables import measures
from search_to_signal.report.tables.cells import (
    Cell,
    Cells,
    Line,
    Noted,
    RowsOf,
    TableSpec,
    combined_cells,
    count_cell,
    difference_cell,
    mean_cell,
    number_cell,
    percent_cell,
    run_table,
    summarized,
    table,
)


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

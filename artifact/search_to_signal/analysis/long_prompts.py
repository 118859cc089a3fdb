"""How many prompts were over their limit, and how many tokens they lost to it (D26)."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from search_to_signal.analysis.aggregate import Cells, label
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Cell, NoTableError, Row, Table
from search_to_signal.records.manifest import BREADTH, COHORT

COLUMNS = ("Groups", "Cut prompts", "Tokens cut", "Longest prompt")


def cuts(run: RecordedRun) -> list[int]:
    """How many tokens the prompt of each group lost."""
    return [step.prompt_tokens_cut or 0 for step in run.steps]


def lengths(run: RecordedRun) -> list[int]:
    """Tokens of the prompt of each group, before its cut."""
    read = (max(record.prompt_tokens for record in group) for group in run.groups)
    return [tokens + cut for tokens, cut in zip(read, cuts(run), strict=True)]


def prompt_cells(runs: Sequence[RecordedRun]) -> Cells:
    """COLUMNS over the groups of one or several runs."""
    lost = [cut for run in runs for cut in cuts(run) if cut]
    longest = max(tokens for run in runs for tokens in lengths(run))
    steps = tuple(run.every_step for run in runs)
    where = tuple(run.steps_at([t for t, cut in enumerate(cuts(run)) if cut]) for run in runs)
    read = (*steps, *(run.everything for run in runs))
    return (
        Cell(sum(len(run.steps) for run in runs), len(runs), "groups, one prompt each", steps),
        Cell(len(lost), len(runs), "prompts over their limit", where),
        Cell(sum(lost), len(runs), "tokens that these lost on their left", where),
        Cell(longest, len(runs), "tokens of the longest prompt before its cut", read),
    )


def prompts_of(layer: str) -> Callable[[Results], Table]:
    """The builder of a layer's table; beside the cohort a layer without a cut prompt has none."""

    def table(results: Results) -> Table:
        cells = results.breadth if layer == BREADTH else {"": getattr(results, layer)}
        if layer != COHORT and not any(any(cuts(run)) for runs in cells.values() for run in runs):
            raise NoTableError(f"no prompt of layer {layer} was over its limit")
        rows = tuple(row for cell, runs in cells.items() for row in _rows(cell, runs))
        note = (
            "Sums over seeds, and each run. Of a prompt over its limit the last tokens were read and scored."
        )
        name = "prompts" if layer == COHORT else f"{layer}_prompts"
        return Table(name, "Prompts over their limit", layer, COLUMNS, rows, "Condition", note)

    return table


def _rows(cell: str, runs: Sequence[RecordedRun]) -> Iterator[Row]:
    """By condition, but for cells, which are never summed; then by run."""
    for condition, members in groupby(() if cell else runs, key=lambda run: run.condition):
        yield Row(condition, prompt_cells(list(members)))
    for run in runs:
        yield Row(label(cell, run.name) if cell else run.name, prompt_cells([run]))

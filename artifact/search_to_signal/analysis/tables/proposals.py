"""What becomes of completions, operator by operator: parsed, executable, valid, improving, at the frontier.

Paper, supplement, Operators and proposal outcomes; main, Proposal-Stream Analysis.
"""

from collections.abc import Sequence

import numpy as np

from search_to_signal.analysis.aggregate import Cells, Parts, summarized
from search_to_signal.analysis.metrics.search import beats_frontier, improves, ratio
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Cell, Origin, Table
from search_to_signal.analysis.tables.paired import Comparison, against, paired_rows
from search_to_signal.numerics import Bools
from search_to_signal.records.groups import OUTCOMES, GroupBatch
from search_to_signal.records.schema import Operator, Outcome

STAGES: tuple[tuple[str, str], ...] = (
    ("Parsed (%)", "completions with rationale, code and required function, which reach the evaluator"),
    ("Executable (%)", "of these, completions that ran to an answer on every instance"),
    ("Valid (%)", "of these, completions without detected randomness, hence with a score"),
    ("Parent-improving (%)", "completions better than their best prompt base"),
    ("Frontier (%)", "completions better than the frontier before their group"),
)
COLUMNS = ("Completions", *(heading for heading, _ in STAGES))


def funnel_masks(batch: GroupBatch) -> tuple[Bools, ...]:
    """(N, G) for each of STAGES. The first three are nested by the host's order of checks (D04).

    Parent-improving and frontier are subsets of valid; without a comparator nothing is parent-improving
    (D05), so a creation can reach the frontier without it.
    """
    parsed = batch.evaluated
    executable = parsed & (batch.outcome != OUTCOMES.index(Outcome.RUNTIME_FAILURE))
    return parsed, executable, batch.valid, improves(batch), beats_frontier(batch)


def funnel_cells(batch: GroupBatch, origin: Origin) -> Cells:
    """The cells of COLUMNS over some groups; shares of all their completions."""
    total = batch.outcome.size
    count = Cell(total, formula="completions", origins=(origin,))
    return (
        count,
        *(
            _share(int(mask.sum()), total, what, origin)
            for mask, (_, what) in zip(funnel_masks(batch), STAGES, strict=True)
        ),
    )


def funnels(run: RecordedRun) -> Parts:
    """The funnel of every operator, and of all together; an operator that was never drawn has no shares."""
    shape = run.batch.outcome.shape
    parts: dict[str, Cells] = {"all": funnel_cells(run.batch, run.everything)}
    for operator in Operator:
        drawn = np.array([one is operator for one in run.operators])
        lines = run.completions(np.broadcast_to(drawn[:, None], shape))
        parts[operator.value] = funnel_cells(run.batch.at(drawn), lines)
    return parts


def operators(results: Results) -> Table:
    """Funnels by condition and operator, and by run and operator."""
    note = (
        "Shares of the completions that were asked for with the operator: means of the seeds' shares ± "
        "sample standard deviation, none where a seed never drew it; counts are sums over seeds."
    )
    rows = summarized(results.cohort, funnels)
    return Table("operators", "Funnels by operator", "cohort", COLUMNS, rows, "Condition/operator", note)


def operator_gains(results: Results) -> Table:
    """Funnel shares minus those of the frozen run of the same seed, in points, by operator."""
    note = "Same-seed differences to Frozen, mean ± sample standard deviation over seeds."
    pairs: Sequence[Comparison] = against(results.cohort, "frozen")
    columns = tuple(heading.replace("(%)", "(points)") for heading, _ in STAGES)
    rows = paired_rows(pairs, lambda run: {part: cells[1:] for part, cells in funnels(run).items()})
    return Table("operator_gains", "Gains by operator", "cohort", columns, rows, "Comparison/operator", note)


def _share(part: int, whole: int, what: str, origin: Origin) -> Cell:
    share = ratio(part, whole)
    value = None if share is None else 100.0 * share
    return Cell(value, formula=f"{what} / completions, in percent", origins=(origin,), decimals=2)

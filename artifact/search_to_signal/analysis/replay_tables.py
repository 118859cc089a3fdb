"""The shared-record audit of a results directory as tables (paper, Signal-Propagation Analysis).

The recorded group is the unit here, not the seed: nothing is generated, and n counts groups. The cohort,
every breadth cell and every cell recorded for the audit stand apart.
"""

from collections.abc import Mapping
from contextlib import suppress

from search_to_signal.analysis.aggregate import label
from search_to_signal.analysis.audit import TOLERANCES, Audit, ContextTally, PairTally, audit
from search_to_signal.analysis.cells import Cell, NoTableError, Origin, Row, Table
from search_to_signal.analysis.metrics import ratio
from search_to_signal.analysis.results import Results, Runs
from search_to_signal.errors import RunDirectoryError
from search_to_signal.normalizer import group_advantages
from search_to_signal.rewards import MAPPINGS

LAYER = "audit"
PAIR_COLUMNS = (
    "Groups",
    "Largest difference",
    "Mean difference",
    "Median difference",
    "Equivalent",
    "Equivalent (%)",
    "By construction",
    "Order changes",
)
CONTEXT_COLUMNS = ("Groups", "Constant in group", "Reordered", "Reordered (%)")


def replay_pairs(results: Results) -> Table:
    """Advantage differences of every pair of mappings under the paper's normalizer, by cell."""
    rows = [
        Row(label(cell, f"{first}, {second}"), _pair_cells(tally, origins))
        for cell, (found, origins) in _audits(results).items()
        for (problem, _, first, second), tally in found.pairs.items()
        if problem == "all"
    ]
    note = (
        f"Largest advantage difference of a group; equivalent at {TOLERANCES[-1]:g} (D21). n counts groups."
    )
    return Table(
        "replay_pairs", "Mappings on shared records", LAYER, PAIR_COLUMNS, tuple(rows), "Cell/mappings", note
    )


def replay_context(results: Results) -> Table:
    """Groups whose order changes when a context indicator is put ahead of score, by cell."""
    rows = [
        Row(label(cell, indicator), _context_cells(tally, origins))
        for cell, (found, origins) in _audits(results).items()
        for (problem, indicator), tally in found.context.items()
        if problem == "all"
    ]
    note = "Comparator and frontier have one value per group and follow the score. n counts groups."
    return Table(
        "replay_context",
        "Context ahead of score",
        LAYER,
        CONTEXT_COLUMNS,
        tuple(rows),
        "Cell/indicator",
        note,
    )


def _audits(results: Results) -> dict[str, tuple[Audit, tuple[Origin, ...]]]:
    normalizer = {"group": group_advantages}
    return {
        cell: (
            audit(((str(run.config["problem"]), run.batch) for run in runs), MAPPINGS, normalizer),
            tuple(run.everything for run in runs),
        )
        for cell, runs in audited_cells(results).items()
    }


def audited_cells(results: Results) -> Mapping[str, Runs]:
    """The recorded runs by cell; raises RunDirectoryError for a cell that two layers have."""
    cells = {"cohort": results.cohort}
    for layer in ("breadth", "audit_cells"):
        with suppress(NoTableError):
            more: Mapping[str, Runs] = getattr(results, layer)
            if twice := sorted(set(cells) & set(more)):
                raise RunDirectoryError(f"{', '.join(twice)} lies in breadth and in audit: move one away")
            cells = {**cells, **more}
    return cells


def _pair_cells(tally: PairTally, origins: tuple[Origin, ...]) -> tuple[Cell, ...]:
    gaps, equivalent = tally.differences, int(tally.equivalent[-1])
    largest = "largest absolute advantage difference within a group"
    share = ratio(100 * equivalent, tally.groups)
    return (
        Cell(tally.groups, tally.groups, "recorded groups", origins),
        Cell(gaps.largest, tally.groups, f"maximum over groups of the {largest}", origins, 7),
        Cell(gaps.mean, tally.groups, f"mean over groups of the {largest}", origins, 7),
        Cell(gaps.median, tally.groups, f"median over groups of the {largest}", origins, 7),
        Cell(equivalent, tally.groups, "groups equivalent at the tolerance", origins),
        Cell(share, tally.groups, "groups equivalent at the tolerance / groups, in percent", origins, 2),
        Cell(int(tally.by_construction[-1]), tally.groups, "of these, affine or flat in both", origins),
        Cell(tally.reordered, tally.groups, "groups whose advantages differ in weak order", origins),
    )


def _context_cells(tally: ContextTally, origins: tuple[Origin, ...]) -> tuple[Cell, ...]:
    share = ratio(100 * tally.reordered, tally.groups)
    return (
        Cell(tally.groups, tally.groups, "recorded groups", origins),
        Cell(tally.constant, tally.groups, "groups where the indicator is constant over the valid", origins),
        Cell(tally.reordered, tally.groups, "groups whose midranks change", origins),
        Cell(share, tally.groups, "groups whose midranks change / groups, in percent", origins, 2),
    )

"""The shared-record audit of a results directory as tables (paper, Signal-Propagation Analysis).

The recorded group is the unit here, not the seed: nothing is generated, and n counts groups. The cohort,
every breadth cell and every cell recorded for the audit stand apart.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from search_to_signal.analysis.aggregate import label
from search_to_signal.analysis.metrics.audit import (
    TOLERANCES,
    Audit,
    ContextTally,
    PairTally,
    audit,
    by_problem,
    summed,
    tally,
)
from search_to_signal.analysis.metrics.credit import CLASSES
from search_to_signal.analysis.metrics.readings import DECISIONS, ReadingTally, exposure_tallies
from search_to_signal.analysis.metrics.search import ratio
from search_to_signal.analysis.results import Results, Runs
from search_to_signal.analysis.sensitivity_tables import (
    Change,
    changed_rankings,
    chosen_rankings,
    moved_rates,
    readings_of,
    said,
)
from search_to_signal.analysis.tables.cells import Cell, NoTableError, Origin, Row, Table
from search_to_signal.errors import RunDirectoryError
from search_to_signal.normalizer import group_advantages
from search_to_signal.records.exposures import EXPOSURES, read_exposures
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
READING_COLUMNS = (
    "Groups",
    "Changed",
    "Changed (%)",
    "Largest difference",
    *(f"{name.value.replace('_', ' ').capitalize()} (points)" for name in CLASSES),
    "Rankings changed",
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


def sensitivity(results: Results) -> Table:
    """What every other reading of an open decision changes, over all recorded groups."""
    found, origins = _recorded(results)
    order = "; ".join(f"{name}: {mappings}" for name, mappings in chosen_rankings(found, "all").items())
    rows = [
        Row(
            f"{DECISIONS[reading]} {label(reading, mapping)}",
            _reading_cells(tally, changed_rankings(found, "all", reading), origins),
        )
        for (reading, mapping), tally in readings_of(found, "all").items()
    ]
    note = (
        f"Against the choice, under the paper's normalizer; changed by more than {TOLERANCES[-1]:g} (D21); "
        f"points of positive-credit rate. n counts groups. Under the choices, {order}."
    )
    title = "Sensitivity to open decisions"
    return Table(
        "sensitivity", title, LAYER, READING_COLUMNS, tuple(rows), "Decision and reading/mapping", note
    )


def _recorded(results: Results) -> tuple[Audit, tuple[Origin, ...]]:
    """Every recorded group, and the exposures that the replay computed otherwise, where it has run."""
    runs = [run for cell in audited_cells(results).values() for run in cell]
    exposures = read_exposures(results.directory / LAYER / EXPOSURES)
    groups = [(str(run.config["problem"]), run.batch) for run in runs]
    parts = [tally(problem, batch, MAPPINGS, {"group": group_advantages}) for problem, batch in groups]
    for (problem, batch), run in zip(groups, runs, strict=True):
        if run.path in exposures:
            found = exposure_tallies(batch, MAPPINGS, exposures[run.path])
            parts.append(Audit({}, {}, {}, {}, by_problem(problem, found)))
    return summed(parts), tuple(run.everything for run in runs)


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


def _reading_cells(
    tally: ReadingTally, changes: Sequence[Change], origins: tuple[Origin, ...]
) -> tuple[Cell, ...]:
    share = ratio(100 * tally.changed, tally.groups)
    rate = "share of the class with positive advantage under the reading minus under the choice, in points"
    orders = "; ".join(map(said, changes)) or "no ranking changes"
    return (
        Cell(tally.groups, tally.groups, "recorded groups", origins),
        Cell(tally.changed, tally.groups, "groups with an advantage that changes", origins),
        Cell(share, tally.groups, "groups with an advantage that changes / groups, in percent", origins, 2),
        Cell(tally.largest, tally.groups, "largest absolute difference of an advantage", origins, 7),
        *(Cell(moved, tally.groups, rate, origins, 2) for moved in moved_rates(tally).values()),
        Cell(", ".join(c.quantity for c in changes) or "none", tally.groups, f"rankings: {orders}", origins),
    )


def _context_cells(tally: ContextTally, origins: tuple[Origin, ...]) -> tuple[Cell, ...]:
    share = ratio(100 * tally.reordered, tally.groups)
    return (
        Cell(tally.groups, tally.groups, "recorded groups", origins),
        Cell(tally.constant, tally.groups, "groups where the indicator is constant over the valid", origins),
        Cell(tally.reordered, tally.groups, "groups whose midranks change", origins),
        Cell(share, tally.groups, "groups whose midranks change / groups, in percent", origins, 2),
    )

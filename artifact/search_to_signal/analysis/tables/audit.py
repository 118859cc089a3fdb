"""The shared-record audit as tables, by cell of a results directory and by problem of a replay.

Paper, Signal-Propagation Analysis. The recorded group is the unit here, not the seed: nothing is generated,
and n counts groups.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from search_to_signal.analysis.metrics.audit import (
    TOLERANCES,
    Audit,
    ContextTally,
    PairTally,
    by_problem,
    summed,
    tally,
)
from search_to_signal.analysis.metrics.credit import (
    CLASSES,
    credit_table,
    idle_credit_rounds,
    idle_credit_share,
    zero_advantage_share,
)
from search_to_signal.analysis.metrics.readings import (
    DECISIONS,
    Change,
    ReadingTally,
    changed_rankings,
    chosen_rankings,
    describe_change,
    exposure_tallies,
    moved_rates,
    readings_of,
)
from search_to_signal.analysis.metrics.search import ratio
from search_to_signal.analysis.results import NoTableError, Origin, RecordedRun, Results, Runs
from search_to_signal.analysis.tables.cells import Cell, Row, Table, label
from search_to_signal.errors import RunDirectoryError
from search_to_signal.normalizer import NORMALIZERS, find_normalizer
from search_to_signal.records.exposures import EXPOSURES, read_exposures
from search_to_signal.rewards import MAPPINGS

LAYER = "audit"
Origins = tuple[Origin, ...]
Value = float | int | str | None
Rows = Iterator[tuple[tuple[str, ...], Mapping[str, Value], int]]
"""Key, values by column, and number of groups of every row."""

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
FORMULAS: Mapping[str, str] = {
    "groups": "recorded groups",
    "max_difference": "maximum over groups of the largest absolute advantage difference within a group",
    "mean_difference": "mean over groups of the largest absolute advantage difference within a group",
    "median_difference": "median over groups of the largest absolute advantage difference within a group",
    **{f"equivalent_{t:g}": f"groups equivalent at {t:g} (D21)" for t in TOLERANCES},
    **{
        f"by_construction_{t:g}": f"of the groups equivalent at {t:g}, affine or flat in both"
        for t in TOLERANCES
    },
    **{f"share_{t:g}": f"groups equivalent at {t:g} / groups" for t in TOLERANCES},
    "affine": "groups whose rewards are positive affine images of each other, or flat in both",
    "order_changes": "groups whose advantages differ in weak order",
    "basis": f"why the groups equivalent at {TOLERANCES[-1]:g} are so",
    "no_peer_groups": "groups of one completion",
    "zero_advantage_groups": "groups without any advantage",
    "zero_advantage_share": "groups without any advantage / groups",
    "non_improving_groups": "groups without improver",
    "non_improving_groups_with_credit": "groups without improver that give anyone positive advantage",
    "share_of_non_improving_groups": "these / groups without improver",
    "share_of_all_groups_to_non_improvers": (
        "groups without improver that give a valid non-improver positive advantage / groups"
    ),
    "candidates": "completions of the class",
    "prevalence": "completions of the class / completions",
    "mass_share": "positive advantage of the class / all positive advantage",
    "enrichment": "credit mass share / prevalence",
    "positive_rate": "completions of the class with positive advantage / those of the class",
    "constant_in_group": "groups where the indicator is constant over the valid",
    "reordered": "groups whose midranks change",
    "reordered_share": "groups whose midranks change / groups",
    "changed_groups": "groups with an advantage that changes",
    "changed_share": "groups with an advantage that changes / groups",
    **{
        f"points_{c.value}": "positive rate under the reading minus under the choice, in points"
        for c in CLASSES
    },
    "rankings_changed": "rankings of the mappings that the reading changes",
}
"""Columns of the audit's own tables in words."""

BY_CONSTRUCTION = {
    "comparator": "by construction: monotone in score",
    "frontier": "by construction: monotone in score",
    "score_novelty": "by data",
    "response_repetition": "by data",
}


def replay_pairs(results: Results) -> Table:
    """Advantage differences of every pair of mappings under the paper's normalizer, by cell."""
    rows = [
        Row(label(cell, f"{first}, {second}"), _pair_cells(tally, origins))
        for cell, (found, origins) in results.once(_audits).items()
        for (problem, _, first, second), tally in found.pairs.items()
        if problem == "all"
    ]
    note = (
        f"Largest advantage difference of a group; equivalent at {TOLERANCES[-1]:g} (D21). n counts groups."
    )
    title, head = "Mappings on shared records", "Cell/mappings"
    return Table("replay_pairs", title, LAYER, PAIR_COLUMNS, tuple(rows), head, note)


def replay_context(results: Results) -> Table:
    """Groups whose order changes when a context indicator is put ahead of score, by cell."""
    rows = [
        Row(label(cell, indicator), _context_cells(tally, origins))
        for cell, (found, origins) in results.once(_audits).items()
        for (problem, indicator), tally in found.context.items()
        if problem == "all"
    ]
    note = "Comparator and frontier have one value per group and follow the score. n counts groups."
    title, head = "Context ahead of score", "Cell/indicator"
    return Table("replay_context", title, LAYER, CONTEXT_COLUMNS, tuple(rows), head, note)


def sensitivity(results: Results) -> Table:
    """What every other reading of an open decision changes, over all recorded groups."""
    found, origins = _recorded(results)
    ranked = chosen_rankings(found.readings, "all")
    order = "; ".join(f"{name}: {mappings}" for name, mappings in ranked.items())
    rows = [
        Row(
            f"{DECISIONS[reading]} {label(reading, mapping)}",
            _reading_cells(tally, changed_rankings(found.readings, "all", reading), origins),
        )
        for (reading, mapping), tally in readings_of(found.readings, "all").items()
    ]
    note = (
        f"Against the choice, under the paper's normalizer; changed by more than {TOLERANCES[-1]:g} (D21); "
        f"points of positive-credit rate. n counts groups. Under the choices, {order}."
    )
    title, head = "Sensitivity to open decisions", "Decision and reading/mapping"
    return Table("sensitivity", title, LAYER, READING_COLUMNS, tuple(rows), head, note)


def audit_tables(audit: Audit, origins: Mapping[str, Origins]) -> dict[str, Table]:
    """The tables of an audit by name; a row's label is its key, joined by slashes. Origins by problem."""
    made = {
        "pairs": ("Pairs of mappings", "problem/normalizer/mapping_a/mapping_b", _pair_rows(audit)),
        "signal": ("Signal density", "problem/normalizer/mapping", _signal_rows(audit)),
        "credit": ("Positive credit by class", "problem/normalizer/mapping/class", _credit_rows(audit)),
        "context": ("Context indicators ahead of score", "problem/indicator", _context_rows(audit)),
        "readings": ("Readings of decisions", "problem/decision/reading/mapping", _reading_rows(audit)),
    }
    return {name: _table(f"audit_{name}", *parts, origins) for name, parts in made.items()}


def audit_table(name: str) -> Callable[[Results], Table]:
    """The builder of one of them, of every recorded group of a results directory under every normalizer."""
    return lambda results: results.once(_audit_tables)[name]


AUDIT_TABLES = {
    f"audit_{name}": audit_table(name) for name in ("pairs", "signal", "credit", "context", "readings")
}
"""By name. They lie in the audit's directory, and stand in no report."""


def _audit_tables(results: Results) -> dict[str, Table]:
    results.folder(LAYER)
    runs = _runs(results)
    parts = (tally(run.facts.problem, run.batch, MAPPINGS, NORMALIZERS) for run in runs)
    origins = {"all": tuple(run.all_completions for run in runs)}
    for problem in {run.facts.problem for run in runs}:
        origins[problem] = tuple(run.all_completions for run in runs if run.facts.problem == problem)
    return audit_tables(summed(chain(parts, _exposed(results, runs))), origins)


def _table(name: str, title: str, label: str, rows: Rows, origins: Mapping[str, Origins]) -> Table:
    listed = list(rows)
    columns = tuple(listed[0][1]) if listed else ()
    made = [
        Row("/".join(key), tuple(Cell(v, n, FORMULAS[c], origins.get(key[0], ())) for c, v in values.items()))
        for key, values, n in listed
    ]
    note = "Recorded groups under every mapping and normalizer; n counts groups."
    return Table(name, title, LAYER, columns, tuple(made), label, note)


def _pair_rows(audit: Audit) -> Rows:
    for key, one in audit.pairs.items():
        gaps = one.differences
        values: dict[str, Value] = {"groups": one.groups, "max_difference": gaps.largest}
        values |= {"mean_difference": gaps.mean, "median_difference": gaps.median}
        for position, tolerance in enumerate(TOLERANCES):
            number, built = int(one.equivalent[position]), int(one.by_construction[position])
            values |= {f"equivalent_{tolerance:g}": number, f"by_construction_{tolerance:g}": built}
            values |= {f"share_{tolerance:g}": ratio(number, one.groups)}
        values |= {"affine": one.affine, "order_changes": one.reordered, "basis": basis(one)}
        yield key, values, one.groups


def basis(tally: PairTally) -> str:
    """Why the groups that are equivalent at 1e-3 are so: by construction, by data, both, or none is."""
    equivalent, built = int(tally.equivalent[-1]), int(tally.by_construction[-1])
    if not equivalent:
        return "never equivalent"
    return "by construction" if built == equivalent else "by data" if not built else "both"


def _signal_rows(audit: Audit) -> Rows:
    for key, counts in audit.credit.items():
        values = {
            "groups": counts.groups,
            "no_peer_groups": counts.no_peer_groups,
            "zero_advantage_groups": counts.zero_groups,
            "zero_advantage_share": zero_advantage_share(counts),
            "non_improving_groups": counts.non_improving_groups,
            "non_improving_groups_with_credit": counts.credited_groups,
            "share_of_non_improving_groups": idle_credit_share(counts),
            "share_of_all_groups_to_non_improvers": idle_credit_rounds(counts),
        }
        yield key, values, counts.groups


def _credit_rows(audit: Audit) -> Rows:
    for key, counts in audit.credit.items():
        for entry in credit_table(counts):
            names = ("candidates", "prevalence", "mass_share", "enrichment", "positive_rate")
            values = {name: getattr(entry, name) for name in names}
            yield (*key, entry.candidate_class.value), values, counts.groups


def _context_rows(audit: Audit) -> Rows:
    for key, one in audit.context.items():
        values = {
            "groups": one.groups,
            "constant_in_group": one.constant,
            "reordered": one.reordered,
            "reordered_share": ratio(one.reordered, one.groups),
            "basis": BY_CONSTRUCTION[key[1]],
        }
        yield key, values, one.groups


def _reading_rows(audit: Audit) -> Rows:
    """In the order of decisions."""
    for problem in audit.groups:
        for (reading, mapping), one in readings_of(audit.readings, problem).items():
            changes = changed_rankings(audit.readings, problem, reading)
            values: dict[str, Value] = {
                "groups": one.groups,
                "changed_groups": one.changed,
                "changed_share": ratio(one.changed, one.groups),
                "max_difference": one.largest,
                **{f"points_{name.value}": points for name, points in moved_rates(one).items()},
                "rankings_changed": "; ".join(map(describe_change, changes)) or "none",
            }
            yield (problem, DECISIONS[reading], reading, mapping), values, one.groups


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


def _runs(results: Results) -> list[RecordedRun]:
    """Every recorded run, cell by cell, as a replay of the directory reads them."""
    cells = audited_cells(results).values()
    return [run for runs in cells for run in sorted(runs, key=lambda run: run.path)]


def _tallies(results: Results) -> dict[str, list[Audit]]:
    """The audit of every run under its own normalizer, by cell."""
    return {
        cell: [
            tally(r.facts.problem, r.batch, MAPPINGS, {"group": find_normalizer(r.facts.normalizer)})
            for r in runs
        ]
        for cell, runs in audited_cells(results).items()
    }


def _audits(results: Results) -> dict[str, tuple[Audit, Origins]]:
    cells = audited_cells(results)
    return {
        cell: (summed(parts), tuple(run.all_completions for run in cells[cell]))
        for cell, parts in results.once(_tallies).items()
    }


def _exposed(results: Results, runs: Sequence[RecordedRun]) -> Iterator[Audit]:
    """The exposures that a replay computed otherwise, where it has run (D13)."""
    exposures = read_exposures(results.directory / LAYER / EXPOSURES)
    for run in runs:
        if run.path in exposures:
            found = exposure_tallies(run.batch, MAPPINGS, exposures[run.path])
            yield Audit({}, {}, {}, {}, by_problem(run.facts.problem, found))


def _recorded(results: Results) -> tuple[Audit, Origins]:
    """Every recorded group, and the exposures that a replay computed otherwise."""
    runs = [run for cell in audited_cells(results).values() for run in cell]
    parts = (part for cell in results.once(_tallies).values() for part in cell)
    return summed(chain(parts, _exposed(results, runs))), tuple(run.all_completions for run in runs)


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
    orders = "; ".join(map(describe_change, changes)) or "no ranking changes"
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

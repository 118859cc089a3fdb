"""The shared-record audit as tables, by cell of a results directory and by problem, and as a page.

Paper, Signal-Propagation Analysis. The recorded group is the unit here, not the seed: nothing is generated,
and n counts groups.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import cast

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.base.package_data import render
from search_to_signal.credit import MAPPINGS, OURS, OURS_NOTE
from search_to_signal.credit.normalizers import NORMALIZERS, find_normalizer
from search_to_signal.records.groups import EXPOSURES, read_exposures
from search_to_signal.report.metrics import search
from search_to_signal.report.metrics.replay import (
    DECISIONS,
    NEAR,
    TOLERANCES,
    Audit,
    Change,
    PairTally,
    ReadingTally,
    asked_of_all,
    by_problem,
    changed_rankings,
    chosen_rankings,
    describe_change,
    exposure_tallies,
    moved_rates,
    readings_of,
    summed,
    tally,
)
from search_to_signal.report.results import NoTableError, Origin, RecordedRun, Results, Runs
from search_to_signal.report.tables.cells import (
    Cell,
    Cells,
    Line,
    Noted,
    Row,
    Table,
    label,
    table,
    to_csv,
    to_markdown,
)

LAYER = "audit"
Origins = tuple[Origin, ...]
Value = float | int | str | None
Rows = Iterator[tuple[tuple[str, ...], Mapping[str, Value], int]]
"""Key, values by column, and number of groups of every row."""

_EQUIVALENT, _OF_GROUPS = f"{TOLERANCES[-1]:g}", "largest absolute advantage difference within a group"
# Columns of a report's tables: heading, name of the value, with a sign for a percentage of groups, decimals.
PAIR_COLUMNS: Mapping[str, tuple[str, int]] = {
    "Groups": ("groups", 0),
    "Largest difference": ("max_difference", 7),
    "Mean difference": ("mean_difference", 7),
    "Median difference": ("median_difference", 7),
    "Equivalent": (f"equivalent_{_EQUIVALENT}", 0),
    "Equivalent (%)": (f"equivalent_{_EQUIVALENT}%", 2),
    "By construction": (f"by_construction_{_EQUIVALENT}", 0),
    f"Within {NEAR:g} (%)": (f"within_{NEAR:g}%", 2),
    "Order changes": ("order_changes", 0),
    "Order changes (%)": ("order_changes%", 2),
}
CONTEXT_COLUMNS: Mapping[str, tuple[str, int]] = {
    "Groups": ("groups", 0),
    "Constant in group": ("constant_in_group", 0),
    "Reordered": ("reordered", 0),
    "Reordered (%)": ("reordered%", 2),
}
READING_COLUMNS = (
    *("Groups", "Changed", "Changed (%)", "Largest difference"),
    *(f"{name.value.replace('_', ' ').capitalize()} (points)" for name in search.CLASSES),
    "Rankings changed",
)
FORMULAS: Mapping[str, str] = {
    "groups": "recorded groups",
    "max_difference": f"maximum over groups of the {_OF_GROUPS}",
    "mean_difference": f"mean over groups of the {_OF_GROUPS}",
    "median_difference": f"median over groups of the {_OF_GROUPS}",
    **{f"equivalent_{t:g}": "groups equivalent at the tolerance" for t in TOLERANCES},
    **{f"by_construction_{t:g}": "of these, affine or flat in both" for t in TOLERANCES},
    **{f"share_{t:g}": "groups equivalent at the tolerance / groups" for t in TOLERANCES},
    f"within_{NEAR:g}": f"groups whose advantages are at most {NEAR:g} apart",
    "affine": "groups whose rewards are positive affine images of each other, or flat in both",
    "order_changes": "groups whose advantages differ in weak order",
    "basis": f"why the groups equivalent at {_EQUIVALENT} are so",
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
        for c in search.CLASSES
    },
    "rankings_changed": "rankings of the mappings that the reading changes",
}
"""The formulas of the audit's columns as text."""

_MONOTONE = ("comparator", "frontier")
"""Indicators with one value per group that are monotone in score: their effect is by construction."""


@table(
    "Mappings on shared records",
    f"Largest advantage difference of a group; equivalent at {TOLERANCES[-1]:g} (D21), of these by "
    "construction where rewards are shifted and scaled images of each other, or flat. n counts groups. "
    f"{OURS_NOTE}",
    layer=LAYER,
    label="Cell/mappings",
    columns=tuple(PAIR_COLUMNS),
)
def replay_pairs(results: Results) -> list[Line]:
    """Advantage differences of every pair of mappings under the runs' normalizer, by cell."""
    return _replay_lines(results, _pair_rows, PAIR_COLUMNS)


@table(
    "Context ahead of score",
    "Comparator and frontier have one value per group and follow the score. n counts groups.",
    layer=LAYER,
    label="Cell/indicator",
    columns=tuple(CONTEXT_COLUMNS),
)
def replay_context(results: Results) -> list[Line]:
    """Groups whose order changes when a context indicator is put ahead of score, by cell."""
    return _replay_lines(results, _context_rows, CONTEXT_COLUMNS)


def _replay_lines(
    results: Results, rows_of: Callable[[Audit], Rows], columns: Mapping[str, tuple[str, int]]
) -> list[Line]:
    lines: list[Line] = []
    for place, runs in audited_cells(results).items():
        origins = tuple(run.all_completions for run in runs)
        for key, values, n in rows_of(summed(results.once(_tallies)[place])):
            if key[0] != "all":
                continue
            cells = {}
            for heading, (name, decimals) in columns.items():
                value, formula = values[name.rstrip("%")], FORMULAS[name.rstrip("%")]
                if name.endswith("%"):
                    value, formula = (
                        search.ratio(100 * cast(int, value), n),
                        f"{formula} / groups, in percent",
                    )
                cells[heading] = Cell(value, n, formula, origins, decimals)
            lines.append((label(place, ", ".join(key[-2:] if len(key) > 2 else key[1:])), cells))
    return lines


@table(
    "Sensitivity to open decisions",
    layer=LAYER,
    label="Decision and reading/mapping",
    columns=READING_COLUMNS,
)
def sensitivity(results: Results) -> Noted:
    """Changes under each alternative reading of an open decision, over all groups."""
    runs = [run for cell in audited_cells(results).values() for run in cell]
    parts = (part for cell in results.once(_tallies).values() for part in cell)
    audit = summed(chain(parts, _exposed(results, runs)))
    origins = tuple(run.all_completions for run in runs)
    ranked = chosen_rankings(audit.readings, "all")
    order = "; ".join(f"{name}: {mappings}" for name, mappings in ranked.items())
    lines = [
        (
            f"{DECISIONS[reading]} {label(reading, mapping)}",
            _reading_cells(tally, changed_rankings(audit.readings, "all", reading), origins),
        )
        for (reading, mapping), tally in readings_of(audit.readings, "all").items()
    ]
    note = (
        f"Against the choice, under the paper's normalizer; changed by more than {TOLERANCES[-1]:g} (D21); "
        f"points of positive-credit rate. n counts groups. Under the choices, {order}."
    )
    return Noted(lines, note)


def audit_tables(audit: Audit, origins: Mapping[str, Origins]) -> dict[str, Table]:
    """Build the tables of an audit, by name; a row's label is its key joined by slashes.

    ``origins`` are by problem.
    """
    note = f"Recorded groups under every mapping and normalizer; n counts groups. {OURS_NOTE}"
    tables = {}
    for name, (title, keys, rows_of) in _AUDIT.items():
        listed = list(rows_of(audit))
        rows = (
            Row(
                "/".join(key), tuple(Cell(v, n, FORMULAS[c], origins.get(key[0], ())) for c, v in own.items())
            )
            for key, own, n in listed
        )
        columns = tuple(listed[0][1]) if listed else ()
        tables[name] = Table(f"audit_{name}", title, LAYER, columns, tuple(rows), keys, note)
    return tables


def _audit_tables(results: Results) -> dict[str, Table]:
    results.folder(LAYER)
    # Every recorded run, cell by cell, in the order of a replay.
    cells = audited_cells(results).values()
    runs = [run for own in cells for run in sorted(own, key=lambda run: run.path)]
    parts = (tally(run.facts.problem, run.batch, MAPPINGS, NORMALIZERS) for run in runs)
    origins = {"all": tuple(run.all_completions for run in runs)}
    for problem in {run.facts.problem for run in runs}:
        origins[problem] = tuple(run.all_completions for run in runs if run.facts.problem == problem)
    return audit_tables(summed(chain(parts, _exposed(results, runs))), origins)


def _pair_rows(audit: Audit) -> Rows:
    for key, sums in audit.pairs.items():
        gaps = sums.differences
        values: dict[str, Value] = {"groups": sums.groups, "max_difference": gaps.largest}
        values |= {"mean_difference": gaps.mean, "median_difference": gaps.median}
        for position, tolerance in enumerate(TOLERANCES):
            number, built = int(sums.equivalent[position]), int(sums.by_construction[position])
            values |= {f"equivalent_{tolerance:g}": number, f"by_construction_{tolerance:g}": built}
            values |= {f"share_{tolerance:g}": search.ratio(number, sums.groups)}
        values |= {"affine": sums.affine, f"within_{NEAR:g}": sums.near}
        values |= {"order_changes": sums.reordered, "basis": basis(sums)}
        yield key, values, sums.groups


def basis(tally: PairTally) -> str:
    """Return why groups are equivalent at 1e-3: by construction, by data, both, or none."""
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
            "zero_advantage_share": search.zero_advantage_share(counts),
            "non_improving_groups": counts.non_improving_groups,
            "non_improving_groups_with_credit": counts.credited_groups,
            "share_of_non_improving_groups": search.idle_credit_share(counts),
            "share_of_all_groups_to_non_improvers": search.idle_credit_rounds(counts),
        }
        yield key, values, counts.groups


def _credit_rows(audit: Audit) -> Rows:
    for key, counts in audit.credit.items():
        for entry in search.credit_table(counts):
            names = ("candidates", "prevalence", "mass_share", "enrichment", "positive_rate")
            values = {name: getattr(entry, name) for name in names}
            yield (*key, entry.candidate_class.value), values, counts.groups


def _context_rows(audit: Audit) -> Rows:
    for key, sums in audit.context.items():
        values = {
            "groups": sums.groups,
            "constant_in_group": sums.constant,
            "reordered": sums.reordered,
            "reordered_share": search.ratio(sums.reordered, sums.groups),
            "basis": "by construction: monotone in score" if key[1] in _MONOTONE else "by data",
        }
        yield key, values, sums.groups


def _reading_rows(audit: Audit) -> Rows:
    """In the order of decisions."""
    for problem in audit.groups:
        for (reading, mapping), sums in readings_of(audit.readings, problem).items():
            changes = changed_rankings(audit.readings, problem, reading)
            values: dict[str, Value] = {
                "groups": sums.groups,
                "changed_groups": sums.changed,
                "changed_share": search.ratio(sums.changed, sums.groups),
                "max_difference": sums.largest,
                **{f"points_{name.value}": points for name, points in moved_rates(sums).items()},
                "rankings_changed": "; ".join(map(describe_change, changes)) or "none",
            }
            yield (problem, DECISIONS[reading], reading, mapping), values, sums.groups


_AUDIT: Mapping[str, tuple[str, str, Callable[[Audit], Rows]]] = {
    "pairs": ("Pairs of mappings", "problem/normalizer/mapping_a/mapping_b", _pair_rows),
    "signal": ("Signal density", "problem/normalizer/mapping", _signal_rows),
    "credit": ("Positive credit by class", "problem/normalizer/mapping/class", _credit_rows),
    "context": ("Context indicators ahead of score", "problem/indicator", _context_rows),
    "readings": ("Readings of decisions", "problem/decision/reading/mapping", _reading_rows),
}
"""Title, parts of a row's key, and rows of the audit's tables, by name."""


def _audit_table(name: str) -> Callable[[Results], Table]:
    return lambda results: results.once(_audit_tables)[name]


AUDIT_TABLES = {f"audit_{name}": _audit_table(name) for name in _AUDIT}
"""Builders by name. These tables are written to the audit's directory and are in no report."""


def audited_cells(results: Results) -> Mapping[str, Runs]:
    """Return the recorded runs by cell; raises RunDirectoryError for a cell that two layers have."""
    cells = {"cohort": results.cohort}
    for layer in ("breadth", "audit_cells"):
        with suppress(NoTableError):
            more: Mapping[str, Runs] = getattr(results, layer)
            if twice := sorted(set(cells) & set(more)):
                raise RunDirectoryError(f"{', '.join(twice)} is in breadth and in audit: move one away")
            cells = {**cells, **more}
    return cells


def _tallies(results: Results) -> dict[str, list[Audit]]:
    return {
        cell: [
            tally(r.facts.problem, r.batch, MAPPINGS, {"group": find_normalizer(r.facts.normalizer)})
            for r in runs
        ]
        for cell, runs in audited_cells(results).items()
    }


def _exposed(results: Results, runs: Sequence[RecordedRun]) -> Iterator[Audit]:
    """Yield audits of alternative exposures that a replay computed, where it has run (D13)."""
    exposures = read_exposures(results.directory / LAYER / EXPOSURES)
    for run in runs:
        if run.path in exposures:
            tallies = exposure_tallies(run.batch, MAPPINGS, exposures[run.path])
            yield Audit({}, {}, {}, {}, by_problem(run.facts.problem, tallies))


def _reading_cells(tally: ReadingTally, changes: Sequence[Change], origins: Origins) -> Cells:
    groups, share = tally.groups, search.ratio(100 * tally.changed, tally.groups)
    changed = "groups with an advantage that changes"
    rate = "share of the class with positive advantage under the reading minus under the choice, in points"
    orders = "; ".join(map(describe_change, changes)) or "no ranking changes"
    names = ", ".join(change.quantity for change in changes) or "none"
    values: list[tuple[Value, str, int]] = [
        (groups, "recorded groups", 4),
        (tally.changed, changed, 4),
        (share, f"{changed} / groups, in percent", 2),
        (tally.largest, "largest absolute difference of an advantage", 7),
        *((moved, rate, 2) for moved in moved_rates(tally).values()),
        (names, f"rankings: {orders}", 4),
    ]
    cells = (Cell(value, groups, formula, origins, decimals) for value, formula, decimals in values)
    return dict(zip(READING_COLUMNS, cells, strict=True))


PageLine = Mapping[str, Value]
NO_EXPOSURE = "groups have no exposures, which a host need not give"


def csv_text(table: Table) -> str:
    """Format keys and values with nine significant digits; an absent ratio is an empty field."""
    return to_csv(_text_rows(list(table_lines(table)), 9))


def _text_rows(lines: Sequence[PageLine], digits: int) -> list[list[str]]:
    def text(value: Value) -> str:
        return f"{value:.{digits}g}" if isinstance(value, float) else "" if value is None else str(value)

    return [list(lines[0]) if lines else [], *([text(value) for value in line.values()] for line in lines)]


def table_lines(table: Table) -> Iterator[dict[str, Value]]:
    """Yield every row as its key, part by part, and its values by column."""
    keys = table.label.split("/")
    for row in table.rows:
        values = (cell.value for cell in row.cells)
        # The first part is a problem, whose name may contain a slash.
        key = row.label.rsplit("/", len(keys) - 1)
        yield dict(zip((*keys, *table.columns), (*key, *values), strict=True))


def page(
    audit: Audit,
    tables: Mapping[str, Table],
    inputs: Mapping[str, int],
    default: str,
    unasked: Sequence[str] = (),
) -> str:
    """Format the audit as Markdown: the normalizer ``default`` in full, the others by their pairs.

    ``tables`` are those of ``audit_tables``, ``inputs`` the sizes in bytes of the replayed files, ``unasked``
    the mappings that the records do not support.
    """
    lines = {name: list(table_lines(table)) for name, table in tables.items()}
    main = {
        name: [_without(line, "normalizer") for line in lines[name] if line["normalizer"] == default]
        for name in ("signal", "credit")
    }
    readings = []
    for line in lines["readings"]:
        if line["problem"] == "all":
            # A page has the names of changed rankings; readings.csv has the rankings.
            changes = changed_rankings(audit.readings, "all", str(line["reading"]))
            names = ", ".join(change.quantity for change in changes)
            readings.append({**_without(line, "problem"), "rankings_changed": names or "none"})
    others = [
        {"normalizer": line["normalizer"], **_without(_pair_line(line), "problem")}
        for line in lines["pairs"]
        if line["normalizer"] != default and line["problem"] == "all"
    ]
    ranked = chosen_rankings(audit.readings, "all")
    values: dict[str, Iterable[PageLine]] = {
        "groups": ({"problem": name, "groups": number} for name, number in audit.groups.items()),
        "inputs": ({"input": name, "bytes": size} for name, size in inputs.items()),
        "pairs": (_pair_line(line) for line in lines["pairs"] if line["normalizer"] == default),
        "context": lines["context"],
        **main,
        "ranked": ({"ranked by": name, "mappings": order} for name, order in ranked.items()),
        "readings": readings,
        "others": others,
    }
    return render(
        "search_to_signal.report",
        "replay.md",
        default=default,
        own=OURS_NOTE if OURS.keys() & set(asked_of_all(audit)) else "",
        unasked=", ".join(unasked),
        reason=NO_EXPOSURE,
        **{name: _page_table(rows) for name, rows in values.items()},
    )


def _pair_line(line: PageLine) -> PageLine:
    """Select the columns of a pair that fit on a page."""
    shown = {
        "problem": "problem",
        "mappings": "mappings",
        "groups": "groups",
        "max": "max_difference",
        "median": "median_difference",
        **{f"at {tolerance:g}": f"equivalent_{tolerance:g}" for tolerance in TOLERANCES},
        "of these by construction": f"by_construction_{_EQUIVALENT}",
        "affine": "affine",
        "order changes": "order_changes",
        "basis": "basis",
    }
    named = {**line, "mappings": f"{line['mapping_a']}, {line['mapping_b']}"}
    return {heading: named[column] for heading, column in shown.items()}


def _without(line: PageLine, column: str) -> PageLine:
    return {name: value for name, value in line.items() if name != column}


def _page_table(lines: Iterable[PageLine]) -> str:
    head, *rows = _text_rows(list(lines), 4)
    return to_markdown([[name.replace("_", " ") for name in head], *rows]).rstrip() if rows else "(none)"

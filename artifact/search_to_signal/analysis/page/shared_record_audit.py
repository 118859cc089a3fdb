"""The shared-record audit formatted as CSV files and as one Markdown page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from search_to_signal.analysis.metrics.readings import changed_rankings, chosen_rankings
from search_to_signal.analysis.metrics.shared_record_audit import TOLERANCES, Audit, asked_of_all
from search_to_signal.analysis.tables.cells import Table
from search_to_signal.analysis.tables.files import to_csv, to_markdown
from search_to_signal.rewards import OURS, OURS_NOTE

Value = str | int | float | None
Line = Mapping[str, Value]
INTRODUCTION = """\
Recorded groups, replayed: the same evaluated completions under every mapping and normalizer. No model,
no search and no update is involved; a difference here shows that signals are separate, not that one is
better."""
NO_EXPOSURE = "groups have no exposures, which a host need not give"
UNASKED = "Not asked, since some {reason}: {names}."
PAIRS = """\
A difference is the largest absolute advantage difference within a group. Groups are equivalent when theirs
is at most the tolerance (D21): at 0, 1e-6 and 1e-3. They are so *by construction* where the rewards are
positive affine images of each other or flat in both, which every normalizer that removes shift and scale
erases, and *by data* otherwise. Affine groups that are not equivalent differ through the stabilizer alone.
Order changes count groups whose advantages are not in the same weak order."""
CONTEXT = """\
Groups whose midranks change when the indicator is compared before score. Comparator and frontier have one
value per group: as reward offsets they are erased, and as indicators they follow the score."""
SIGNAL = """\
A group without any advantage teaches nothing. The last columns count credit handed out where no completion
improves: to anyone, per such group, and to a valid non-improver, per group."""
CREDIT = """\
Prevalence P_D, share of positive advantage mass P_A, enrichment P_A / P_D, and the share of the class with
positive advantage (D18). All groups count together, whatever run they are from: a seed with more advantage
weighs more, which the ratio of the seeds' means in a report (D29) avoids. A blank is a ratio without
denominator."""
SENSITIVITY = """\
Each other reading of a decision (spec/decisions.toml) against the choice, under the paper's normalizer: in
how many groups an advantage changes by more than 0.001, the largest change, and by how many points the share
of each candidate class with positive advantage moves. The mappings are ranked by positive rate and by
enrichment of parent and of frontier improvers; the last column names the rankings that the reading changes.
Readings that change what is recorded are settings of a run, and no replay can tell what hangs on them."""


def csv_text(table: Table) -> str:
    """Format keys and values with nine significant digits; an absent ratio is an empty field."""
    lines = list(table_lines(table))
    head = list(lines[0]) if lines else []
    return to_csv([head, *([_field(value) for value in line.values()] for line in lines)])


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
        name: [line for line in lines[name] if line["normalizer"] == default] for name in ("signal", "credit")
    }
    pairs = [_pair_line(line) for line in lines["pairs"] if line["normalizer"] == default]
    ranked = chosen_rankings(audit.readings, "all")
    parts = [
        "# Shared-record audit",
        INTRODUCTION,
        *([OURS_NOTE] if OURS.keys() & set(asked_of_all(audit)) else []),
        *([UNASKED.format(reason=NO_EXPOSURE, names=", ".join(unasked))] if unasked else []),
        _table([{"problem": name, "groups": number} for name, number in audit.groups.items()]),
        _table([{"input": name, "bytes": size} for name, size in inputs.items()]),
        f"## Pairs of mappings under the normalizer `{default}`",
        *(PAIRS, _table(pairs)),
        *("## Context indicators ahead of score", CONTEXT, _table(lines["context"])),
        *("## Signal density", SIGNAL, _table(_without(line, "normalizer") for line in main["signal"])),
        *(
            "## Positive credit by class",
            CREDIT,
            _table(_without(line, "normalizer") for line in main["credit"]),
        ),
        *("## What hangs on the open decisions, all problems together", SENSITIVITY),
        _table({"ranked by": name, "mappings": order} for name, order in ranked.items()),
        _table(_reading_lines(audit, lines["readings"])),
        *("## The other normalizers, all problems together", _table(_other_pairs(lines["pairs"], default))),
    ]
    return "\n\n".join(parts) + "\n"


def _reading_lines(audit: Audit, lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the columns of a reading that fit on a page; readings.csv has the full rankings."""
    for line in lines:
        if line["problem"] == "all":
            changes = changed_rankings(audit.readings, "all", str(line["reading"]))
            names = ", ".join(change.quantity for change in changes)
            yield {**_without(line, "problem"), "rankings_changed": names or "none"}


def _other_pairs(lines: Iterable[Line], default: str) -> Iterator[Line]:
    for line in lines:
        if line["normalizer"] != default and line["problem"] == "all":
            yield {"normalizer": line["normalizer"], **_without(_pair_line(line), "problem")}


def _pair_line(line: Line) -> Line:
    """Select the columns of a pair that fit on a page."""
    shown = {
        "problem": "problem",
        "mappings": "mappings",
        "groups": "groups",
        "max": "max_difference",
        "median": "median_difference",
        **{f"at {tolerance:g}": f"equivalent_{tolerance:g}" for tolerance in TOLERANCES},
        "of these by construction": f"by_construction_{TOLERANCES[-1]:g}",
        "affine": "affine",
        "order changes": "order_changes",
        "basis": "basis",
    }
    named = {**line, "mappings": f"{line['mapping_a']}, {line['mapping_b']}"}
    return {heading: named[column] for heading, column in shown.items()}


def _without(line: Line, column: str) -> Line:
    return {name: value for name, value in line.items() if name != column}


def _table(rows: Iterable[Line]) -> str:
    listed: Sequence[Line] = list(rows)
    if not listed:
        return "(none)"
    names = [name.replace("_", " ") for name in listed[0]]
    return to_markdown([names, *([_short(value) for value in row.values()] for row in listed)]).rstrip()


def _field(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    return "" if value is None else str(value)


def _short(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)

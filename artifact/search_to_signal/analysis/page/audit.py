"""The audit as CSV rows and as one page that a person reads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from search_to_signal.analysis.metrics.audit import TOLERANCES, Audit, PairTally
from search_to_signal.analysis.metrics.credit import (
    credit_table,
    idle_credit_rounds,
    idle_credit_share,
    zero_advantage_share,
)
from search_to_signal.analysis.metrics.search import ratio
from search_to_signal.analysis.sensitivity_tables import (
    SENSITIVITY,
    changed_rankings,
    chosen_rankings,
    reading_rows,
)
from search_to_signal.analysis.tables.files import to_csv, to_markdown

Row = dict[str, str | int | float | None]

INTRODUCTION = """\
Recorded groups, replayed: the same evaluated completions under every mapping and normalizer. No model,
no search and no update is involved; a difference here shows that signals are separate, not that one is
better."""

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

BY_CONSTRUCTION = {
    "comparator": "by construction: monotone in score",
    "frontier": "by construction: monotone in score",
    "score_novelty": "by data",
    "response_repetition": "by data",
}


def pair_rows(audit: Audit) -> Iterator[Row]:
    """One row per problem, normalizer and pair of mappings."""
    for (problem, normalizer, first, second), tally in audit.pairs.items():
        row: Row = {"problem": problem, "normalizer": normalizer, "mapping_a": first, "mapping_b": second}
        row |= {"groups": tally.groups, "max_difference": tally.differences.largest}
        row |= {"mean_difference": tally.differences.mean, "median_difference": tally.differences.median}
        for position, tolerance in enumerate(TOLERANCES):
            number, built = int(tally.equivalent[position]), int(tally.by_construction[position])
            row |= {f"equivalent_{tolerance:g}": number, f"by_construction_{tolerance:g}": built}
            row |= {f"share_{tolerance:g}": ratio(number, tally.groups)}
        yield row | {"affine": tally.affine, "order_changes": tally.reordered, "basis": basis(tally)}


def basis(tally: PairTally) -> str:
    """Why the groups that are equivalent at 1e-3 are so: by construction, by data, both, or none is."""
    equivalent, built = int(tally.equivalent[-1]), int(tally.by_construction[-1])
    if not equivalent:
        return "never equivalent"
    return "by construction" if built == equivalent else "by data" if not built else "both"


def signal_rows(audit: Audit) -> Iterator[Row]:
    """One row per problem, normalizer and mapping: signal density and credit without improvement."""
    for (problem, normalizer, mapping), counts in audit.credit.items():
        yield {
            "problem": problem,
            "normalizer": normalizer,
            "mapping": mapping,
            "groups": counts.groups,
            "no_peer_groups": counts.no_peer_groups,
            "zero_advantage_groups": counts.zero_groups,
            "zero_advantage_share": zero_advantage_share(counts),
            "non_improving_groups": counts.non_improving_groups,
            "non_improving_groups_with_credit": counts.credited_groups,
            "share_of_non_improving_groups": idle_credit_share(counts),
            "share_of_all_groups_to_non_improvers": idle_credit_rounds(counts),
        }


def credit_rows(audit: Audit) -> Iterator[Row]:
    """One row per problem, normalizer, mapping and candidate class."""
    for (problem, normalizer, mapping), counts in audit.credit.items():
        for entry in credit_table(counts):
            yield {
                "problem": problem,
                "normalizer": normalizer,
                "mapping": mapping,
                "class": entry.candidate_class.value,
                "candidates": entry.candidates,
                "prevalence": entry.prevalence,
                "mass_share": entry.mass_share,
                "enrichment": entry.enrichment,
                "positive_rate": entry.positive_rate,
            }


def context_rows(audit: Audit) -> Iterator[Row]:
    """One row per problem and context indicator put ahead of score."""
    for (problem, indicator), tally in audit.context.items():
        yield {
            "problem": problem,
            "indicator": indicator,
            "groups": tally.groups,
            "constant_in_group": tally.constant,
            "reordered": tally.reordered,
            "reordered_share": ratio(tally.reordered, tally.groups),
            "basis": BY_CONSTRUCTION[indicator],
        }


def csv_text(rows: Iterable[Row]) -> str:
    """Rows as CSV with nine significant digits; an absent ratio is an empty field."""
    listed = list(rows)
    head = list(listed[0]) if listed else []
    return to_csv([head, *([_field(value) for value in row.values()] for row in listed)])


def page(audit: Audit, inputs: Mapping[str, int], default: str) -> str:
    """The audit as Markdown; the normalizer ``default`` in full, the others by their pairs."""
    signal = [_without(row, "normalizer") for row in signal_rows(audit) if row["normalizer"] == default]
    credit = [_without(row, "normalizer") for row in credit_rows(audit) if row["normalizer"] == default]
    pairs = [_pair_line(row) for row in pair_rows(audit) if row["normalizer"] == default]
    parts = [
        "# Shared-record audit",
        INTRODUCTION,
        _table([{"problem": name, "groups": number} for name, number in audit.groups.items()]),
        _table([{"input": name, "bytes": size} for name, size in inputs.items()]),
        f"## Pairs of mappings under the normalizer `{default}`",
        *(PAIRS, _table(pairs)),
        *("## Context indicators ahead of score", CONTEXT, _table(context_rows(audit))),
        *("## Signal density", SIGNAL, _table(signal)),
        *("## Positive credit by class", CREDIT, _table(credit)),
        *("## What hangs on the open decisions, all problems together", SENSITIVITY),
        _table(
            {"ranked by": name, "mappings": order} for name, order in chosen_rankings(audit, "all").items()
        ),
        _table(_reading_lines(audit)),
        *("## The other normalizers, all problems together", _table(_other_pairs(audit, default))),
    ]
    return "\n\n".join(parts) + "\n"


def _reading_lines(audit: Audit) -> Iterator[Row]:
    """The columns of a reading that fit on a page; readings.csv has the orders in full."""
    for row in reading_rows(audit, "all"):
        names = (change.quantity for change in changed_rankings(audit, "all", str(row["reading"])))
        yield {**_without(row, "problem"), "rankings_changed": ", ".join(names) or "none"}


def _other_pairs(audit: Audit, default: str) -> Iterator[Row]:
    for row in pair_rows(audit):
        if row["normalizer"] != default and row["problem"] == "all":
            yield {"normalizer": row["normalizer"], **_without(_pair_line(row), "problem")}


def _pair_line(row: Row) -> Row:
    """The columns of a pair that fit on a page."""
    line: Row = {"problem": row["problem"], "mappings": f"{row['mapping_a']}, {row['mapping_b']}"}
    line |= {"groups": row["groups"], "max": row["max_difference"], "median": row["median_difference"]}
    for tolerance in TOLERANCES:
        line[f"at {tolerance:g}"] = row[f"equivalent_{tolerance:g}"]
    return line | {
        "of these by construction": row[f"by_construction_{TOLERANCES[-1]:g}"],
        "affine": row["affine"],
        "order changes": row["order_changes"],
        "basis": row["basis"],
    }


def _without(row: Row, column: str) -> Row:
    return {name: value for name, value in row.items() if name != column}


def _table(rows: Iterable[Row]) -> str:
    listed: Sequence[Row] = list(rows)
    if not listed:
        return "(none)"
    names = [name.replace("_", " ") for name in listed[0]]
    return to_markdown([names, *([_short(value) for value in row.values()] for row in listed)]).rstrip()


def _field(value: str | int | float | None) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    return "" if value is None else str(value)


def _short(value: str | int | float | None) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)

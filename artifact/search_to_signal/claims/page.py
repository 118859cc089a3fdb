"""Claim findings formatted as terminal text, CSV and a Markdown page."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from search_to_signal.claims.directions import NEGATIVE, Direction
from search_to_signal.claims.feasibility import Feasibility, check_feasibility
from search_to_signal.claims.ledger import Ledger, layer_name, load_ledger
from search_to_signal.claims.tables import ClaimTable, load_report
from search_to_signal.claims.verdicts import (
    ClaimFinding,
    ClaimVerdict,
    Implementation,
    add_estimates,
    judge_claims,
)
from search_to_signal.report.tables.cells import to_csv

MISFITS = (ClaimVerdict.INCONSISTENT, ClaimVerdict.DISAGREES, ClaimVerdict.OTHERWISE)

HEAD = (
    *("id", "where", "at", "layer", "quantity", "published", "unit", "verdict", "reason"),
    *("direction", "embedded", "comparison", "beside"),
)
INTRODUCTION = """\
Every number of the paper and its supplement, with a verdict:

- *Consistent* or *inconsistent*: whether the published numbers fit each other. A published number may be any
  number that rounds to it, and a check asks whether exact numbers exist that round to all of them.
- *Implemented as published*: a setting that this repository has, too.
- *Text and equation disagree*: a finding about the paper.
- *Not derivable*: it follows from nothing published, and no run gives it.
- The others need a run.

A check reads numbers of one evidence layer only, except for differences that the paper itself defines between
two layers.

Our own estimates come from other, smaller models. They are shown next to the published numbers, are never
pooled with them, and decide no verdict. Only directions are compared, seed by seed: the sign of a difference,
a ratio above or below 1, or a level above or below Frozen in the same table.

- *Same* or *opposite direction*: more seeds agree on it than chance explains (sign test at 0.05).
- *Undecided*: chance explains it.
- *Tied*: half of the seeds point each way.
- *Not comparable*: there is no direction, for the reason given.

n counts seeds unless something else is named. Entries that rest on the same estimates count as one
comparison, named after the first of them."""


def summary(findings: Sequence[ClaimFinding]) -> str:
    counts = Counter(finding.verdict for finding in findings)
    given = [(f.entry.id, f.estimate.direction) for f in findings if f.estimate]
    known = [(name, direction) for name, direction in given if direction is not Direction.MISSING]
    named = comparisons(findings)
    directions: Counter[Direction] = Counter(
        direction for _, direction in {(named[name], one) for name, one in known}
    )
    parts = [f"{counts[verdict]} {verdict.value}" for verdict in ClaimVerdict if counts[verdict]]
    conditions = sum(1 for finding in findings if finding.entry.checks.possible)
    by_direction = ", ".join(f"{directions[d]} {d.value}" for d in Direction if directions[d])
    compared = f", {directions.total()} comparisons ({by_direction})" if by_direction else ""
    missing = len(given) - len(known)
    lacking = f", {missing} more need a table that this report lacks" if missing else ""
    return (
        f"{len(findings)} entries: {', '.join(parts)}; {conditions} were also checked against a condition; "
        f"{len(known)} have an estimate from our runs{compared}{lacking}"
    )


def comparisons(findings: Sequence[ClaimFinding]) -> dict[str, str]:
    """Return, by entry id, the first entry with the same estimate; empty for entries without one."""
    first_entry: dict[tuple[tuple[str, float], ...], str] = {}
    names = {}
    for finding in findings:
        same = finding.estimate.comparison if finding.estimate else ()
        names[finding.entry.id] = first_entry.setdefault(same, finding.entry.id) if same else ""
    return names


def terminal(
    ledger: Ledger, feasibility: Feasibility, findings: Sequence[ClaimFinding], with_notes: bool = False
) -> str:
    """Format counts by layer, the notes on checks ``with_notes``, and the misfits with their arithmetic."""
    rows = list(_layer_rows(ledger, findings))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines.append("")
    if with_notes:
        lines += [f"NOTE {names}: {note}" for note, names in _notes(findings).items()]
    for finding in misfits(findings):
        entry, value = finding.entry, f" = {finding.entry.value}" if finding.entry.value else ""
        lines.append(f"{finding.verdict.value.upper()} {entry.id}: {entry.quantity}{value}; {finding.reason}")
    lines.append(feasibility.summary())
    return "\n".join(lines)


def csv_text(findings: Sequence[ClaimFinding]) -> str:
    named = comparisons(findings)
    rows = (
        (
            *(f.entry.id, f.entry.where, f.entry.at, f.entry.layer, f.entry.quantity, f.entry.value),
            *(f.entry.unit, f.verdict.value, f.reason, *_ours(f), named[f.entry.id], f.neighbour),
        )
        for f in findings
    )
    return to_csv([HEAD, *rows])


def awaited_note(lacking: str) -> str:
    """Say what runs that are still to come mean for the directions of our estimates."""
    return f"{lacking}: until the rest is recorded, no direction of our estimates is decided"


def page(
    ledger: Ledger, feasibility: Feasibility, findings: Sequence[ClaimFinding], lacking: str = ""
) -> str:
    """Format Markdown: counts, misfits and notes, statements, neighbours, then all entries by layer.

    ``lacking`` says which runs of ours are still to come, empty where none is.
    """
    wrong, joint = misfits(findings), feasibility.summary()
    parts = [
        "# The claims of the paper",
        *([f"**{awaited_note(lacking)}.**"] if lacking else []),
        f"{summary(findings)}.",
        INTRODUCTION,
        _markdown(list(_layer_rows(ledger, findings))),
        "## What does not fit",
        _entries(wrong) if wrong else "Nothing: every check of a published number can be met.",
        f"{joint[0].upper()}{joint[1:]}.",
        "Notes on single checks:",
        "\n".join(f"- {names}: {note}." for note, names in _notes(findings).items()),
    ]
    # Statements without a number; there are none without a report.
    stated = [(f, ledger.counterparts[f.entry.id]) for f in findings if f.estimate and not f.entry.value]
    if stated:
        stated.sort(key=lambda pair: pair[1].kind not in NEGATIVE)
        rows = ((f.entry.id, f.entry.quantity, c.kind, f.verdict.value, *_ours(f)) for f, c in stated)
        parts += [
            "## Statements, compared with our runs",
            "Negative statements (mixed, not every) come first: they hold where no uniform order is found.",
            _markdown([("entry", "statement", "form", "verdict", "for ours", "ours"), *rows]),
        ]
    neighbours = [(f.entry.id, f.entry.value, f.neighbour) for f in findings if f.neighbour]
    parts += [
        "## Neighbours in other layers",
        "Readers will compare these. They come from other runs, and no verdict rests on them.",
        _markdown([("entry", "published", "neighbour"), *neighbours]),
    ]
    for name in ledger.layers:
        own = [f for f in findings if f.entry.layer == name]
        claim = f"Strongest claim: {ledger.strongest_claim(name)}."
        parts += [f"## {layer_name(name)}", claim, _entries(own)]
    return "\n\n".join(parts) + "\n"


def misfits(findings: Sequence[ClaimFinding]) -> list[ClaimFinding]:
    """Return contradictory numbers, sentences that contradict an equation, and settings that differ here."""
    return [finding for verdict in MISFITS for finding in findings if finding.verdict is verdict]


def _notes(findings: Sequence[ClaimFinding]) -> dict[str, str]:
    notes: dict[str, list[str]] = {}
    for finding in findings:
        if finding.entry.checks.note:
            notes.setdefault(finding.entry.checks.note, []).append(finding.entry.id)
    return {note: ", ".join(names) for note, names in notes.items()}


def write(
    ledger: Ledger, feasibility: Feasibility, findings: Sequence[ClaimFinding], out: Path, lacking: str = ""
) -> None:
    """Write claims.csv and claims.md into ``out``; ``lacking`` as for ``page``."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "claims.csv").write_text(csv_text(findings), encoding="utf-8")
    (out / "claims.md").write_text(page(ledger, feasibility, findings, lacking), encoding="utf-8")


def _layer_rows(ledger: Ledger, findings: Sequence[ClaimFinding]) -> Iterator[tuple[str, ...]]:
    yield ("layer", "entries", *(verdict.value for verdict in ClaimVerdict))
    for name in ledger.layers:
        counts = Counter(finding.verdict for finding in findings if finding.entry.layer == name)
        yield (layer_name(name), str(counts.total()), *(str(counts[verdict]) for verdict in ClaimVerdict))


def _entries(findings: Sequence[ClaimFinding]) -> str:
    rows = (
        (
            *(f.entry.id, f.entry.quantity, f"{f.entry.value} {f.entry.unit}".strip()),
            *(f.verdict.value, f.reason, *_ours(f)),
        )
        for f in findings
    )
    return _markdown([("entry", "quantity", "published", "verdict", "reason", "direction", "ours"), *rows])


def _ours(finding: ClaimFinding) -> tuple[str, str]:
    ours = finding.estimate
    return (ours.direction.value, ours.text) if ours else ("", "")


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# The ledger of a report: verdicts on the paper's numbers, with our own estimates next to them.

FOLDER = "claims"


def write_ledger(
    report: Path,
    facts: Implementation | None = None,
    tables: Mapping[str, ClaimTable] | None = None,
    lacking: str = "",
) -> None:
    """Judge every entry with the tables of a report; writes claims.csv and claims.md into report/claims.

    ``facts`` are the settings that this repository implements; ``tables`` replaces the report's own tables,
    for several reports together; ``lacking`` says which runs are still to come. Raises LedgerError where
    ledger or tables are damaged.
    """
    own = load_report(report) if tables is None else tables
    findings = judge_published(facts, own, awaited=bool(lacking))
    ledger, feasibility = published()
    write(ledger, feasibility, findings, report / FOLDER, lacking)


@cache  # what the paper published is the same for every report
def published() -> tuple[Ledger, Feasibility]:
    """The shipped ledger, and whether its numbers can hold at once; raises LedgerError for damage."""
    ledger = load_ledger()
    return ledger, check_feasibility(ledger)


def judge_published(
    facts: Implementation | None = None,
    tables: Mapping[str, ClaimTable] | None = None,
    *,
    awaited: bool = False,
) -> Sequence[ClaimFinding]:
    """As ``judge_claims`` on the shipped ledger, each verdict of which is found once."""
    verdicts = _verdicts(msgspec.json.encode(facts))
    if tables is None:
        return verdicts
    return add_estimates(published()[0], verdicts, tables, facts, awaited=awaited)


@cache  # so are the verdicts, as long as the same is implemented
def _verdicts(facts: bytes) -> tuple[ClaimFinding, ...]:
    return tuple(judge_claims(published()[0], facts=msgspec.json.decode(facts)))

"""Findings as text for a terminal, as CSV for programs, and as a page."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from search_to_signal.claims.ledger import Ledger
from search_to_signal.claims.verdicts import Finding, Verdict

HEAD = (
    "id",
    "where",
    "at",
    "layer",
    "quantity",
    "published",
    "unit",
    "verdict",
    "reason",
    "embedded",
    "beside",
)
INTRODUCTION = """\
Every number of the paper and its supplement. *Consistent* and *inconsistent* speak of published numbers among
themselves: each stands for every number that rounds to it, and a check asks whether exact numbers could have
been rounded to all of them. *Not derivable* follows from nothing published, and no run gives it. The others
need a run. Our own estimates are of another, small model on smaller instances: they stand beside, are never
pooled with published numbers, and confirm none of them. No check reads numbers of another evidence layer, but
for the differences that the paper itself defines between two."""


def summary(findings: Sequence[Finding]) -> str:
    """One line of counts."""
    counts = Counter(finding.verdict for finding in findings)
    ours = sum(1 for finding in findings if finding.embedded)
    parts = [f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]]
    conditions = sum(1 for finding in findings if finding.entry.checks.possible)
    return (
        f"{len(findings)} entries: {', '.join(parts)}; "
        f"{conditions} had to meet a condition besides, {ours} have our own estimate beside them"
    )


def terminal(ledger: Ledger, findings: Sequence[Finding]) -> str:
    """Counts by layer, what to know of single checks, and every inconsistency with its arithmetic."""
    rows = [list(row) for row in _layer_rows(ledger, findings)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines += ["", *(f"NOTE {f.entry.id}: {f.entry.checks.note}" for f in findings if f.entry.checks.note)]
    wrong = [f for f in findings if f.verdict is Verdict.INCONSISTENT]
    lines += [f"INCONSISTENT {f.entry.id}: {f.entry.quantity} = {f.entry.value}; {f.reason}" for f in wrong]
    return "\n".join(lines) + "\n"


def csv_text(findings: Sequence[Finding]) -> str:
    """One row per entry."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEAD)
    writer.writerows(_row(finding) for finding in findings)
    return out.getvalue()


def page(ledger: Ledger, findings: Sequence[Finding]) -> str:
    """Markdown: counts, what does not fit, neighbours across layers, then all entries by layer."""
    wrong = [f for f in findings if f.verdict is Verdict.INCONSISTENT]
    beside = [f for f in findings if f.beside]
    parts = [
        "# The claims of the paper",
        f"{summary(findings)}.",
        INTRODUCTION,
        _markdown(list(_layer_rows(ledger, findings))),
        "## What does not fit",
        _entries(wrong),
        "## Neighbours in other layers",
        "Shown because a reader will compare them; they are other runs, and no verdict rests on them.",
        _markdown(
            [("entry", "published", "beside"), *((f.entry.id, f.entry.value, f.beside) for f in beside)]
        ),
    ]
    for name in ledger.layers:
        parts += [
            f"## {ledger.layers[name].row or 'Settings'}",
            f"Strongest claim: {ledger.strongest_claim(name)}.",
        ]
        parts.append(_entries([f for f in findings if f.entry.layer == name]))
    return "\n\n".join(parts) + "\n"


def write(ledger: Ledger, findings: Sequence[Finding], out: Path) -> None:
    """Write claims.csv and claims.md."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "claims.csv").write_text(csv_text(findings), encoding="utf-8")
    (out / "claims.md").write_text(page(ledger, findings), encoding="utf-8")


def _layer_rows(ledger: Ledger, findings: Sequence[Finding]) -> Iterator[tuple[str, ...]]:
    yield ("layer", "entries", *(verdict.value for verdict in Verdict))
    for name, layer in ledger.layers.items():
        counts = Counter(finding.verdict for finding in findings if finding.entry.layer == name)
        yield (layer.row or "Settings", str(counts.total()), *(str(counts[verdict]) for verdict in Verdict))


def _entries(findings: Sequence[Finding]) -> str:
    head = ("entry", "quantity", "published", "verdict", "reason", "embedded scale")
    rows = (
        (f.entry.id, f.entry.quantity, _value(f), f.verdict.value, f.reason, f.embedded) for f in findings
    )
    return _markdown([head, *rows])


def _value(finding: Finding) -> str:
    return f"{finding.entry.value} {finding.entry.unit}".strip()


def _row(finding: Finding) -> tuple[str, ...]:
    entry = finding.entry
    said = (finding.verdict.value, finding.reason, finding.embedded, finding.beside)
    return (entry.id, entry.where, entry.at, entry.layer, entry.quantity, entry.value, entry.unit, *said)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

"""A verdict for every entry of the ledger, and all of them as terminal text, CSV and a Markdown page.

A number that follows from other published numbers is consistent when exact numbers could have been rounded to
all of them, and inconsistent when none could. A setting is implemented as published when this repository has
the same number. A number that follows from nothing published needs a run, or no run could give it. Our own
estimates are shown next to the published numbers and decide no verdict.
"""

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec

from search_to_signal.base.errors import LedgerError
from search_to_signal.base.package_data import render
from search_to_signal.base.progress import aligned
from search_to_signal.claims.directions import NEGATIVE, Direction, Estimate, make_estimate, undecided_yet
from search_to_signal.claims.expressions import Scope, evaluate, format_numbers, parse, references, text_of
from search_to_signal.claims.feasibility import Feasibility, check_feasibility
from search_to_signal.claims.intervals import Interval
from search_to_signal.claims.ledger import (
    IMPLEMENTATION,
    SETTINGS,
    ClaimEntry,
    Ledger,
    layer_name,
    load_ledger,
)
from search_to_signal.claims.tables import ClaimTable, implementation_table, load_report
from search_to_signal.report.tables.cells import to_csv

Implementation = Mapping[str, Mapping[str, str]]
"""The settings that this repository implements, by table of IMPLEMENTATION and setting."""


class ClaimVerdict(str, Enum):
    """The verdict on a published number or statement."""

    CONSISTENT = "consistent"
    INCONSISTENT = "inconsistent"
    DISAGREES = "text and equation disagree"
    IMPLEMENTED = "implemented as published"
    OTHERWISE = "implemented otherwise"
    NOT_DERIVABLE = "not derivable"
    NEEDS_RUN = "needs the 7B run"
    NEEDS_PROVIDER = "needs the API run"


@dataclass(frozen=True)
class ClaimFinding:
    """An entry of the ledger with its verdict and the reason.

    ``estimate`` is our own estimate, ``neighbour`` a number of another layer; neither decides the verdict.
    """

    entry: ClaimEntry
    verdict: ClaimVerdict
    reason: str
    estimate: Estimate | None = None
    neighbour: str = ""


def judge_claims(
    ledger: Ledger,
    report: Mapping[str, ClaimTable] | None = None,
    facts: Implementation | None = None,
    only: Collection[str] | None = None,
    *,
    awaited: bool = False,
) -> list[ClaimFinding]:
    """Return one finding per entry, in the ledger's order; with ``only``, of the entries with these ids.

    Args: ``report`` has the tables of a results directory by name, ``facts`` the settings that this
    repository implements; without facts no setting is compared. Where runs of the report are ``awaited``
    no direction of ours is decided. Raises LedgerError, naming the entry, for a formula that cannot be
    evaluated.
    """
    chosen = [entry for entry in ledger.entries if only is None or entry.id in only]
    scope = _scope(ledger, facts)
    findings = [_judge_entry(ledger, entry, scope) for entry in chosen]
    return findings if report is None else add_estimates(ledger, findings, report, facts, awaited=awaited)


def add_estimates(
    ledger: Ledger,
    findings: Sequence[ClaimFinding],
    report: Mapping[str, ClaimTable],
    facts: Implementation | None = None,
    *,
    awaited: bool = False,
) -> list[ClaimFinding]:
    """Return findings with our own estimates, which the tables of a report give, next to them."""
    scope, found = _scope(ledger, facts), []
    for finding in findings:
        counterpart = ledger.counterparts.get(finding.entry.id)
        place = _of_entry(scope, finding.entry)
        ours = make_estimate(counterpart, place, report) if counterpart else None
        found.append(replace(finding, estimate=undecided_yet(ours) if ours and awaited else ours))
    return found


def _scope(ledger: Ledger, facts: Implementation | None) -> Scope:
    known = {name: implementation_table(name, texts) for name, texts in (facts or {}).items()}
    scope = ledger.scope()
    return replace(scope, tables={**scope.tables, **known})


def _of_entry(scope: Scope, entry: ClaimEntry) -> Scope:
    if entry.published is None:
        return scope
    return replace(scope, claims={**scope.claims, "value": entry.published})


def _judge_entry(ledger: Ledger, entry: ClaimEntry, scope: Scope) -> ClaimFinding:
    scope, named = _of_entry(scope, entry), entry.checks.neighbour
    try:
        outcomes = list(_check_outcomes(entry, scope))
        neighbour = f"{named} = {format_numbers(parse(named), scope)}" if named else ""
    except LedgerError as error:
        raise LedgerError(f"{entry.id}: {error}") from error
    decided = [verdict for verdict, _ in outcomes if verdict is not None]
    reasons = [reason for _, reason in outcomes]
    if not decided:
        verdict, reason = _verdict_without_check(ledger, entry)
        decided, reasons = [verdict], [reason, *reasons]
    verdict = next((worst for worst in _WORST_FIRST if worst in decided), decided[0])
    remark = [entry.checks.note] if entry.checks.note else []
    return ClaimFinding(entry, verdict, "; ".join([*reasons, *remark]), neighbour=neighbour)


def _check_outcomes(entry: ClaimEntry, scope: Scope) -> Iterator[tuple[ClaimVerdict | None, str]]:
    """Yield a verdict and its arithmetic for each check; the verdict is None where the number stays open."""
    checks, published = entry.checks, entry.published
    if checks.equals and published is not None:
        fits, reason = _meets(checks.equals, published, scope)
        yield ClaimVerdict.CONSISTENT if fits else ClaimVerdict.INCONSISTENT, reason
    if checks.holds:
        verdict = _truth_verdict(evaluate(checks.holds, scope).one())
        yield verdict, f"{_with_numbers(checks.holds, scope)} is {_TRUTH[verdict]}"
    if checks.disagrees:
        contradicts = evaluate(checks.disagrees, scope).one().lo >= 1
        truth = "true" if contradicts else "false"
        reason = f"{_with_numbers(checks.disagrees, scope)} is {truth} of the equation"
        yield ClaimVerdict.DISAGREES if contradicts else ClaimVerdict.CONSISTENT, reason
    if checks.implements and set(IMPLEMENTATION) <= set(scope.tables):
        try:
            same, reason = _compare_implementation(checks.implements, entry, scope)
        except LedgerError as error:  # A setting with fewer numbers than the paper's differs from it.
            same, reason = False, f"there is no such number here: {error}"
        yield ClaimVerdict.IMPLEMENTED if same else ClaimVerdict.OTHERWISE, reason
    if checks.possible:
        impossible = evaluate(checks.possible, scope).one().hi == 0
        text = _with_numbers(checks.possible, scope)
        yield (ClaimVerdict.INCONSISTENT, f"{text} is false") if impossible else (None, f"possible: {text}")


def _meets(formula: str, published: Interval, scope: Scope) -> tuple[bool, str]:
    result = evaluate(formula, scope).one()
    fits = result.meets(published)
    relation = "meets" if fits else "misses"
    return fits, f"{_with_numbers(formula, scope)} is {result}, which {relation} {published}"


def _compare_implementation(formula: str, entry: ClaimEntry, scope: Scope) -> tuple[bool, str]:
    """Compare this repository with the published number, version or statement."""
    node, published = parse(formula), entry.published
    if isinstance(node, ast.Compare):
        truth = _truth_verdict(evaluate(formula, scope).one())
        return truth is ClaimVerdict.CONSISTENT, f"{_with_numbers(formula, scope)} is {_TRUTH[truth]}"
    if published is not None:
        return _meets(formula, published, scope)
    ours = text_of(node, scope)
    same = fnmatchcase(entry.value, ours)
    return same, f"{formula} is {ours}, which {'meets' if same else 'misses'} {entry.value}"


def _verdict_without_check(ledger: Ledger, entry: ClaimEntry) -> tuple[ClaimVerdict, str]:
    layer = ledger.layers[entry.layer]
    if entry.checks.why:
        return ClaimVerdict.NOT_DERIVABLE, entry.checks.why
    if entry.layer == SETTINGS:
        return ClaimVerdict.NOT_DERIVABLE, "a setting; nothing published determines it"
    return ClaimVerdict.NEEDS_PROVIDER if layer.provider else ClaimVerdict.NEEDS_RUN, layer.needs


def _truth_verdict(value: Interval) -> ClaimVerdict:
    """Return the verdict on a truth value: true for all numbers that rounding allows, for none, or open."""
    if value.lo >= 1:
        return ClaimVerdict.CONSISTENT
    return ClaimVerdict.INCONSISTENT if value.hi <= 0 else ClaimVerdict.NOT_DERIVABLE


_WORST_FIRST = (
    ClaimVerdict.INCONSISTENT,
    ClaimVerdict.DISAGREES,
    ClaimVerdict.OTHERWISE,
    ClaimVerdict.NOT_DERIVABLE,
)
_TRUTH = {
    ClaimVerdict.CONSISTENT: "true",
    ClaimVerdict.INCONSISTENT: "false",
    ClaimVerdict.NOT_DERIVABLE: "open within rounding",
}


def _with_numbers(text: str, scope: Scope) -> str:
    named = {ast.unparse(node): format_numbers(node, scope) for _, node in references(parse(text))}
    numbers = "; ".join(f"{name} = {value}" for name, value in named.items())
    return f"{text} [{numbers}]" if numbers else text


MISFITS = (ClaimVerdict.INCONSISTENT, ClaimVerdict.DISAGREES, ClaimVerdict.OTHERWISE)

HEAD = (
    *("id", "where", "at", "layer", "quantity", "published", "unit", "verdict", "reason"),
    *("direction", "embedded", "comparison", "beside"),
)


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
    lines = [*aligned(list(_layer_rows(ledger, findings))), ""]
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
    # Statements without a number; there are none without a report.
    stated = [(f, ledger.counterparts[f.entry.id]) for f in findings if f.estimate and not f.entry.value]
    stated.sort(key=lambda pair: pair[1].kind not in NEGATIVE)
    rows = [(f.entry.id, f.entry.quantity, c.kind, f.verdict.value, *_ours(f)) for f, c in stated]
    return render(
        "search_to_signal.report",
        "claims.md",
        lacking=awaited_note(lacking) if lacking else "",
        summary=summary(findings),
        markdown=_markdown,
        layer_rows=list(_layer_rows(ledger, findings)),
        entries=_entries,
        wrong=misfits(findings),
        joint=feasibility.summary(),
        notes=_notes(findings),
        stated=[("entry", "statement", "form", "verdict", "for ours", "ours"), *rows] if rows else (),
        neighbours=[
            ("entry", "published", "neighbour"),
            *((f.entry.id, f.entry.value, f.neighbour) for f in findings if f.neighbour),
        ],
        layers=[
            (layer_name(name), ledger.strongest_claim(name), [f for f in findings if f.entry.layer == name])
            for name in ledger.layers
        ],
    )


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

"""A verdict for every entry of the ledger, with the arithmetic behind it.

A number that follows from other published numbers is consistent when exact numbers could have been rounded to
all of them, and inconsistent when none could. A setting is implemented as published when this repository has
the same number. A number that follows from nothing published needs a run, or no run could give it. Our own
estimates are shown next to the published numbers and decide no verdict.
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase

from search_to_signal.base.errors import LedgerError
from search_to_signal.claims.directions import Estimate, make_estimate, undecided_yet
from search_to_signal.claims.expressions import Scope, evaluate, format_numbers, parse, references, text_of
from search_to_signal.claims.intervals import Interval
from search_to_signal.claims.ledger import IMPLEMENTATION, SETTINGS, ClaimEntry, Ledger
from search_to_signal.claims.tables import ClaimTable, implementation_table

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

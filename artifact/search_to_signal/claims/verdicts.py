"""A verdict for every entry, with the arithmetic that leads to it.

A number that follows from other published numbers is consistent when exact numbers could have been rounded to
all of them, and inconsistent when none could. A setting is implemented as published when this repository has
the same number. What follows from nothing published needs a run, or is a fact that no run could give. Our own
estimates stand beside and decide no verdict.
"""

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase

from search_to_signal.claims.directions import Estimate
from search_to_signal.claims.embedded import estimate
from search_to_signal.claims.expressions import Scope, evaluate, format_numbers, parse, references, text_of
from search_to_signal.claims.intervals import Interval
from search_to_signal.claims.ledger import IMPLEMENTATION, SETTINGS, Entry, Ledger
from search_to_signal.claims.tables import Table, implementation_table
from search_to_signal.errors import LedgerError

Implementation = Mapping[str, Mapping[str, str]]
"""What this repository implements, setting by setting, in the tables of IMPLEMENTATION."""


class Verdict(str, Enum):
    """What can be said of a published number here and now."""

    CONSISTENT = "consistent"
    INCONSISTENT = "inconsistent"
    DISAGREES = "text and equation disagree"
    IMPLEMENTED = "implemented as published"
    OTHERWISE = "implemented otherwise"
    NOT_DERIVABLE = "not derivable"
    NEEDS_RUN = "needs the 7B run"
    NEEDS_PROVIDER = "needs the API run"


@dataclass(frozen=True)
class Finding:
    """An entry with its verdict and the reason.

    ``estimate`` is our own, ``neighbour`` a number of another layer: no verdict rests on either.
    """

    entry: Entry
    verdict: Verdict
    reason: str
    estimate: Estimate | None = None
    neighbour: str = ""


def judge(
    ledger: Ledger,
    report: Mapping[str, Table] | None = None,
    facts: Implementation | None = None,
    only: Collection[str] | None = None,
) -> list[Finding]:
    """One finding per entry, in their order, or per entry of the ids in ``only``.

    ``report`` holds the tables of a results directory, ``facts`` what this repository implements; without
    facts no setting is compared.
    """
    scope = ledger.scope()
    known = {name: implementation_table(name, texts) for name, texts in (facts or {}).items()}
    scope = replace(scope, tables={**scope.tables, **known})
    chosen = [entry for entry in ledger.entries if only is None or entry.id in only]
    return [_finding(ledger, entry, scope, report) for entry in chosen]


def _finding(ledger: Ledger, entry: Entry, scope: Scope, report: Mapping[str, Table] | None) -> Finding:
    if entry.published is not None:
        scope = replace(scope, claims={**scope.claims, "value": entry.published})
    named, counterpart = entry.checks.neighbour, ledger.counterparts.get(entry.id)
    try:
        outcomes = list(_outcomes(entry, scope))
        neighbour = f"{named} = {format_numbers(parse(named), scope)}" if named else ""
    except LedgerError as error:
        raise LedgerError(f"{entry.id}: {error}") from error
    ours = estimate(counterpart, scope, report) if counterpart and report is not None else None
    decided = [verdict for verdict, _ in outcomes if verdict is not None]
    reasons = [reason for _, reason in outcomes]
    if not decided:
        verdict, reason = _underived(ledger, entry)
        decided, reasons = [verdict], [reason, *reasons]
    verdict = next((worst for worst in _WORST_FIRST if worst in decided), decided[0])
    remark = [entry.checks.note] if entry.checks.note else []
    return Finding(entry, verdict, "; ".join([*reasons, *remark]), ours, neighbour)


def _outcomes(entry: Entry, scope: Scope) -> Iterator[tuple[Verdict | None, str]]:
    """For each check its arithmetic and a verdict, or None where it leaves the number open."""
    checks, published = entry.checks, entry.published
    if checks.equals and published is not None:
        fits, said = _meets(checks.equals, published, scope)
        yield Verdict.CONSISTENT if fits else Verdict.INCONSISTENT, said
    if checks.holds:
        verdict = _truth(evaluate(checks.holds, scope).one())
        yield verdict, f"{_with_numbers(checks.holds, scope)} is {_TRUTH[verdict]}"
    if checks.disagrees:
        found = evaluate(checks.disagrees, scope).one().lo >= 1
        said = f"{_with_numbers(checks.disagrees, scope)} is {'true' if found else 'false'} of the equation"
        yield Verdict.DISAGREES if found else Verdict.CONSISTENT, said
    if checks.implements and set(IMPLEMENTATION) <= set(scope.tables):
        same, said = _implemented(entry, scope)
        yield Verdict.IMPLEMENTED if same else Verdict.OTHERWISE, said
    if checks.possible:
        impossible = evaluate(checks.possible, scope).one().hi == 0
        text = _with_numbers(checks.possible, scope)
        yield (Verdict.INCONSISTENT, f"{text} is false") if impossible else (None, f"possible: {text}")


def _meets(formula: str, published: Interval, scope: Scope) -> tuple[bool, str]:
    result = evaluate(formula, scope).one()
    fits = result.meets(published)
    said = "meets" if fits else "misses"
    return fits, f"{_with_numbers(formula, scope)} is {result}, which {said} {published}"


def _implemented(entry: Entry, scope: Scope) -> tuple[bool, str]:
    """Whether this repository has the published number or version, or a statement is true of it."""
    try:
        return _compared(entry.checks.implements, entry, scope)
    except LedgerError as error:  # A setting with fewer numbers than the paper's is another one.
        return False, f"there is no such number here: {error}"


def _compared(formula: str, entry: Entry, scope: Scope) -> tuple[bool, str]:
    node, published = parse(formula), entry.published
    if isinstance(node, ast.Compare):
        truth = _truth(evaluate(formula, scope).one())
        return truth is Verdict.CONSISTENT, f"{_with_numbers(formula, scope)} is {_TRUTH[truth]}"
    if published is not None:
        return _meets(formula, published, scope)
    ours = text_of(node, scope)
    same = fnmatchcase(entry.value, ours)
    return same, f"{formula} is {ours}, which {'meets' if same else 'misses'} {entry.value}"


def _underived(ledger: Ledger, entry: Entry) -> tuple[Verdict, str]:
    layer = ledger.layers[entry.layer]
    if entry.checks.why:
        return Verdict.NOT_DERIVABLE, entry.checks.why
    if entry.layer == SETTINGS:
        return Verdict.NOT_DERIVABLE, "a setting; nothing published determines it"
    return Verdict.NEEDS_PROVIDER if layer.provider else Verdict.NEEDS_RUN, layer.needs


def _truth(value: Interval) -> Verdict:
    """A statement's verdict: it holds for all numbers that could be meant, for none, or that is open."""
    if value.lo >= 1:
        return Verdict.CONSISTENT
    return Verdict.INCONSISTENT if value.hi <= 0 else Verdict.NOT_DERIVABLE


_WORST_FIRST = (Verdict.INCONSISTENT, Verdict.DISAGREES, Verdict.OTHERWISE, Verdict.NOT_DERIVABLE)
_TRUTH = {
    Verdict.CONSISTENT: "true",
    Verdict.INCONSISTENT: "false",
    Verdict.NOT_DERIVABLE: "open within rounding",
}


def _with_numbers(text: str, scope: Scope) -> str:
    """The formula, followed by the numbers that its names stand for."""
    named = {ast.unparse(node): format_numbers(node, scope) for _, node in references(parse(text))}
    numbers = "; ".join(f"{name} = {value}" for name, value in named.items())
    return f"{text} [{numbers}]" if numbers else text

"""A verdict for every entry, with the arithmetic that leads to it.

A number that follows from other published numbers is consistent when exact numbers could have been rounded to
all of them, and inconsistent when none could. What follows from nothing published needs a run, or is a fact
that no run could give.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from search_to_signal.claims.embedded import estimate
from search_to_signal.claims.expressions import Scope, evaluate, parse, references, shown
from search_to_signal.claims.intervals import Interval
from search_to_signal.claims.ledger import SETTINGS, Checks, Entry, Ledger
from search_to_signal.claims.tables import Table
from search_to_signal.errors import LedgerError


class Verdict(str, Enum):
    """What can be said of a published number here and now."""

    CONSISTENT = "consistent"
    INCONSISTENT = "inconsistent"
    NOT_DERIVABLE = "not derivable"
    REPRODUCED = "reproduced at embedded scale"
    NEEDS_RUN = "needs the 7B run"
    NEEDS_PROVIDER = "needs the API run"


@dataclass(frozen=True)
class Finding:
    """An entry with its verdict and the reason.

    ``embedded`` is our own estimate, ``beside`` a neighbour in another layer: no verdict rests on either.
    """

    entry: Entry
    verdict: Verdict
    reason: str
    embedded: str = ""
    beside: str = ""


def judge(ledger: Ledger, report: Mapping[str, Table] | None = None) -> list[Finding]:
    """One finding per entry, in their order; ``report`` holds the tables of a results directory."""
    scope = ledger.scope()
    return [_finding(ledger, entry, scope, report) for entry in ledger.entries]


def _finding(ledger: Ledger, entry: Entry, scope: Scope, report: Mapping[str, Table] | None) -> Finding:
    if entry.published is not None:
        scope = replace(scope, claims={**scope.claims, "value": entry.published})
    neighbour = entry.checks.beside
    try:
        outcomes = list(_outcomes(entry.checks, entry.published, scope))
        beside = f"{neighbour} = {shown(parse(neighbour), scope)}" if neighbour else ""
    except LedgerError as error:
        raise LedgerError(f"{entry.id}: {error}") from error
    embedded = estimate(entry, report or {})
    decided = [verdict for verdict, _ in outcomes if verdict is not None]
    reasons = [reason for _, reason in outcomes]
    if not decided:
        verdict, reason = _underived(ledger, entry, embedded)
        decided, reasons = [verdict], [reason, *reasons]
    verdict = next((worst for worst in _WORST_FIRST if worst in decided), decided[0])
    remark = [entry.checks.note] if entry.checks.note else []
    return Finding(entry, verdict, "; ".join([*reasons, *remark]), embedded, beside)


def _outcomes(
    checks: Checks, published: Interval | None, scope: Scope
) -> Iterator[tuple[Verdict | None, str]]:
    """For each check its arithmetic and a verdict, or None where it leaves the number open."""
    if checks.equals and published is not None:
        result = evaluate(checks.equals, scope).one()
        fits = result.meets(published)
        verdict = Verdict.CONSISTENT if fits else Verdict.INCONSISTENT
        said = "meets" if fits else "misses"
        yield verdict, f"{_with_numbers(checks.equals, scope)} is {result}, which {said} {published}"
    if checks.holds:
        verdict = _truth(evaluate(checks.holds, scope).one())
        yield verdict, f"{_with_numbers(checks.holds, scope)} is {_TRUTH[verdict]}"
    if checks.possible:
        impossible = evaluate(checks.possible, scope).one().hi == 0
        text = _with_numbers(checks.possible, scope)
        yield (Verdict.INCONSISTENT, f"{text} is false") if impossible else (None, f"possible: {text}")


def _underived(ledger: Ledger, entry: Entry, ours: str) -> tuple[Verdict, str]:
    layer = ledger.layers[entry.layer]
    if entry.checks.why:
        return Verdict.NOT_DERIVABLE, entry.checks.why
    if entry.layer == SETTINGS:
        return Verdict.NOT_DERIVABLE, "a setting; nothing published determines it"
    if ours:
        return Verdict.REPRODUCED, "our own estimate stands beside it"
    return Verdict.NEEDS_PROVIDER if layer.provider else Verdict.NEEDS_RUN, layer.needs


def _truth(value: Interval) -> Verdict:
    """A statement's verdict: it holds for all numbers that could be meant, for none, or that is open."""
    if value.lo >= 1:
        return Verdict.CONSISTENT
    return Verdict.INCONSISTENT if value.hi <= 0 else Verdict.NOT_DERIVABLE


_WORST_FIRST = (Verdict.INCONSISTENT, Verdict.NOT_DERIVABLE)
_TRUTH = {
    Verdict.CONSISTENT: "true",
    Verdict.INCONSISTENT: "false",
    Verdict.NOT_DERIVABLE: "open within rounding",
}


def _with_numbers(text: str, scope: Scope) -> str:
    """The formula, followed by the numbers that its names stand for."""
    named = {ast.unparse(node): shown(node, scope) for _, node in references(parse(text))}
    numbers = "; ".join(f"{name} = {value}" for name, value in named.items())
    return f"{text} [{numbers}]" if numbers else text

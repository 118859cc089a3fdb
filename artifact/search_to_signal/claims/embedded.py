"""Our own estimates of published quantities, from the tables of a report; they are never pooled.

An estimate comes from another, smaller model, at embedded scale on smaller instances, too. It shares the
estimator with the published number and confirms nothing about it; only its direction is compared.
counterparts.toml defines the comparison by rules on entry ids: each pair or seed has the published sign or
not, and a sign test decides whether the direction is the same, opposite or undecided.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

from search_to_signal.claims.directions import (
    Direction,
    Estimate,
    Signs,
    check_statement,
    compare_direction,
    comparison_key,
    count_signs,
    numbers,
)
from search_to_signal.claims.expressions import Scope, evaluate, parse, references
from search_to_signal.claims.tables import ClaimTable, meets, read_toml
from search_to_signal.errors import LedgerError
from search_to_signal.package_data import PUBLISHED

FILE = "counterparts.toml"
Kind = Literal["difference", "ratio", "level", "seeds", "end", "value", "every", "most", "mixed", "not every"]
STATEMENTS = ("every", "most", "mixed", "not every")
NEGATIVE = ("mixed", "not every")
# The value at which a quantity changes its direction, here and in the paper.
_TURN = {"difference": "0", "ratio": "1", "seeds": "0", "end": "0"}


class Counterpart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Formulas over a report's tables, with a kind of comparison; counterparts.toml explains the fields."""

    kind: Kind
    ours: str
    against: str = ""
    reference: str = ""
    whole: str = ""
    why: str = ""

    @property
    def compared(self) -> str:
        """The formula whose signs are our directions."""
        turn = self.against or _TURN.get(self.kind, "0")
        ours = self.whole if self.kind == "end" else self.ours
        return ours if turn == "0" else f"({ours}) - ({turn})"

    @property
    def published(self) -> str:
        """The formula over published numbers whose sign is the published direction; empty without one."""
        if self.kind == "value" or self.kind in STATEMENTS:
            return ""
        return f"value - ({self.reference or _TURN[self.kind]})"


class CounterpartRule(Counterpart, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The counterpart of every entry with a matching id; a word in braces matches any of its names."""

    entries: tuple[str, ...]


class CounterpartFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of counterparts.toml: our names by the paper's names, and the rules."""

    names: dict[str, dict[str, str]]
    rule: tuple[CounterpartRule, ...]


def load_counterparts(ids: Iterable[str], directory: Path = PUBLISHED) -> dict[str, Counterpart]:
    """Return the counterparts by entry id.

    Raises LedgerError for a damaged file, an entry with two counterparts, and a pattern without entries.
    """
    content, known = read_toml(directory / FILE, CounterpartFile), list(ids)
    counterparts: dict[str, Counterpart] = {}
    for rule in content.rule:
        for pattern in rule.entries:
            matcher = _matcher(pattern, content)
            matches = [match for name in known if (match := matcher.fullmatch(name))]
            if not matches:
                raise LedgerError(f"{directory / FILE}: no entry is called {pattern!r}")
            for match in matches:
                if match[0] in counterparts:
                    raise LedgerError(f"{directory / FILE}: {match[0]} has two counterparts, keep one")
                counterparts[match[0]] = _fill_rule(rule, match.groupdict(), content.names)
    return counterparts


def _matcher(pattern: str, content: CounterpartFile) -> "re.Pattern[str]":
    if unknown := sorted(set(re.findall(r"{(\w+)}", pattern)) - set(content.names)):
        raise LedgerError(f"{FILE}: {pattern!r} uses {', '.join(unknown)}, which [names] lacks")
    alternatives = {
        name: "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
        for name, words in content.names.items()
    }
    named = re.sub(r"\\{(\w+)\\}", lambda m: f"(?P<{m[1]}>{alternatives[m[1]]})", re.escape(pattern))
    return re.compile(named)


def _fill_rule(
    rule: CounterpartRule, printed: Mapping[str, str], names: Mapping[str, Mapping[str, str]]
) -> Counterpart:
    """Fill our names into a rule's formulas, and the paper's names where a field ends in _printed."""
    words = {f"{name}_printed": word for name, word in printed.items()}
    ours = {name: names[name][word] for name, word in printed.items()}
    # A name may contain another one: the name of a breadth cell has task and model.
    words |= {name: word.format_map(ours) for name, word in ours.items()}
    fields = {name: getattr(rule, name) for name in Counterpart.__struct_fields__}
    try:
        filled = Counterpart(**{name: text.format_map(words) for name, text in fields.items()})
    except KeyError as error:
        raise LedgerError(f"{FILE}: a rule of {rule.entries[0]} uses the unknown {error}") from error
    needs = {"value": filled.why, "level": filled.against, "end": filled.whole}
    if not needs.get(filled.kind, "nothing") or (filled.why and filled.kind != "value"):
        raise LedgerError(
            f"{FILE}: the rule of {rule.entries[0]} is of kind {filled.kind}: a value needs why, "
            "a level needs against, an end needs whole"
        )
    for formula in filter(None, (filled.compared, filled.published, filled.whole)):
        parse(formula)
    return filled


_SMOKE = "smoke_"


def make_estimate(counterpart: Counterpart, published: Scope, report: Mapping[str, ClaimTable]) -> Estimate:
    """Return our estimate for one entry; ``published`` is the ledger's scope with the entry's own value.

    An estimate that cannot be computed has the direction MISSING and the reason as its text.
    """
    try:
        _require_tables(counterpart, report)
        ours = Scope(report, {})
        values = evaluate(counterpart.ours, ours)
        whole = evaluate(counterpart.whole, ours) if counterpart.whole else None
        compared = evaluate(counterpart.compared, ours)
        split = count_signs(compared)
        sign = _sign(counterpart, published)
    except LedgerError as error:
        return Estimate(Direction.MISSING, str(error).partition(" (in ")[0])
    if not split.n:
        return Estimate(Direction.MISSING, "the report has no value there")
    text = numbers(values, whole)
    if lacking := _missing_conditions(counterpart, report):
        text = f"{text}, without {', '.join(lacking)}"
    return replace(_compare_estimate(counterpart, split, sign, text), comparison=comparison_key(compared))


def _compare_estimate(counterpart: Counterpart, split: Signs, sign: int | None, text: str) -> Estimate:
    if counterpart.kind in STATEMENTS:
        return check_statement(counterpart.kind, split, text)
    if sign is None:
        why = counterpart.why or "as printed, the published number has no direction"
        return Estimate(Direction.NOT_COMPARABLE, f"{why}; {text}")
    return compare_direction(split, sign, text)


def _require_tables(counterpart: Counterpart, report: Mapping[str, ClaimTable]) -> None:
    if report and all(name.startswith(_SMOKE) for name in report):
        raise LedgerError("the report is of a smoke run, which estimates nothing")
    texts = filter(None, (counterpart.ours, counterpart.against, counterpart.whole))
    named = {name for text in texts for name, _ in references(parse(text))}
    if missing := sorted(named - set(report)):
        raise LedgerError(f"the report has no table {', '.join(missing)}")


def _missing_conditions(counterpart: Counterpart, report: Mapping[str, ClaimTable]) -> list[str]:
    """Return the conditions that a formula over several conditions names and the report lacks."""
    if counterpart.kind not in (*STATEMENTS, "seeds"):
        return []
    missing = [
        condition
        for name, node in references(parse(counterpart.ours))
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and str(part.value).startswith("Condition=")
        for condition in str(part.value).removeprefix("Condition=").split("|")
        if not any(meets(row, [f"Condition={condition}"]) for row in report[name].rows)
    ]
    return list(dict.fromkeys(missing))


def _sign(counterpart: Counterpart, published: Scope) -> int | None:
    """Return the published direction, None where there is none or rounding leaves it open."""
    if not counterpart.published:
        return None
    value = evaluate(counterpart.published, published).one()
    return 1 if value.lo > 0 else -1 if value.hi < 0 else None

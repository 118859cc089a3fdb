"""Comparison of our numbers with a published direction: how many share it, and a sign test.

Seeds are the unit of the sign test. Numbers that belong to no seed are labelled with their own unit.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import comb
from pathlib import Path
from typing import Literal

import msgspec

from search_to_signal.base.errors import LedgerError
from search_to_signal.base.package_data import PUBLISHED
from search_to_signal.claims.expressions import Scope, Value, evaluate, parse, references
from search_to_signal.claims.tables import ClaimTable, meets, read_toml


class Direction(str, Enum):
    """How our estimate compares with a published number or statement."""

    SAME = "same direction"
    OPPOSITE = "opposite direction"
    UNDECIDED = "undecided"
    TIED = "tied"
    HOLDS = "holds for ours"
    FAILS = "does not hold for ours"
    NOT_COMPARABLE = "not comparable"
    MISSING = "no counterpart"


CHANCE = 0.05
"""The level of the sign test; a split with a larger p-value is undecided."""


@dataclass(frozen=True)
class Estimate:
    """A direction with its text: in how many of n it is found and our number, or what is missing.

    ``comparison`` identifies our numbers behind it; it is equal for entries with the same numbers.
    """

    direction: Direction
    text: str
    comparison: tuple[tuple[str, float], ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Signs:
    """The counts of our numbers above, below and at the reference value; ``unit`` names what is counted.

    ``votes`` are the counts above and below that the sign test uses: seeds, each by the majority of its
    numbers, or the numbers themselves where they belong to no seed.
    """

    above: int
    below: int
    equal: int
    unit: str
    votes: tuple[int, int]

    @staticmethod
    def of(value: Value) -> "Signs":
        """Count the numbers above, below and at zero."""
        above = sum(item.lo > 0 for item in value.items)
        below = sum(item.hi < 0 for item in value.items)
        unit, votes = "seeds" if _of_distinct_seeds(value) else "comparisons", (above, below)
        if all(value.labels):
            by_seed: dict[str, int] = defaultdict(int)
            for item, label in zip(value.items, value.labels, strict=True):
                by_seed[label] += (item.lo > 0) - (item.hi < 0)
            votes = sum(vote > 0 for vote in by_seed.values()), sum(vote < 0 for vote in by_seed.values())
        return Signs(above, below, len(value.items) - above - below, unit, votes)

    @property
    def n(self) -> int:
        return self.above + self.below + self.equal

    @property
    def by_chance(self) -> float:
        """The two-sided p-value of a sign test over the votes."""
        total = sum(self.votes)
        tail = sum(comb(total, k) for k in range(min(self.votes) + 1))
        return min(1.0, 2.0 * tail / 2.0**total)

    def compared(self, sign: int, text: str) -> Estimate:
        """Compare with a published direction: by sign for one number without seed, else by a sign test.

        ``sign`` is the published direction (1 or -1), ``text`` describes our number.
        """
        same, opposite = (self.above, self.below)[::sign]
        alone = self.n == 1 and self.unit != "seeds"
        direction = Direction.TIED
        if same != opposite:
            direction = Direction.SAME if same > opposite else Direction.OPPOSITE
            direction = direction if alone or self.by_chance <= CHANCE else Direction.UNDECIDED
        if alone:
            return Estimate(direction, text)
        rest = f"opposite in {opposite}, tied in {self.equal}"
        return Estimate(direction, f"same direction in {same} of {self.n} {self.unit}, {rest}; {text}")

    def checked(self, kind: str, text: str) -> Estimate:
        """Check a statement ("every", "most", "mixed", "not every" above zero) against our numbers."""
        rest = f"{self.below} below, {self.equal} equal; {text}"
        counted = f"{self.above} of {self.n} {self.unit} above, {rest}"
        if kind == "mixed" and self.n < 2:
            return Estimate(Direction.NOT_COMPARABLE, f"one {self.unit[:-1]} cannot be mixed; {counted}")
        holds = {
            "every": self.above == self.n,
            "most": 2 * self.above > self.n,
            "mixed": self.above > 0 and self.below > 0,
            "not every": self.above < self.n,
        }[kind]
        return Estimate(Direction.HOLDS if holds else Direction.FAILS, f"{kind}: {counted}")


def _of_distinct_seeds(value: Value) -> bool:
    return all(value.labels) and len(set(value.labels)) == len(value.items)


def undecided_yet(estimate: Estimate) -> Estimate:
    """Return the estimate without a direction, since runs that are still to come may turn it."""
    if estimate.direction in (Direction.NOT_COMPARABLE, Direction.MISSING):
        return estimate
    return replace(estimate, direction=Direction.UNDECIDED, text=f"runs are awaited; so far {estimate.text}")


def _describe_numbers(value: Value, whole: Value | None) -> str:
    """Format our number: its mean or ``whole``, its seeds or what it is of, and the range of the values."""
    values = [float(item.lo + item.hi) / 2 for item in value.items]
    summary = sum(values) / len(values) if whole is None else float(whole.one().lo)
    ends = "" if len(values) == 1 else f", {min(values):.6g} to {max(values):.6g}"
    seeds = len(set(filter(None, value.labels)))
    count = "one number" if len(values) == 1 else f"{len(values)} numbers"
    what = f"{count} of {seeds} seeds" if seeds else f"{count}, not seeds"
    if _of_distinct_seeds(value):
        what = f"n = {len(values)}"
    elif value.seeds:
        what = f"of {value.seeds} seeds"
    return f"ours {summary:.6g} ({what}{ends})"


# Our own estimates of published quantities, from the tables of a report; they are never pooled.
#
# An estimate comes from another, smaller model, at embedded scale on smaller instances, too. It shares the
# estimator with the published number and confirms nothing about it; only its direction is compared.
# counterparts.toml defines the comparison by rules on entry ids: each pair or seed has the published sign or
# not, and a sign test decides whether the direction is the same, opposite or undecided.

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
        if report and all(name.startswith(_SMOKE) for name in report):
            raise LedgerError("the report is of a smoke run, which estimates nothing")
        texts = filter(None, (counterpart.ours, counterpart.against, counterpart.whole))
        named = {name for text in texts for name, _ in references(parse(text))}
        if missing := sorted(named - set(report)):
            raise LedgerError(f"the report has no table {', '.join(missing)}")
        ours = Scope(report, {})
        values = evaluate(counterpart.ours, ours)
        whole = evaluate(counterpart.whole, ours) if counterpart.whole else None
        compared = evaluate(counterpart.compared, ours)
        sign = _sign(counterpart, published)
    except LedgerError as error:
        return Estimate(Direction.MISSING, str(error).partition(" (in ")[0])
    split = Signs.of(compared)
    if not split.n:
        return Estimate(Direction.MISSING, "the report has no value there")
    text = _describe_numbers(values, whole)
    if lacking := _missing_conditions(counterpart, report):
        text = f"{text}, without {', '.join(lacking)}"
    if counterpart.kind in STATEMENTS:
        estimate = split.checked(counterpart.kind, text)
    elif sign is None:
        why = counterpart.why or "as printed, the published number has no direction"
        estimate = Estimate(Direction.NOT_COMPARABLE, f"{why}; {text}")
    else:
        estimate = split.compared(sign, text)
    # The last bits, and which side of a difference comes first, make no other comparison.
    middles = [round(float(item.lo + item.hi) / 2.0, 9) for item in compared.items]
    turned = (
        sorted((label, turn * middle + 0.0) for label, middle in zip(compared.labels, middles, strict=True))
        for turn in (1, -1)
    )
    return replace(estimate, comparison=tuple(min(turned)))


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

"""Coverage: ledger, tables and listed exceptions contain every number of the document exactly once.

Tables must also have the document's labels (its words, in order), so that swapped rows are found.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from search_to_signal.base.errors import LedgerError, reason
from search_to_signal.base.package_data import PUBLISHED
from search_to_signal.claims.ledger import Ledger
from search_to_signal.claims.tables import ClaimTable, numbers_in, plain_text, read_toml, words_in

T = TypeVar("T")


class Number(msgspec.Struct, frozen=True):
    """A number as printed in the document: line and column from 1, and its context.

    ``context`` is prose, equation, caption LABEL, table LABEL, layout, key (citations and references), name
    (a number that touches a letter, as in 7B), or preamble.
    """

    line: int
    column: int
    text: str
    context: str


class Label(msgspec.Struct, frozen=True):
    """The words of one line of a table, its commands and numbers left out; ``context`` is table LABEL."""

    line: int
    text: str
    context: str


class NotClaimRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers that are no claims, with the reason: a whole ``context``, or places "line:column number"."""

    reason: str
    context: str = ""
    at: tuple[str, ...] = ()


class NotClaims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of not_claims.toml."""

    rule: tuple[NotClaimRule, ...]


def load_numbers(directory: Path = PUBLISHED) -> list[Number]:
    """Read the checked-in list of the document's numbers; raises LedgerError when it is damaged."""
    return _load(directory / "numbers.csv", Number)


def _load(path: Path, kind: type[T]) -> list[T]:
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        return [msgspec.convert(row, kind, strict=False) for row in rows]
    except (OSError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise LedgerError(f"cannot read {path}: {reason(error)}") from error


def find_uncovered(
    ledger: Ledger,
    numbers: Sequence[Number],
    directory: Path = PUBLISHED,
) -> list[str]:
    """Return the differences between a ledger and the document's numbers and labels, one line each."""
    rules = read_toml(directory / "not_claims.toml", NotClaims).rule
    tables, labels = ledger.tables, _load(directory / "labels.csv", Label)
    return [*_tables(tables, numbers), *_labels(tables, labels), *_text(ledger, numbers, rules)]


def _tables(tables: Mapping[str, ClaimTable], numbers: Sequence[Number]) -> Iterator[str]:
    """Yield published tables whose numbers differ, in content or order, from the document's table."""
    printed = _by_label(tables)
    contexts = {f"table {label}" for label in printed}
    for number in numbers:
        if number.context.startswith("table ") and number.context not in contexts:
            yield f"line {number.line}: {number.text} is in {number.context}, which is not published"
    for label, parts in printed.items():
        ours = [text for table in parts for text in _cells(table)]
        theirs = [number for number in numbers if number.context == f"table {label}"]
        if len(ours) != len(theirs):
            yield f"{label}: the document has {len(theirs)} numbers, the published table {len(ours)}"
        for text, number in zip(ours, theirs, strict=False):
            if text != plain_text(number.text):
                yield f"{label}: line {number.line} has {number.text}, the published table {text}"


def _by_label(tables: Mapping[str, ClaimTable]) -> dict[str, list[ClaimTable]]:
    by_label: dict[str, list[ClaimTable]] = {}
    for table in tables.values():
        by_label.setdefault(table.entry.label, []).append(table)
    return by_label


def _cells(table: ClaimTable) -> Iterator[str]:
    for row in (dict(zip(table.head, table.head, strict=True)), *table.rows):
        for cell in row.values():
            yield from numbers_in(cell)


def _labels(tables: Mapping[str, ClaimTable], labels: Sequence[Label]) -> Iterator[str]:
    """Yield published tables whose words differ, in content or order, from the document's table."""
    for name, parts in _by_label(tables).items():
        ours = [word for table in parts for word in _words(table)]
        lines = [label for label in labels if label.context == f"table {name}"]
        theirs = [(word, label.line) for label in lines for word in label.text.split()]
        for word, (other, line) in zip(ours, theirs, strict=False):
            if word != other:
                yield f"{name}: line {line} has the label {other}, the published table {word}"
                break
        if len(ours) != len(theirs):
            yield f"{name}: the document has {len(theirs)} words, the published table {len(ours)}"


def _words(table: ClaimTable) -> Iterator[str]:
    for heading in table.head:
        if not heading.endswith(" sd"):
            yield from words_in(table.entry.printed.get(heading, heading))
    for row in table.rows:
        for heading in table.head:
            if heading not in table.entry.added:
                yield from words_in(row[heading])


def _text(ledger: Ledger, numbers: Sequence[Number], rules: Sequence[NotClaimRule]) -> Iterator[str]:
    """Yield numbers outside tables that are not exactly one claim or exception, and places that are wrong."""
    there = {
        f"{n.line}:{n.column}": plain_text(n.text) for n in numbers if not n.context.startswith("table ")
    }
    named = [(entry.at, entry.value, entry.id) for entry in ledger.entries if entry.at and entry.value]
    for rule in rules:
        for place in rule.at:
            at, _, text = place.partition(" ")
            named.append((at, plain_text(text), rule.reason))
    seen: dict[str, str] = {}
    for at, value, name in named:
        if there.get(at) != value:
            yield f"{name}: {value} is not at {at}, there is {there.get(at, 'no number')}"
        elif at in seen:
            yield f"{at} is named twice: {seen[at]}, {name}"
        seen[at] = name
    kinds = {rule.context for rule in rules if rule.context}
    for number in numbers:
        known = number.context in kinds or number.context.startswith("table ")
        if not known and f"{number.line}:{number.column}" not in seen:
            yield f"line {number.line}, column {number.column}: {number.text} is no claim and has no reason"

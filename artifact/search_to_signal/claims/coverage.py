"""Whether ledger, tables and reasons account for every number of the document, each exactly once.

Tables also have the document's labels: its words, in order, so that no two of them can trade places.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from search_to_signal.claims.extraction import Label, Number, numbers_in, plain_text, words_in
from search_to_signal.claims.extraction import labels as labels_of
from search_to_signal.claims.extraction import numbers as numbers_of
from search_to_signal.claims.ledger import Ledger, load_ledger
from search_to_signal.claims.tables import Table, load_index, read_toml
from search_to_signal.errors import LedgerError, reason
from search_to_signal.package_data import PUBLISHED

LIST = "numbers.csv"
WORDS = "labels.csv"
T = TypeVar("T")


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers that claim nothing, and why: all of a kind of text, or those at places "line:column number"."""

    reason: str
    context: str = ""
    at: tuple[str, ...] = ()


class NotClaims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of not_claims.toml."""

    rule: tuple[Rule, ...]


def load_numbers(directory: Path = PUBLISHED) -> list[Number]:
    """The checked-in list of the document's numbers; raises LedgerError when it is damaged."""
    return _load(directory / LIST, Number)


def load_labels(directory: Path = PUBLISHED) -> list[Label]:
    """The checked-in list of the words in the document's tables; raises LedgerError when it is damaged."""
    return _load(directory / WORDS, Label)


def _load(path: Path, kind: type[T]) -> list[T]:
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        return [msgspec.convert(row, kind, strict=False) for row in rows]
    except (OSError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise LedgerError(f"cannot read {path}: {reason(error)}") from error


def uncovered(
    ledger: Ledger,
    numbers: Sequence[Number],
    directory: Path = PUBLISHED,
    labels: Sequence[Label] | None = None,
) -> list[str]:
    """What is wrong between a ledger and a document's numbers and labels, one line each; empty if nothing.

    Without ``labels`` the checked-in list of them.
    """
    rules = read_toml(directory / "not_claims.toml", NotClaims).rule
    tables, labels = ledger.tables, load_labels(directory) if labels is None else labels
    return [*_tables(tables, numbers), *_labels(tables, labels), *_text(ledger, numbers, rules)]


def _tables(tables: Mapping[str, Table], numbers: Sequence[Number]) -> Iterator[str]:
    """Tables hold, in order, the numbers that the document's table of that label holds."""
    printed = _by_label(tables)
    contexts = {f"table {label}" for label in printed}
    for number in numbers:
        if number.context.startswith("table ") and number.context not in contexts:
            yield f"line {number.line}: {number.text} stands in {number.context}, which is not published"
    for label, parts in printed.items():
        ours = [found for table in parts for found in _cells(table)]
        theirs = [number for number in numbers if number.context == f"table {label}"]
        if len(ours) != len(theirs):
            yield f"{label}: the document has {len(theirs)} numbers, the published table {len(ours)}"
        for text, number in zip(ours, theirs, strict=False):
            if text != plain_text(number.text):
                yield f"{label}: line {number.line} has {number.text}, the published table {text}"


def _by_label(tables: Mapping[str, Table]) -> dict[str, list[Table]]:
    """The tables of each label; one of the document may be several of ours."""
    found: dict[str, list[Table]] = {}
    for table in tables.values():
        found.setdefault(table.entry.label, []).append(table)
    return found


def _cells(table: Table) -> Iterator[str]:
    for row in (dict(zip(table.head, table.head, strict=True)), *table.rows):
        for cell in row.values():
            yield from numbers_in(cell)


def _labels(tables: Mapping[str, Table], labels: Sequence[Label]) -> Iterator[str]:
    """Tables have, in order, the words that the document's table of that label has."""
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


def _words(table: Table) -> Iterator[str]:
    """The words of the head, its deviations left out, then of the rows."""
    for heading in table.head:
        if not heading.endswith(" sd"):
            yield from words_in(table.entry.printed.get(heading, heading))
    for row in table.rows:
        for heading in table.head:
            if heading not in table.entry.added:
                yield from words_in(row[heading])


def _text(ledger: Ledger, numbers: Sequence[Number], rules: Sequence[Rule]) -> Iterator[str]:
    """Every number outside tables is one claim or has one reason not to be; every place named exists."""
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
            yield f"{name}: {value} does not stand at {at}, there is {there.get(at, 'no number')}"
        elif at in seen:
            yield f"{at} is named twice: {seen[at]}, {name}"
        seen[at] = name
    kinds = {rule.context for rule in rules if rule.context}
    for number in numbers:
        known = number.context in kinds or number.context.startswith("table ")
        if not known and f"{number.line}:{number.column}" not in seen:
            yield f"line {number.line}, column {number.column}: {number.text} is no claim and has no reason"


def differences(content: bytes, directory: Path = PUBLISHED) -> list[str]:
    """What a document has other than the checked-in list and the ledger say, one line each."""
    recorded, known = load_index(directory).document.sha256, load_numbers(directory)
    text = content.decode("utf-8", errors="replace")
    found, words, labels = numbers_of(text), labels_of(text), load_labels(directory)
    problems = []
    if sha256(content).hexdigest() != recorded:
        problems.append("the document is not the one of index.toml")
    problems += [f"not in {LIST}: {number}" for number in found if number not in set(known)]
    problems += [f"not in the document: {number}" for number in known if number not in set(found)]
    problems += [f"not in {WORDS}: {label}" for label in words if label not in set(labels)]
    problems += [f"not in the document: {label}" for label in labels if label not in set(words)]
    return [*problems, *uncovered(load_ledger(directory), found, directory, words)]

"""Coverage: ledger, tables and listed exceptions contain every number of the document exactly once.

Tables must also have the document's labels (its words, in order), so that swapped rows are found.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from search_to_signal.base.errors import LedgerError, reason
from search_to_signal.base.package_data import PUBLISHED
from search_to_signal.claims.extraction import Label, Number, numbers_in, plain_text, words_in
from search_to_signal.claims.extraction import labels as labels_of
from search_to_signal.claims.extraction import numbers as numbers_of
from search_to_signal.claims.ledger import Ledger, load_ledger
from search_to_signal.claims.tables import ClaimTable, load_index, read_toml

LIST = "numbers.csv"
WORDS = "labels.csv"
T = TypeVar("T")


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
    return _load(directory / LIST, Number)


def load_labels(directory: Path = PUBLISHED) -> list[Label]:
    """Read the checked-in list of the words in the document's tables; raises LedgerError when damaged."""
    return _load(directory / WORDS, Label)


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
    labels: Sequence[Label] | None = None,
) -> list[str]:
    """Return the differences between a ledger and a document's numbers and labels, one line each.

    ``labels`` is by default the checked-in list.
    """
    rules = read_toml(directory / "not_claims.toml", NotClaims).rule
    tables, labels = ledger.tables, load_labels(directory) if labels is None else labels
    return [*_tables(tables, numbers), *_labels(tables, labels), *_text(ledger, numbers, rules)]


def _tables(tables: Mapping[str, ClaimTable], numbers: Sequence[Number]) -> Iterator[str]:
    """Yield published tables whose numbers differ, in content or order, from the document's table."""
    printed = _by_label(tables)
    contexts = {f"table {label}" for label in printed}
    for number in numbers:
        if number.context.startswith("table ") and number.context not in contexts:
            yield f"line {number.line}: {number.text} stands in {number.context}, which is not published"
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
            yield f"{name}: {value} does not stand at {at}, there is {there.get(at, 'no number')}"
        elif at in seen:
            yield f"{at} is named twice: {seen[at]}, {name}"
        seen[at] = name
    kinds = {rule.context for rule in rules if rule.context}
    for number in numbers:
        known = number.context in kinds or number.context.startswith("table ")
        if not known and f"{number.line}:{number.column}" not in seen:
            yield f"line {number.line}, column {number.column}: {number.text} is no claim and has no reason"


def document_differences(content: bytes, directory: Path = PUBLISHED) -> list[str]:
    """Return the differences between a document and the checked-in lists and ledger, one line each."""
    recorded, known = load_index(directory).document.sha256, load_numbers(directory)
    text = content.decode("utf-8", errors="replace")
    numbers, words, labels = numbers_of(text), labels_of(text), load_labels(directory)
    problems = []
    if sha256(content).hexdigest() != recorded:
        problems.append("the document is not the one of index.toml")
    problems += [f"not in {LIST}: {number}" for number in numbers if number not in set(known)]
    problems += [f"not in the document: {number}" for number in known if number not in set(numbers)]
    problems += [f"not in {WORDS}: {label}" for label in words if label not in set(labels)]
    problems += [f"not in the document: {label}" for label in labels if label not in set(words)]
    return [*problems, *find_uncovered(load_ledger(directory), numbers, directory, words)]

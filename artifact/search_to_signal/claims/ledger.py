"""The ledger: every number of the paper as an entry with its place, evidence layer and checks.

``claims.toml`` lists the numbers of the running text by passage. Numbers in cells of published tables become
entries by rules (``[[cells]]``): one formula per column, applied to every row. A claim of one evidence layer
is never checked with numbers of another, and no aggregate mixes two layers; settings (layer "protocol")
belong to all layers.
"""

import ast
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

import msgspec

from search_to_signal.base.errors import LedgerError, reason
from search_to_signal.base.package_data import PUBLISHED
from search_to_signal.claims.directions import Counterpart, load_counterparts
from search_to_signal.claims.expressions import AGGREGATES, Scope, parse, references
from search_to_signal.claims.intervals import Interval, is_number, rounded
from search_to_signal.claims.tables import (
    ClaimTable,
    cell_name,
    load_published,
    numbers_in,
    plain_text,
    read_toml,
    words_in,
)
from search_to_signal.records.layers import LAYERS, get_layer

SETTINGS = "protocol"
# Tables of the implemented settings: the paper's profile, the lock file, and constants of the code.
IMPLEMENTATION = ("profile", "lock", "code")


class ClaimLayer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An evidence layer; ``needs`` describes what a new estimate of its numbers needs.

    ``contrasts`` are layers that the paper subtracts from this one in published differences; ``provider`` is
    true where a run needs an API provider.
    """

    needs: str = ""
    contrasts: tuple[str, ...] = ()
    provider: bool = False


class Checks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The checks of a number; the fields up to ``neighbour`` are formulas.

    ``equals`` derives the number, ``holds`` is a statement that is true or false, ``possible`` a condition
    that the number must meet without being determined by it. ``implements`` is this repository's number, or
    a statement about the repository. ``disagrees`` is true where the paper's equation contradicts its
    sentence. ``neighbour`` (``beside`` in the file) is a number of another layer: shown, never compared.
    ``why`` is the reason why nothing derives the number, ``note`` a remark on the check.
    """

    equals: str = ""
    holds: str = ""
    possible: str = ""
    implements: str = ""
    disagrees: str = ""
    neighbour: str = msgspec.field(default="", name="beside")
    why: str = ""
    note: str = ""

    def formulas(self) -> tuple[str, ...]:
        """Return the formulas that decide the verdict."""
        every = (self.equals, self.holds, self.possible, self.implements, self.disagrees)
        return tuple(text for text in every if text)


class Claim(Checks, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One number of the running text at ``at`` ("line:column"), or a statement without a number."""

    id: str
    at: str
    quantity: str
    value: str = ""
    unit: str = ""
    rounding: str = ""
    layer: str = ""


class Passage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Consecutive claims of the text with one layer and one rounding."""

    where: str
    layer: str
    claims: tuple[Claim, ...]
    rounding: str = ""


class CellRule(Checks, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Checks of the cells of ``table`` in ``columns``, which maps each heading to the value of {of}.

    In a formula {HEADING} is the row's cell, {column} the heading itself, and {k} the index of the number in
    a cell of text, from 0. ``places`` limits a rule to some indices, ``only`` to some rows.
    """

    table: str
    columns: dict[str, str]
    only: tuple[str, ...] = ()
    places: tuple[int, ...] = ()


class LedgerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of claims.toml."""

    layers: dict[str, ClaimLayer]
    passage: tuple[Passage, ...]
    cells: tuple[CellRule, ...] = ()


class ClaimEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A number or statement to be judged; ``at`` is its place "line:column", empty for a table cell.

    ``published`` is None for a statement, which has no value, and for a version, which is no decimal number.
    """

    id: str
    where: str
    at: str
    quantity: str
    value: str
    unit: str
    published: Interval | None
    layer: str
    checks: Checks


class Ledger(msgspec.Struct, frozen=True):
    """Entries in the order of the document, then of the tables; layers by id; the published tables.

    ``counterparts`` are our own quantities that correspond to entries, by entry id.
    """

    entries: tuple[ClaimEntry, ...]
    layers: dict[str, ClaimLayer]
    tables: dict[str, ClaimTable]
    counterparts: Mapping[str, Counterpart] = {}

    def scope(self) -> Scope:
        """Return the names that formulas may use: every table, and every claim of the text by id."""
        claims = {entry.id: entry.published for entry in self.entries if entry.at and entry.published}
        return Scope(self.tables, claims)

    def strongest_claim(self, layer: str) -> str:
        """Return the strongest claim that the paper's evidence matrix allows the layer."""
        return "none: a setting is no evidence" if layer == SETTINGS else get_layer(layer).claim


def layer_name(key: str) -> str:
    """Return the paper's name of a layer, or of the settings."""
    return "Settings" if key == SETTINGS else get_layer(key).name


def load_ledger(directory: Path = PUBLISHED) -> Ledger:
    """Read tables and claims; raises LedgerError for a damaged file and as ``check`` does."""
    tables = load_published(directory)
    content = read_toml(directory / "claims.toml", LedgerFile)
    entries = (*_text_entries(content), *_cell_entries(content, tables))
    check(Ledger(entries, content.layers, tables))
    counterparts = load_counterparts((entry.id for entry in entries), directory)
    return Ledger(entries, content.layers, tables, counterparts)


def _text_entries(content: LedgerFile) -> Iterator[ClaimEntry]:
    for passage in content.passage:
        for claim in passage.claims:
            rounding = claim.rounding or passage.rounding
            unit = Fraction(rounding) if rounding else None
            yield ClaimEntry(
                id=claim.id,
                where=passage.where,
                at=claim.at,
                quantity=claim.quantity,
                value=claim.value,
                unit=claim.unit,
                published=rounded(claim.value, unit) if claim.value else None,
                layer=claim.layer or passage.layer,
                checks=claim,
            )


def _cell_entries(content: LedgerFile, tables: Mapping[str, ClaimTable]) -> Iterator[ClaimEntry]:
    """Yield one entry per number of a published table, including numbers within its text.

    The numbers in the row of an evidence layer belong to that layer, all others to the table's layer.
    """
    rows = {layer.name: layer.key for layer in LAYERS}
    for table in tables.values():
        for row in table.rows:
            labels = " ".join(row[key] for key in table.entry.keys)
            for heading in table.printed:
                column = table.entry.columns.get(heading)
                for k, text in enumerate(numbers_in(row[heading])):
                    yield ClaimEntry(
                        id=cell_name(table, row, heading, k),
                        where=table.entry.label,
                        at="",
                        quantity=f"{heading}, {labels}",
                        value=text,
                        unit=column.unit if column else "",
                        published=table.interval(row, heading, text) if is_number(text) else None,
                        layer=rows.get(next(iter(row.values())), table.entry.layer),
                        checks=_find_checks(content.cells, table, row, heading, k),
                    )


def _find_checks(
    rules: tuple[CellRule, ...], table: ClaimTable, row: Mapping[str, str], heading: str, k: int
) -> Checks:
    """Return the checks of one number with its formulas filled in; raises LedgerError if two rules match."""
    matching = [
        rule
        for rule in rules
        if rule.table == table.name
        and heading in rule.columns
        and k in (rule.places or (k,))
        and row in table.select(heading, rule.only)[0]
    ]
    if len(matching) > 1:
        raise LedgerError(f"{len(matching)} rules check {heading} of table {table.name}: keep one")
    if not matching:
        return Checks()
    words = {**row, "column": heading, "of": matching[0].columns[heading], "k": str(k)}
    fields = {name: getattr(matching[0], name) for name in Checks.__struct_fields__}
    return Checks(**{name: text.format_map(words) for name, text in fields.items()})


def check(ledger: Ledger) -> None:
    """Raise LedgerError unless ids are unique, layers known, and every formula stays in its layer."""
    ids = [entry.id for entry in ledger.entries]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise LedgerError(f"the ledger has {', '.join(twice)} twice: rename one")
    layers = {entry.id: entry.layer for entry in ledger.entries}
    layers |= {name: table.entry.layer for name, table in ledger.tables.items()}
    layers |= dict.fromkeys(IMPLEMENTATION, SETTINGS)
    for entry in ledger.entries:
        if entry.layer not in ledger.layers:
            raise LedgerError(f"{entry.id} is of the unknown layer {entry.layer!r}")
        allowed = {entry.layer, SETTINGS, *ledger.layers[entry.layer].contrasts}
        for text in entry.checks.formulas():
            foreign = layers_of(parse(text), layers) - allowed
            if foreign:
                raise LedgerError(
                    f"{entry.id} is of layer {entry.layer} and its check reads {', '.join(foreign)}"
                )
            # No aggregate is over numbers of two evidence layers.
            for node in ast.walk(parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    pooled = layers_of(node, layers) - {SETTINGS} if node.func.id in AGGREGATES else set()
                    if len(pooled) > 1:
                        raise LedgerError(
                            f"the check of {entry.id} pools the layers {', '.join(sorted(pooled))}"
                        )
        if entry.checks.neighbour:
            parse(entry.checks.neighbour)


def layers_of(node: ast.expr, layers: Mapping[str, str]) -> set[str]:
    """Return the layers of the tables and claims in a formula; raises LedgerError for an unknown name."""
    names = {name for name, _ in references(node)} - {"value"}
    unknown = sorted(names - set(layers))
    if unknown:
        raise LedgerError(f"no table or claim is called {', '.join(unknown)}")
    return {layers[name] for name in names}


# Coverage: ledger, tables and listed exceptions contain every number of the document exactly once. Tables
# must also have the document's labels (its words, in order), so that swapped rows are found.


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

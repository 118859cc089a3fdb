"""The ledger: every number of the paper as an entry with its place, its evidence layer, and its checks.

``claims.toml`` lists the numbers of the running text by passage. The numbers in cells of published tables
become entries by rules (``[[cells]]``): one formula for a column, filled in for every row. A claim of one
evidence layer is never checked with numbers of another, and no aggregate mixes two; settings (layer
"protocol") belong to all.
"""

import ast
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path

import msgspec

from search_to_signal.claims.embedded import Counterpart, load_counterparts
from search_to_signal.claims.expressions import AGGREGATES, Scope, parse, references
from search_to_signal.claims.extraction import numbers_in
from search_to_signal.claims.intervals import Interval, is_number, rounded
from search_to_signal.claims.tables import Table, cell_name, load_published, read_toml
from search_to_signal.errors import LedgerError
from search_to_signal.package_data import PUBLISHED
from search_to_signal.records.layers import LAYERS, get_layer

SETTINGS = "protocol"
# Tables of what this repository implements: the paper's profile, the lock, and constants of the code.
IMPLEMENTATION = ("profile", "lock", "code")


class Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a fresh estimate of an evidence layer's numbers needs.

    ``contrasts`` names a layer against which the paper defines this one's published differences.
    """

    needs: str = ""
    contrasts: tuple[str, ...] = ()
    provider: bool = False


class Checks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a number can be checked; every field is a formula.

    ``equals`` derives it, ``holds`` is a statement that is true or not, ``possible`` a condition that it must
    meet and that does not determine it. ``implements`` is what this repository has for it: a number, or a
    statement that is true of it. ``disagrees`` is true where the paper's equation contradicts its sentence.
    ``neighbour`` (``beside`` in the file) names a number of another layer: shown, never compared. ``why``
    says why nothing can derive it, ``note`` what to know of the check.
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
        """The formulas that decide a verdict."""
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
    """Claims that stand together and share a layer and a rounding."""

    where: str
    layer: str
    claims: tuple[Claim, ...]
    rounding: str = ""


class CellRule(Checks, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Checks of the cells of ``table`` in ``columns``, which maps each heading to what {of} stands for.

    In a formula {HEADING} is the row's cell, {column} the heading itself, and {k} the number's place in a
    cell of text, from 0. ``places`` limits a rule to some of them.
    """

    table: str
    columns: dict[str, str]
    only: tuple[str, ...] = ()
    places: tuple[int, ...] = ()


class LedgerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of claims.toml."""

    layers: dict[str, Layer]
    passage: tuple[Passage, ...]
    cells: tuple[CellRule, ...] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A number to be judged; ``at`` is empty for a cell.

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

    ``counterparts`` are our own quantities beside entries, by id.
    """

    entries: tuple[Entry, ...]
    layers: dict[str, Layer]
    tables: dict[str, Table]
    counterparts: Mapping[str, Counterpart] = {}

    def scope(self) -> Scope:
        """What the formulas of this ledger may name: every table, and every claim of the text by id."""
        claims = {entry.id: entry.published for entry in self.entries if entry.at and entry.published}
        return Scope(self.tables, claims)

    def strongest_claim(self, layer: str) -> str:
        """What the paper's evidence matrix lets the layer support; settings support no claim."""
        return "none: a setting is no evidence" if layer == SETTINGS else get_layer(layer).claim


def layer_name(key: str) -> str:
    """What the paper calls a layer, or the settings."""
    return "Settings" if key == SETTINGS else get_layer(key).name


def load_ledger(directory: Path = PUBLISHED) -> Ledger:
    """Read tables and claims; raises LedgerError when any of them is damaged or breaks the discipline."""
    tables = load_published(directory)
    content = read_toml(directory / "claims.toml", LedgerFile)
    text = [_text_entry(passage, claim) for passage in content.passage for claim in passage.claims]
    entries = (*text, *_cell_entries(content, tables))
    check(Ledger(entries, content.layers, tables))
    counterparts = load_counterparts((entry.id for entry in entries), directory)
    return Ledger(entries, content.layers, tables, counterparts)


def _text_entry(passage: Passage, claim: Claim) -> Entry:
    return Entry(
        id=claim.id,
        where=passage.where,
        at=claim.at,
        quantity=claim.quantity,
        value=claim.value,
        unit=claim.unit,
        published=_published(claim.value, claim.rounding or passage.rounding),
        layer=claim.layer or passage.layer,
        checks=claim,
    )


def _published(value: str, rounding: str) -> Interval | None:
    return rounded(value, Fraction(rounding) if rounding else None) if value else None


def _cell_entries(content: LedgerFile, tables: Mapping[str, Table]) -> Iterator[Entry]:
    """One entry per number of a published table, the numbers within its text included.

    What a table says in the row of an evidence layer belongs to that layer, all else to the table's.
    """
    rows = {layer.name: layer.key for layer in LAYERS}
    for table in tables.values():
        for row in table.rows:
            layer = rows.get(next(iter(row.values())), table.entry.layer)
            for heading in table.printed:
                for k, _ in enumerate(numbers_in(row[heading])):
                    checks = _rule(content.cells, table, row, heading, k)
                    yield _cell_entry(table, row, heading, k, layer, checks)


def _rule(rules: tuple[CellRule, ...], table: Table, row: Mapping[str, str], heading: str, k: int) -> Checks:
    """The checks of one number, filled in; raises LedgerError when two rules claim it."""
    found = [
        rule
        for rule in rules
        if rule.table == table.name
        and heading in rule.columns
        and k in (rule.places or (k,))
        and row in table.select(heading, rule.only)[0]
    ]
    if len(found) > 1:
        raise LedgerError(f"{len(found)} rules check {heading} of table {table.name}: keep one")
    if not found:
        return Checks()
    words = {**row, "column": heading, "of": found[0].columns[heading], "k": str(k)}
    fields = {name: getattr(found[0], name) for name in Checks.__struct_fields__}
    return Checks(**{name: text.format_map(words) for name, text in fields.items()})


def _cell_entry(
    table: Table, row: Mapping[str, str], heading: str, k: int, layer: str, checks: Checks
) -> Entry:
    column, labels = table.entry.columns.get(heading), " ".join(row[key] for key in table.entry.keys)
    text = numbers_in(row[heading])[k]
    return Entry(
        id=cell_name(table, row, heading, k),
        where=table.entry.label,
        at="",
        quantity=f"{heading}, {labels}",
        value=text,
        unit=column.unit if column else "",
        published=table.interval(row, heading, text) if is_number(text) else None,
        layer=layer,
        checks=checks,
    )


def check(ledger: Ledger) -> None:
    """Raise LedgerError unless ids are unique, layers known, and no formula reaches into another layer."""
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
            _never_pooled(entry.id, text, layers)
        if entry.checks.neighbour:
            parse(entry.checks.neighbour)


def _never_pooled(name: str, text: str, layers: Mapping[str, str]) -> None:
    """No aggregate takes numbers of two evidence layers."""
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in AGGREGATES:
            found = layers_of(node, layers) - {SETTINGS}
            if len(found) > 1:
                raise LedgerError(f"the check of {name} pools the layers {', '.join(sorted(found))}")


def layers_of(node: ast.expr, layers: Mapping[str, str]) -> set[str]:
    """The layers of the tables and claims that a formula names; raises LedgerError for an unknown name."""
    names = {name for name, _ in references(node)} - {"value"}
    unknown = sorted(names - set(layers))
    if unknown:
        raise LedgerError(f"no table or claim is called {', '.join(unknown)}")
    return {layers[name] for name in names}

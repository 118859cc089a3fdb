"""From the files in ``published/`` to a ledger whose every formula has been read and found in order."""

import ast
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path

from search_to_signal.claims.counterparts import load_counterparts
from search_to_signal.claims.expressions import AGGREGATES, parse, references
from search_to_signal.claims.extraction import numbers_in
from search_to_signal.claims.intervals import Interval, is_number, rounded
from search_to_signal.claims.ledger import (
    IMPLEMENTATION,
    SETTINGS,
    CellRule,
    Checks,
    Claim,
    Entry,
    Ledger,
    LedgerFile,
    Passage,
)
from search_to_signal.claims.tables import PUBLISHED, Table, cell_name, load_published, read_toml
from search_to_signal.errors import LedgerError
from search_to_signal.records.layers import LAYERS


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
            layer = rows.get(next(iter(row.values())), table.entry.layer if table.entry else SETTINGS)
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
    if table.entry is None:
        raise LedgerError(f"table {table.name} is not in the index")
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
    layers |= {name: table.entry.layer for name, table in ledger.tables.items() if table.entry}
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

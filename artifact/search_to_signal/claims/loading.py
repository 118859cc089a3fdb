"""From the files in ``published/`` to a ledger whose every formula has been read and found in order."""

import ast
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path

from search_to_signal.claims.expressions import AGGREGATES, parse, references
from search_to_signal.claims.intervals import Interval, rounded
from search_to_signal.claims.ledger import (
    SETTINGS,
    CellRule,
    Checks,
    Claim,
    Entry,
    Ledger,
    LedgerFile,
    Passage,
)
from search_to_signal.claims.tables import PUBLISHED, Table, load_published, read_toml
from search_to_signal.errors import LedgerError


def load_ledger(directory: Path = PUBLISHED) -> Ledger:
    """Read tables and claims; raises LedgerError when any of them is damaged or breaks the discipline."""
    tables = load_published(directory)
    content = read_toml(directory / "claims.toml", LedgerFile)
    text = [_text_entry(passage, claim) for passage in content.passage for claim in passage.claims]
    ledger = Ledger((*text, *_cell_entries(content.cells, tables)), content.layers, tables)
    check(ledger)
    return ledger


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


def _cell_entries(rules: tuple[CellRule, ...], tables: Mapping[str, Table]) -> Iterator[Entry]:
    """One entry per number of a published table; text and keys are no claims."""
    for table in tables.values():
        for row in table.rows:
            for heading in table.entry.columns if table.entry else ():
                yield _cell_entry(table, row, heading, _rule(rules, table, row, heading))


def _rule(rules: tuple[CellRule, ...], table: Table, row: Mapping[str, str], heading: str) -> Checks:
    """The checks of one cell, filled in; raises LedgerError when two rules claim it."""
    found = [
        rule
        for rule in rules
        if rule.table == table.name and heading in rule.columns and row in table.select(heading, rule.only)[0]
    ]
    if len(found) > 1:
        raise LedgerError(f"{len(found)} rules check {heading} of table {table.name}: keep one")
    if not found:
        return Checks()
    words = {**row, "column": heading, "of": found[0].columns[heading]}
    fields = {name: getattr(found[0], name) for name in Checks.__struct_fields__}
    return Checks(**{name: text.format_map(words) for name, text in fields.items()})


def _cell_entry(table: Table, row: Mapping[str, str], heading: str, checks: Checks) -> Entry:
    if table.entry is None:
        raise LedgerError(f"table {table.name} is not in the index")
    column, labels = table.entry.columns[heading], " ".join(row[key] for key in table.entry.keys)
    return Entry(
        id=f"{table.name}[{labels}, {heading}]",
        where=table.entry.label,
        at="",
        quantity=f"{heading}, {labels}",
        value=row[heading],
        unit=column.unit,
        published=table.interval(row, heading, row[heading]),
        layer=table.entry.layer,
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
        for text in filter(None, (entry.checks.beside, entry.checks.embedded)):
            parse(text)


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

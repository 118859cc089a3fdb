"""The ledger: every number of the paper as an entry with its place, evidence layer and checks.

``claims.toml`` lists the numbers of the running text by passage. Numbers in cells of published tables become
entries by rules (``[[cells]]``): one formula per column, applied to every row. A claim of one evidence layer
is never checked with numbers of another, and no aggregate mixes two layers; settings (layer "protocol")
belong to all layers.
"""

import ast
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path

import msgspec

from search_to_signal.base.errors import LedgerError
from search_to_signal.base.package_data import PUBLISHED
from search_to_signal.claims.directions import Counterpart, load_counterparts
from search_to_signal.claims.expressions import AGGREGATES, Scope, parse, references
from search_to_signal.claims.intervals import Interval, is_number, rounded
from search_to_signal.claims.tables import ClaimTable, cell_name, load_published, numbers_in, read_toml
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

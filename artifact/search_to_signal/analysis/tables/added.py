"""Tables that somebody added to the catalogue: named by import path, and held to what a table is."""

from collections.abc import Callable, Iterator, Mapping
from typing import cast

from search_to_signal import plugins
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.tables.cells import Cell, Row, Table
from search_to_signal.errors import ConfigError, MappingError
from search_to_signal.records.layers import LAYERS

GROUP = "search_to_signal.tables"
"""The entry points by which an installed package offers tables."""


def added_table(name: str, path: str) -> Callable[[Results], Table]:
    """Return the builder of a table that somebody added; its module is imported where the table is made.

    ``path`` is an import path or an entry point. The builder raises ConfigError where there is no such
    function, and MappingError where it fails or returns what is no table; NoTableError passes.
    """

    def build(results: Results) -> Table:
        function = _load(name, path)
        with plugins.third_party_errors(f"table {name}"):
            table = function(results)
            if fault := next(_faults(table), ""):
                raise MappingError(f"table {name} ({path}) {fault}")
        return cast(Table, table)

    return build


def _load(name: str, path: str) -> Callable[[Results], object]:
    try:
        plugin = plugins.load(path, {}, GROUP)
    except ConfigError as error:
        raise ConfigError(f"table {name}: {error}, or take its line out of OWN in catalogue.py") from error
    if isinstance(plugin, type) or not callable(plugin):
        raise ConfigError(f"table {name}: {path} is no function: give one of Results that returns a Table")
    return cast(Callable[[Results], object], plugin)


def _faults(table: object) -> Iterator[str]:
    """Yield what is wrong with what a function returned, and what to do."""
    if not isinstance(table, Table):
        yield f"returned {type(table).__name__}: return cells.Table"
        return
    texts: Mapping[str, object] = {
        part: getattr(table, part) for part in ("name", "title", "layer", "label", "note")
    }
    for part, text in texts.items():
        if not isinstance(text, str):
            yield f"has a {part} of type {type(text).__name__}: give a text"
    if table.layer not in (keys := [layer.key for layer in LAYERS]):
        yield f"is of layer {table.layer!r}: give one of {', '.join(keys)}"
    labels = [row.label for row in table.rows if isinstance(row, Row)]
    if len(labels) < len(table.rows):
        yield "has rows that are none: give cells.Row of a label and its cells"
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        yield f"has two rows {twice!r}: give each a label of its own"
    for row in table.rows:
        yield from (f"has row {row.label!r} {fault}" for fault in _row_faults(row, table.columns))


def _row_faults(row: Row, columns: tuple[str, ...]) -> Iterator[str]:
    if len(row.cells) != len(columns):
        yield f"of {len(row.cells)} cells for {len(columns)} columns: give one cell per column"
    for cell in row.cells:
        if not isinstance(cell, Cell):
            yield f"with {type(cell).__name__} in place of a cell: give cells.Cell"
        elif not isinstance(cell.value, float | int | str | None):
            yield f"with a value of type {type(cell.value).__name__}: give a number, a text or None"

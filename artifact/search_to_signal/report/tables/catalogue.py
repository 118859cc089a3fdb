"""The catalogue of tables of a results directory, with reasons for the absent ones.

A new table is a function under ``table`` or ``run_table`` in the module of its family, or in ``tables.py`` of
its layer: report, page, ``s2s trace`` and ``s2s verify --tables`` follow. One of somebody's own in ``OWN``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from search_to_signal.base import plugins
from search_to_signal.base.errors import ConfigError, MappingError
from search_to_signal.layers.audit.tables import AUDIT_TABLES
from search_to_signal.records.layers import (
    ANCHOR,
    API,
    BREADTH,
    COHORT,
    LAYERS,
    RESTART,
    Layer,
    in_paper_order,
    layer_part,
)
from search_to_signal.report.results import NoTableError, Results
from search_to_signal.report.tables import core, credit, pairs
from search_to_signal.report.tables.cells import Cell, Row, Table, TableSpec
from search_to_signal.report.tables.measures import at_one_horizon, groups_of, in_groups

GROUP = "search_to_signal.tables"
"""The entry points by which an installed package offers tables."""


def added_table(name: str, path: str) -> Callable[[Results], Table]:
    """Return the builder of a table that somebody added; its module is imported where the table is made.

    ``path`` is an import path or an entry point. The builder raises ConfigError where there is no such
    function, and MappingError where it fails or returns what is no table; NoTableError passes.
    """

    def build(results: Results) -> Table:
        try:
            function = plugins.load(path, {}, GROUP)
        except ConfigError as error:
            raise ConfigError(
                f"table {name}: {error}, or take its line out of OWN in catalogue.py"
            ) from error
        if isinstance(function, type) or not callable(function):
            raise ConfigError(
                f"table {name}: {path} is no function: give one of Results that returns a Table"
            )
        with plugins.third_party_errors(f"table {name}"):
            table = function(results)
            if fault := next(_faults(table), ""):
                raise MappingError(f"table {name} ({path}) {fault}")
        return cast(Table, table)

    return build


def _faults(table: object) -> Iterator[str]:
    """Yield what is wrong with what a function returned, and what to do."""
    if not isinstance(table, Table):
        yield f"returned {type(table).__name__}: return cells.Table"
        return
    for part in ("name", "title", "layer", "label", "note"):
        if not isinstance(text := getattr(table, part), str):
            yield f"has a {part} of type {type(text).__name__}: give a text"
    if table.layer not in (keys := [layer.key for layer in LAYERS]):
        yield f"is of layer {table.layer!r}: give one of {', '.join(keys)}"
    labels = [row.label for row in table.rows if isinstance(row, Row)]
    if len(labels) < len(table.rows):
        yield "has rows that are none: give cells.Row of a label and its cells"
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        yield f"has two rows {twice!r}: give each a label of its own"
    for row in table.rows:
        where, columns = f"has row {row.label!r}", len(table.columns)
        if len(row.cells) != columns:
            yield f"{where} of {len(row.cells)} cells for {columns} columns: give one cell per column"
        for cell in row.cells:
            if not isinstance(cell, Cell):
                yield f"{where} with {type(cell).__name__} in place of a cell: give cells.Cell"
            elif not isinstance(cell.value, float | int | str | None):
                kind = type(cell.value).__name__
                yield f"{where} with a value of type {kind}: give a number, a text or None"


Builder = Callable[[Results], Table]
SMOKE = "smoke_"
NOT_RUN = "has not run"
OWN: Mapping[str, str] = {}
"""Tables of one's own, the last ones of a report: ``"lengths": "my_table:lengths"``."""
_ORDER = (
    *("core_results", "core_seeds", "paired", "paired_signs", "intervals"),
    *("operators", "operator_gains", "stages", "admissions"),
    *("credit", "signal", "controls", "reward_changes", "rules", "distinctions", "pairs", "pair_gaps"),
    *("normalizer_values", "claim_matrix", "group_size", "replay_pairs", "replay_context", "sensitivity"),
    *("matched_mappings", "matched_normalizers", "matched_cosines", "matched_moves"),
    *("coverage", "behaviours", "recurrence", "collapses", "truncation", "prompts", "heldout"),
    *("restart", "restart_paired", "restart_signs", "endpoints", "restart_prompts"),
    *("breadth", "breadth_gains", "breadth_prompts", "anchor", "anchor_realized", "anchor_prompts"),
    *("probe", "api"),
)


def _builders() -> dict[str, Builder]:
    """The tables of the modules here and of the layers' folders; one that _ORDER does not name comes last."""
    of_layers = (layer_part(layer.key, "tables") for layer in LAYERS)
    modules = (core, credit, pairs, *filter(None, of_layers))
    found = (spec for module in modules for spec in vars(module).values())
    by_name = {spec.name: spec for spec in found if isinstance(spec, TableSpec)}
    return dict(sorted(by_name.items(), key=lambda item: (*_ORDER, item[0]).index(item[0])))


BUILDERS: Mapping[str, Builder] = {
    **_builders(),
    **{name: added_table(name, path) for name, path in OWN.items()},
}
"""The tables of a report, in its order."""

TRACED: Mapping[str, Builder] = {**BUILDERS, **AUDIT_TABLES}
"""The tables of a report and those of the audit's directory."""


# Layers of live runs, whose tables compare them with each other and with the cohort.
_LIVE = (COHORT, RESTART, BREADTH, ANCHOR, API)


def unread_layers(name: str) -> tuple[str, ...]:
    """Return the layers whose runs a table does not read; none where it may read all."""
    spec = TRACED.get(name.removeprefix(SMOKE))
    if not isinstance(spec, TableSpec) or spec.layer not in _LIVE:
        return ()
    return tuple(layer.key for layer in LAYERS if layer.key not in (COHORT, spec.layer))


@dataclass(frozen=True)
class Catalogue:
    """The tables of a results directory, and the reason for each absent table."""

    tables: tuple[Table, ...]
    absent: Mapping[str, str]


def build(results: Results, name: str) -> Table:
    """Build one table by name; its note ends with the horizon of its layer.

    Tables of smoke runs bear the prefix ``smoke_``, asked for with or without it.

    Raises ConfigError that lists the names, NoTableError where there is nothing to build it from, and
    RunDirectoryError, RecordError or ContractError where a layer is damaged.
    """
    plain = name.removeprefix(SMOKE)
    if plain not in TRACED or (name != plain and not results.smoke):
        raise ConfigError(f"there is no table {name!r}: choose one of {', '.join(TRACED)}")
    table = TRACED[plain](results)
    lacking = results.partial.of(table.layer)
    note = " ".join(filter(None, (table.note, horizon_note(results, table.layer), lacking)))
    return replace(table, name=f"{SMOKE if results.smoke else ''}{plain}", note=note)


def catalogue(results: Results, names: Iterable[str] = BUILDERS) -> Catalogue:
    """Build every table; a layer that has not run has none. Damaged layers raise as in ``build``."""
    tables, absent = [], {}
    for name in names:
        try:
            tables.append(build(results, name))
        except NoTableError as reason:
            absent[name] = str(reason)
    return Catalogue(tuple(tables), absent)


@dataclass(frozen=True)
class Evidence:
    """A results directory with all its tables, the source of figures and pages."""

    results: Results
    catalogue: Catalogue

    @property
    def unit(self) -> str:
        """The unit of the cohort's scores, such as minus tour length."""
        return self.results.cohort[0].unit

    @property
    def tables(self) -> dict[str, Table]:
        """The tables by name, without the prefix of smoke runs."""
        return {table.name.removeprefix(SMOKE): table for table in self.catalogue.tables}

    @property
    def layers(self) -> dict[Layer, str]:
        """The state of every layer in the paper's order; a layer ran if it has a table."""
        ran = {table.layer for table in self.catalogue.tables}
        what = "ran (smoke)" if self.results.smoke else "ran"
        return {layer: what if layer.key in ran else NOT_RUN for layer in in_paper_order()}

    def table(self, name: str) -> Table:
        """Return a table by its name; raises NoTableError with the reason where it is absent."""
        tables = self.tables
        if name not in tables:
            raise NoTableError(self.catalogue.absent.get(name, f"there is no table {name}"))
        return tables[name]


def read_evidence(directory: Path, apart: Path | None = None) -> Evidence:
    """Read a results directory, with runs that lie ``apart``; raises as load_runs and catalogue do."""
    results = Results(directory, apart)
    return Evidence(results, catalogue(results))


def horizon_note(results: Results, layer: str) -> str:
    """Format a layer's horizon as a sentence; layers without own runs use the cohort's. Raises as it does."""
    horizon = _HORIZONS.get(layer, lambda results: groups_of(results.cohort))
    return f"Horizon: {horizon(results)}."


def _restart(results: Results) -> str:
    again, live = groups_of(results.restart), groups_of(results.cohort)
    if again == live:
        return live
    try:
        cut = at_one_horizon((*results.restart, *results.cohort))
    except NoTableError:
        return f"restarts of {again} and live runs of {live}, not compared"
    return f"restarts of {again} and live runs of {live}, compared over the first {len(cut[0].groups)}"


def _breadth(results: Results) -> str:
    cells = {name: groups_of(runs) for name, runs in results.breadth.items()}
    if len(set(cells.values())) == 1:
        return next(iter(cells.values()))
    return ", ".join(f"{groups} in {name}" for name, groups in cells.items())


_HORIZONS: Mapping[str, Callable[[Results], str]] = {
    "restart": _restart,
    "breadth": _breadth,
    "anchor": lambda results: (
        f"online runs of {groups_of(results.cohort)}, Frozen to its budgets of "
        f"{in_groups(budget.groups for budget in results.contract.budgets)}"
    ),
    "api": lambda results: groups_of(results.api),
}

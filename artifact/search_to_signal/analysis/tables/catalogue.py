"""The catalogue of tables of a results directory, with reasons for the absent ones.

A new table is a function from ``Results`` to ``Table`` in the module of its family, and one entry here:
report, page, ``s2s trace`` and ``s2s verify --tables`` follow. One of somebody's own is a name in ``OWN``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from search_to_signal.analysis.results import NoTableError, Results
from search_to_signal.analysis.tables import (
    anchor,
    changes,
    core,
    endpoints,
    evaluations,
    learner_credit,
    matched,
    normalizers,
    paired,
    pairs,
    proposals,
    shared_record_audit,
)
from search_to_signal.analysis.tables.added import added_table
from search_to_signal.analysis.tables.cells import Table
from search_to_signal.analysis.tables.measures import at_one_horizon, groups_of, in_groups
from search_to_signal.errors import ConfigError
from search_to_signal.records.layers import ANCHOR, BREADTH, COHORT, RESTART, Layer, in_paper_order

Builder = Callable[[Results], Table]
SMOKE = "smoke_"
NOT_RUN = "has not run"
OWN: Mapping[str, str] = {}
"""Tables of one's own, the last ones of a report: ``"lengths": "my_table:lengths"``."""
BUILDERS: Mapping[str, Builder] = {
    "core_results": core.core_results,
    "core_seeds": core.core_seeds,
    "paired": paired.paired,
    "paired_signs": paired.paired_signs,
    "intervals": paired.intervals,
    "operators": proposals.operators,
    "operator_gains": proposals.operator_gains,
    "stages": proposals.stages,
    "admissions": proposals.admissions,
    "credit": learner_credit.credit_by_class,
    "signal": learner_credit.signal,
    "controls": learner_credit.controls,
    "reward_changes": changes.reward_changes,
    "rules": pairs.rules,
    "distinctions": pairs.distinctions_learned,
    "pairs": pairs.pairs,
    "pair_gaps": pairs.pair_gaps,
    "normalizer_values": normalizers.normalizer_values,
    "claim_matrix": normalizers.claim_matrix,
    "group_size": normalizers.group_size,
    "replay_pairs": shared_record_audit.replay_pairs,
    "replay_context": shared_record_audit.replay_context,
    "sensitivity": shared_record_audit.sensitivity,
    "matched_mappings": matched.matched_table(matched.mapping_table),
    "matched_normalizers": matched.matched_table(matched.normalizer_table),
    "matched_cosines": matched.matched_table(matched.cosine_table),
    "matched_moves": matched.matched_table(matched.distance_table),
    "coverage": core.coverage,
    "behaviours": evaluations.behaviours,
    "recurrence": core.recurrence,
    "collapses": proposals.collapses,
    "truncation": core.truncation,
    "prompts": core.prompts_of(COHORT),
    "heldout": evaluations.heldout,
    "restart": paired.restart,
    "restart_paired": paired.restart_paired,
    "restart_signs": paired.restart_signs,
    "endpoints": endpoints.endpoints,
    "restart_prompts": core.prompts_of(RESTART),
    "breadth": core.breadth,
    "breadth_gains": core.breadth_gains,
    "breadth_prompts": core.prompts_of(BREADTH),
    "anchor": anchor.anchor,
    "anchor_realized": anchor.anchor_realized,
    "anchor_prompts": core.prompts_of(ANCHOR),
    "probe": evaluations.probe,
    "api": core.api,
    **{name: added_table(name, path) for name, path in OWN.items()},
}
"""The tables of a report, in its order."""

TRACED: Mapping[str, Builder] = {**BUILDERS, **shared_record_audit.AUDIT_TABLES}
"""The tables of a report and those of the audit's directory."""


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
        what, layers_with_tables = (
            "ran (smoke)" if self.results.smoke else "ran",
            {table.layer for table in self.catalogue.tables},
        )
        return {layer: what if layer.key in layers_with_tables else NOT_RUN for layer in in_paper_order()}

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


def _anchor(results: Results) -> str:
    budgets = in_groups(budget.groups for budget in results.contract.budgets)
    return f"online runs of {groups_of(results.cohort)}, Frozen to its budgets of {budgets}"


_HORIZONS: Mapping[str, Callable[[Results], str]] = {
    "restart": _restart,
    "breadth": _breadth,
    "anchor": _anchor,
    "api": lambda results: groups_of(results.api),
}

"""Every table that follows from the records of a results directory, and why some of them do not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from search_to_signal.analysis.admissions import admissions
from search_to_signal.analysis.api import api
from search_to_signal.analysis.bootstrap import intervals
from search_to_signal.analysis.breadth import breadth, breadth_gains
from search_to_signal.analysis.collapse_windows import collapses
from search_to_signal.analysis.controls import controls
from search_to_signal.analysis.coverage import coverage
from search_to_signal.analysis.group_size import group_size
from search_to_signal.analysis.horizons import horizon_note
from search_to_signal.analysis.long_prompts import prompts_of
from search_to_signal.analysis.probe import probe
from search_to_signal.analysis.recurrence import recurrence
from search_to_signal.analysis.restart import restart, restart_paired, restart_signs
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.stages import stages
from search_to_signal.analysis.tables.anchor import anchor, anchor_realized
from search_to_signal.analysis.tables.audit import replay_context, replay_pairs, sensitivity
from search_to_signal.analysis.tables.cells import NoTableError, Table
from search_to_signal.analysis.tables.core import core_results, core_seeds
from search_to_signal.analysis.tables.credit import credit_by_class, signal
from search_to_signal.analysis.tables.evaluations import behaviours, heldout
from search_to_signal.analysis.tables.matched import (
    cosine_table,
    mapping_table,
    move_table,
    normalizer_table,
    of_results,
)
from search_to_signal.analysis.tables.normalizers import claim_matrix, normalizer_values
from search_to_signal.analysis.tables.paired import paired, paired_signs
from search_to_signal.analysis.tables.proposals import operator_gains, operators
from search_to_signal.analysis.truncation import truncation
from search_to_signal.errors import ConfigError
from search_to_signal.records.manifest import ANCHOR, BREADTH, COHORT, RESTART

Builder = Callable[[Results], Table]
SMOKE = "smoke_"

BUILDERS: Mapping[str, Builder] = {
    "core_results": core_results,
    "core_seeds": core_seeds,
    "paired": paired,
    "paired_signs": paired_signs,
    "intervals": intervals,
    "operators": operators,
    "operator_gains": operator_gains,
    "stages": stages,
    "admissions": admissions,
    "credit": credit_by_class,
    "signal": signal,
    "controls": controls,
    "normalizer_values": normalizer_values,
    "claim_matrix": claim_matrix,
    "group_size": group_size,
    "replay_pairs": replay_pairs,
    "replay_context": replay_context,
    "sensitivity": sensitivity,
    "matched_mappings": of_results(mapping_table),
    "matched_normalizers": of_results(normalizer_table),
    "matched_cosines": of_results(cosine_table),
    "matched_moves": of_results(move_table),
    "coverage": coverage,
    "behaviours": behaviours,
    "recurrence": recurrence,
    "collapses": collapses,
    "truncation": truncation,
    "prompts": prompts_of(COHORT),
    "heldout": heldout,
    "restart": restart,
    "restart_paired": restart_paired,
    "restart_signs": restart_signs,
    "restart_prompts": prompts_of(RESTART),
    "breadth": breadth,
    "breadth_gains": breadth_gains,
    "breadth_prompts": prompts_of(BREADTH),
    "anchor": anchor,
    "anchor_realized": anchor_realized,
    "anchor_prompts": prompts_of(ANCHOR),
    "probe": probe,
    "api": api,
}


@dataclass(frozen=True)
class Catalogue:
    """The tables of a results directory, and the reason for each that it does not have."""

    tables: tuple[Table, ...]
    absent: Mapping[str, str]


def build(results: Results, name: str) -> Table:
    """One table by name, its note with the horizon of its layer.

    Tables of smoke runs bear the prefix ``smoke_``, asked for with or without it.

    Raises ConfigError that lists the names, NoTableError where there is nothing to build it from, and
    RunDirectoryError, RecordError or ContractError where a layer is damaged.
    """
    plain = name.removeprefix(SMOKE)
    if plain not in BUILDERS or (name != plain and not results.smoke):
        raise ConfigError(f"there is no table {name!r}: choose one of {', '.join(BUILDERS)}")
    table = BUILDERS[plain](results)
    note = f"{table.note} {horizon_note(results, table.layer)}"
    return replace(table, name=f"{SMOKE if results.smoke else ''}{plain}", note=note)


def catalogue(results: Results) -> Catalogue:
    """Every table; a layer that has not run gives none. Damaged layers raise as in ``build``."""
    tables, absent = [], {}
    for name in BUILDERS:
        try:
            tables.append(build(results, name))
        except NoTableError as reason:
            absent[name] = str(reason)
    return Catalogue(tuple(tables), absent)

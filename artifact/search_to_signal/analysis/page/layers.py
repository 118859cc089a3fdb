"""Which evidence layers have run here, and the tables of each."""

from dataclasses import dataclass

from search_to_signal.analysis.tables.catalogue import Evidence
from search_to_signal.records.layers import Layer, in_paper_order


@dataclass(frozen=True)
class LayerState:
    """A layer here: whether it ran, its tables by name, and a word for people."""

    layer: Layer
    ran: bool
    state: str
    tables: tuple[str, ...]


def layer_states(evidence: Evidence) -> tuple[LayerState, ...]:
    """Every layer, in the paper's order. A layer has run where a table follows from it."""
    what = "ran (smoke)" if evidence.smoke else "ran"
    found = {}
    for layer in in_paper_order():
        tables = tuple(table.name for table in evidence.found.tables if table.layer == layer.key)
        found[layer] = LayerState(layer, bool(tables), what if tables else "has not run", tables)
    return tuple(found.values())

"""The paper's evidence layers: what each can support at most, and whether it has run here."""

from dataclasses import dataclass

from search_to_signal.analysis.tables.catalogue import Evidence


@dataclass(frozen=True)
class Layer:
    """A layer by the word that tables use, with the name and claim of the paper's evidence matrix."""

    key: str
    name: str
    claim: str


LAYERS = (
    Layer("audit", "Normalizer replay", "whether reward differences survive group normalization"),
    Layer("updates", "Matched update", "whether an advantage difference reaches parameter updates"),
    Layer("cohort", "Formal live cohort", "proposal-stream and equal-horizon live-search effects"),
    Layer("restart", "Frozen restart", "checkpoint effect after removing accumulated live population"),
    Layer(
        "breadth",
        "Directional breadth",
        "directional breadth across three task–model cells, not multi-seed efficacy",
    ),
    Layer("anchor", "Resource anchor", "endpoint sensitivity to allocating compute to extra Frozen search"),
    Layer("probe", "Common-context probe", "executable checkpoint behavior on identical contexts"),
    Layer(
        "api",
        "API system reference",
        "completion-matched frozen-system reference, not a causal model comparison",
    ),
)


@dataclass(frozen=True)
class LayerState:
    """A layer here: whether it ran, its tables by name, and a word for people."""

    layer: Layer
    ran: bool
    state: str
    tables: tuple[str, ...]


def layer_states(evidence: Evidence) -> tuple[LayerState, ...]:
    """Every layer of the paper in its order. A layer has run where a table follows from it."""
    what = "ran (smoke)" if evidence.smoke else "ran"
    found = {}
    for layer in LAYERS:
        tables = tuple(table.name for table in evidence.found.tables if table.layer == layer.key)
        found[layer] = LayerState(layer, bool(tables), what if tables else "has not run", tables)
    return tuple(found.values())

"""The evidence layers: what the paper calls each, and what it may claim at most.

This is the one list of them, in the order in which they run. ``CONTRIBUTING.md`` says how to add one.
"""

from dataclasses import dataclass

from search_to_signal.base.errors import ConfigError

COHORT = "cohort"
RESTART = "restart"
BREADTH = "breadth"
AUDIT = "audit"
ANCHOR = "anchor"
PROBE = "probe"
API = "api"
UPDATES = "updates"
HELDOUT = "heldout"
# Within the directory of the restarts: those that begin with their parent's last archive (D45), with the
# initial model and with the final adapter.
INITIAL_ARCHIVE = "initial-archive"
FINAL_ARCHIVE = "final-archive"


@dataclass(frozen=True)
class Layer:
    """An evidence layer, never pooled with another.

    ``key`` is what profiles, configurations, tables and ``--layer`` call it, and the name of its directory.
    ``name`` and ``claim`` stand in row ``row`` of the paper's tab:evidence-matrix, counted from 1; None for a
    layer that is not in it. The runs of a layer with ``cells`` lie by cell, task x model.
    """

    key: str
    name: str
    claim: str
    row: int | None = None
    cells: bool = False


LAYERS = (
    Layer(COHORT, "Formal live cohort", "proposal-stream and equal-horizon live-search effects", row=3),
    Layer(RESTART, "Frozen restart", "checkpoint effect after removing accumulated live population", row=4),
    Layer(
        BREADTH,
        "Directional breadth",
        "directional breadth across three task–model cells, not multi-seed efficacy",
        row=5,
        cells=True,
    ),
    Layer(
        AUDIT,
        "Normalizer replay",
        "whether reward differences survive group normalization",
        row=1,
        cells=True,
    ),
    Layer(
        ANCHOR, "Resource anchor", "endpoint sensitivity to allocating compute to extra Frozen search", row=6
    ),
    Layer(PROBE, "Common-context probe", "executable checkpoint behavior on identical contexts", row=7),
    Layer(
        API,
        "API system reference",
        "completion-matched frozen-system reference, not a causal model comparison",
        row=8,
    ),
    Layer(UPDATES, "Matched update", "whether an advantage difference reaches parameter updates", row=2),
    Layer(
        HELDOUT,
        "Held-out instances",
        "what the heuristics that were found do on unseen instances, nothing about the model",
    ),
)


def get_layer(key: str) -> Layer:
    """The layer of that key; raises ConfigError that lists the keys."""
    by_key = {layer.key: layer for layer in LAYERS}
    if key not in by_key:
        raise ConfigError(f"there is no evidence layer {key!r}: choose one of {', '.join(by_key)}")
    return by_key[key]


def in_paper_order() -> tuple[Layer, ...]:
    """The layers of the paper's evidence matrix by row, then the others."""
    return tuple(sorted(LAYERS, key=lambda layer: layer.row or len(LAYERS) + 1))

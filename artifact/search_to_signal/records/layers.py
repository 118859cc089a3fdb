"""The evidence layers: what the paper calls each, and what it may claim at most.

A folder of ``search_to_signal/layers`` with a ``layer.toml`` is one. ``CONTRIBUTING.md`` says how to add one.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from search_to_signal.base import plugins
from search_to_signal.base.errors import ConfigError
from search_to_signal.base.package_data import PACKAGE
from search_to_signal.base.settings import load_toml

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

    ``key``, the name of its folder, is what profiles, configurations, tables and ``--layer`` call it, and the
    name of its directory in the results. ``name`` and ``claim`` stand in row ``row`` of the paper's
    tab:evidence-matrix, counted from 1; None for a layer that is not in it. The runs of a layer with
    ``cells`` lie by cell, task x model. Layers run in the order of ``place``.
    """

    name: str
    claim: str
    place: float
    row: int | None = None
    cells: bool = False
    key: str = ""


def _read(file: Path) -> Layer:
    return replace(load_toml(file, Layer), key=file.parent.name)


LAYERS = tuple(
    sorted(map(_read, PACKAGE.glob("layers/*/layer.toml")), key=lambda layer: (layer.place, layer.key))
)
"""All layers, in the order in which they run."""


def layer_part(key: str, name: str) -> Any:
    """Return a module of a layer's folder; None where the layer has none of this name.

    ``layer`` has ``run(reproduction)``, and ``tasks(profile)`` for the estimate of the remaining time;
    ``tables`` has the layer's tables. For ``s2s verify``: ``problems(directory, parsed)`` of ``checks`` holds
    its records against others, and ``findings(directory, tools)`` of ``again`` computes them again where the
    file ``again.MANIFEST`` is there.
    """
    return plugins.part(f"layers/{key}", name)


def get_layer(key: str) -> Layer:
    """The layer of that key; raises ConfigError that lists the keys."""
    by_key = {layer.key: layer for layer in LAYERS}
    if key not in by_key:
        raise ConfigError(f"there is no evidence layer {key!r}: choose one of {', '.join(by_key)}")
    return by_key[key]


def in_paper_order() -> tuple[Layer, ...]:
    """The layers of the paper's evidence matrix by row, then the others."""
    return tuple(sorted(LAYERS, key=lambda layer: layer.row or len(LAYERS) + 1))

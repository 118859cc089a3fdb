"""What a finding's remedy is called in each framework, as ``frameworks.toml`` says it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.base.settings import load_toml


class OptionNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one framework: ``filter`` leaves tied groups out, ``size`` is the group size, ``cap`` the longest
    completion, ``weights`` weigh the parts of a reward. ``scales`` are settings of the division by a
    deviation, each with the entry of the atlas that it stands for.
    ``kl`` weighs the divergence from the reference, ``clip`` is the upper bound of a ratio, ``norm`` the
    largest norm of a gradient; ``rollouts`` writes rollouts. ``rules`` are settings of the loss by the rule
    of aggregation that they stand for (``token_weights``), ``cut`` leaves cut completions out of the loss."""

    filter: str
    size: str
    cap: str
    weights: str
    scales: Mapping[str, str]
    kl: str = "weight of the KL term"
    clip: str = "upper bound of the ratio"
    norm: str = "the largest norm of the gradient (clipping), or a lower learning rate"
    rollouts: str = "live.write in the trainer (docs/examples/trainer-hooks.md)"
    rules: Mapping[str, str] = {}
    cut: str = "mask their tokens in the loss"


def _named() -> dict[str, OptionNames]:
    tables = load_toml(Path(__file__).with_suffix(".toml"), dict[str, dict[str, Any]])
    # One that is ``like`` another states what differs.
    whole = {name: {**tables.get(str(table.pop("like", "")), {}), **table} for name, table in tables.items()}
    return {name: msgspec.convert(table, OptionNames) for name, table in whole.items()}


_NAMED = _named()
ANY = _NAMED["any"]
OPTIONS: Mapping[str, OptionNames] = {name: own for name, own in _NAMED.items() if name != "any"}


def offered() -> frozenset[str]:
    """Every entry that a setting of some framework stands for."""
    return frozenset(name for options in _NAMED.values() for name in options.scales.values())


def options_of(framework: str) -> OptionNames:
    """The options of a framework by the name that the atlas gives it, in general words for others."""
    return OPTIONS.get(framework, ANY)

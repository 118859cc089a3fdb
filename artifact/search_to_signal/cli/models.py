"""Commands that make and measure embedded models."""

import argparse
from pathlib import Path

from search_to_signal.cli.base import Add, show
from search_to_signal.progress import progress_display


def _pretrain(arguments: argparse.Namespace) -> int:
    from search_to_signal.config import load_toml
    from search_to_signal.pretraining.card import write_card
    from search_to_signal.pretraining.training import RECIPE, Recipe, pretrain

    recipe = load_toml(arguments.recipe, Recipe)
    with progress_display() as progress:
        pretrain(recipe, arguments.out, progress)
        (arguments.out / RECIPE).write_bytes(arguments.recipe.read_bytes())
        write_card(recipe, arguments.out, progress)
    print(f"s2s: model in {arguments.out}")
    return 0


def _card(arguments: argparse.Namespace) -> int:
    from search_to_signal.config import load_toml
    from search_to_signal.pretraining.card import write_card
    from search_to_signal.pretraining.training import RECIPE, Recipe

    with progress_display() as progress:
        write_card(load_toml(arguments.model / RECIPE, Recipe), arguments.model, progress)
    show(arguments.model / "README.md")
    print(f"s2s: card in {arguments.model}")
    return 0


def register(add: Add) -> None:
    """Add pretrain and card."""
    make = add(
        "pretrain",
        _pretrain,
        "train an embedded model from its recipe",
        "s2s pretrain artifact/models/qwen2-2.1m/recipe.toml --out my-model",
    )
    make.add_argument("recipe", type=Path)
    make.add_argument("--out", required=True, type=Path)
    card = add("card", _card, "measure an embedded model again", "s2s card artifact/models/qwen2-2.1m")
    card.add_argument("model", type=Path)

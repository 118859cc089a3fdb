"""Commands that make, measure and serve embedded models."""

import argparse
import signal
import time
from contextlib import suppress
from pathlib import Path

from search_to_signal.cli.base import Add, show
from search_to_signal.errors import ConfigError
from search_to_signal.progress import progress_display

_PORTS = 65535


def _pretrain(arguments: argparse.Namespace) -> None:
    """Train an embedded model from its recipe."""
    from search_to_signal.config import load_toml
    from search_to_signal.pretraining.card import write_card
    from search_to_signal.pretraining.training import RECIPE, Recipe, pretrain

    recipe = load_toml(arguments.recipe, Recipe)
    with progress_display() as progress:
        pretrain(recipe, arguments.out, progress)
        (arguments.out / RECIPE).write_bytes(arguments.recipe.read_bytes())
        write_card(recipe, arguments.out, progress)
    print(f"s2s: model in {arguments.out}")


def _card(arguments: argparse.Namespace) -> None:
    """Measure an embedded model again."""
    from search_to_signal.config import load_toml
    from search_to_signal.pretraining.card import write_card
    from search_to_signal.pretraining.training import RECIPE, Recipe

    with progress_display() as progress:
        write_card(load_toml(arguments.model / RECIPE, Recipe), arguments.model, progress)
    show(arguments.model / "README.md")
    print(f"s2s: card in {arguments.model}")


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _serve(arguments: argparse.Namespace) -> None:
    """Serve a local model to OpenAI-compatible clients on this machine."""
    if not 0 <= arguments.port <= _PORTS:
        raise ConfigError(f"--port {arguments.port}: give a number from 0 to {_PORTS}")
    from search_to_signal.config import canonical_sha256
    from search_to_signal.generators.base_model import open_local
    from search_to_signal.generators.files import checked_files, model_directory
    from search_to_signal.generators.serving import serving
    from search_to_signal.generators.settings import GenerationSettings, ModelLoading
    from search_to_signal.runtime import keep_freed_memory

    keep_freed_memory()
    path = model_directory(arguments.model)
    fingerprint = f"fp_{canonical_sha256(checked_files(path))[:16]}"
    loading = ModelLoading(device=arguments.device, dtype=arguments.dtype)
    generator = open_local(path, loading, GenerationSettings())
    signal.signal(signal.SIGTERM, _stop)
    with serving(generator, arguments.model, port=arguments.port, fingerprint=fingerprint) as url:
        print(f"s2s: {arguments.model} at {url} (Ctrl-C ends it)", flush=True)
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


def register(add: Add) -> None:
    make = add(_pretrain, "s2s pretrain artifact/models/qwen2-2.1m/recipe.toml --out my-model")
    make.add_argument("recipe", type=Path)
    make.add_argument("--out", required=True, type=Path)
    card = add(_card, "s2s card artifact/models/qwen2-2.1m")
    card.add_argument("model", type=Path)
    serve = add(_serve, "s2s serve qwen2-2.1m --port 8321")
    serve.add_argument("model", help="name of an embedded model, or path of a model directory")
    serve.add_argument("--port", type=int, default=8321, help="0 takes any free port (default: 8321)")
    serve.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    serve.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")

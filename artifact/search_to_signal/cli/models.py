"""Commands that train, measure, serve and fetch models."""

import argparse
import sys
import time
from contextlib import suppress
from inspect import cleandoc
from pathlib import Path

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.package_data import TRAINING
from search_to_signal.base.progress import progress_display
from search_to_signal.cli.options import AGAIN, Add, show
from search_to_signal.models.files import KNOWN, PLACE
from search_to_signal.records.files import storage_errors

_PORTS = 65535


def _find_recipe() -> None:
    """Let the recipe be imported: it stands beside the models, and is no part of the package."""
    sys.path.append(str(TRAINING.parent))


def _pretrain(arguments: argparse.Namespace) -> None:
    """Train an embedded model from its recipe."""
    from search_to_signal.base.settings import load_toml

    _find_recipe()
    from recipe.model_card import write_card
    from recipe.training import RECIPE, Recipe, pretrain

    recipe = load_toml(arguments.recipe, Recipe)
    with progress_display() as progress:
        pretrain(recipe, arguments.out, progress)
        (arguments.out / RECIPE).write_bytes(arguments.recipe.read_bytes())
        write_card(recipe, arguments.out, progress)
    print(f"s2s: model in {arguments.out}")


def _card(arguments: argparse.Namespace) -> None:
    """Measure an embedded model again, and write its card."""
    from search_to_signal.base.settings import load_toml

    _find_recipe()
    from recipe.model_card import write_card
    from recipe.training import RECIPE, Recipe

    with progress_display() as progress:
        write_card(load_toml(arguments.model / RECIPE, Recipe), arguments.model, progress)
    show(arguments.model / "README.md")
    print(f"s2s: card in {arguments.model}")


def _serve(arguments: argparse.Namespace) -> None:
    """Serve a local model to OpenAI-compatible clients on this machine."""
    if not 0 <= arguments.port <= _PORTS:
        raise ConfigError(f"--port {arguments.port}: give a number from 0 to {_PORTS}")
    from search_to_signal.base.processes import end_in_order, keep_freed_memory
    from search_to_signal.base.settings import canonical_sha256
    from search_to_signal.models.device import require_device
    from search_to_signal.models.files import checked_files, model_directory
    from search_to_signal.models.local import open_local
    from search_to_signal.models.serving import serving
    from search_to_signal.models.settings import GenerationSettings, ModelLoading

    require_device(arguments.device, "--device cuda", "give --device cpu")
    keep_freed_memory()
    path = model_directory(arguments.model)
    fingerprint = f"fp_{canonical_sha256(checked_files(path))[:16]}"
    loading = ModelLoading(device=arguments.device, dtype=arguments.dtype)
    smaller = "" if loading.dtype == "bfloat16" else "--dtype bfloat16, or "
    remedy = f"{smaller}--device cpu"
    generator = open_local(path, loading, GenerationSettings(), f"give {remedy}")
    end_in_order()
    with serving(
        generator,
        arguments.model,
        port=arguments.port,
        fingerprint=fingerprint,
        less_memory=f"serve with {remedy}",
        report=lambda line: print(f"s2s: error: {line}", file=sys.stderr, flush=True),
    ) as url:
        print(f"s2s: {arguments.model} at {url} (Ctrl-C ends it)", flush=True)
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


def _model(_: argparse.Namespace) -> None:
    """Fetch a pretrained model: s2s model fetch."""


def _fetch(arguments: argparse.Namespace) -> None:
    """Fetch a pretrained model into a directory with card, licence and checksums.

    Its files come from the hub at a pinned revision, or from what you already have; either way their SHA-256
    decides. A GGUF file is converted: its weights dequantized and stored as bfloat16. OWNER/NAME is any
    repository of the hub with safetensors.
    """
    from search_to_signal.base.errors import require

    require("torch", "transformers", "gguf", "sentencepiece", "tokenizers", "safetensors", "huggingface_hub")
    from search_to_signal.base.processes import end_in_order
    from search_to_signal.models.fetching import FetchRequest, fetch

    out = arguments.out or Path(PLACE, Path(arguments.name).name)
    end_in_order()
    with storage_errors(out, AGAIN), progress_display() as progress:
        fetched = fetch(
            FetchRequest(
                arguments.name,
                arguments.given,
                arguments.sha256 and arguments.sha256.lower(),
                arguments.revision,
            ),
            out,
            progress,
        )
    print(f"s2s: model in {out}" + ("" if fetched else ", which was already complete"))


def _add_fetch(model: argparse.ArgumentParser) -> None:
    actions = model.add_subparsers(required=True, metavar="ACTION")
    text = cleandoc(_fetch.__doc__ or "")
    fetch = actions.add_parser(
        "fetch",
        help="bring a pretrained model",
        description=text,
        epilog="example: s2s model fetch qwen2.5-coder-0.5b-instruct --from downloads/parts",
    )
    fetch.set_defaults(command=_fetch)
    fetch.add_argument("name", help=f"{', '.join(KNOWN)}; OWNER/NAME; or any name and --sha256")
    fetch.add_argument(
        "--from",
        dest="given",
        type=Path,
        metavar="PLACE",
        help="a GGUF file, a directory with its numbered parts, or one with safetensors (default: the hub)",
    )
    fetch.add_argument(
        "--revision", metavar="COMMIT", help="of OWNER/NAME, a commit or a branch (default: the newest)"
    )
    fetch.add_argument("--sha256", metavar="DIGEST", help="of a GGUF file that is not known by name")
    fetch.add_argument("--out", type=Path, help=f"the model directory (default: {PLACE}/NAME)")


def register(add: Add) -> None:
    make = add(_pretrain, "s2s pretrain artifact/models/qwen2-2.1m/recipe.toml --out my-model")
    make.add_argument("recipe", type=Path, help="recipe.toml of the model")
    make.add_argument("--out", required=True, type=Path, help="model directory to write")
    card = add(_card, "s2s card artifact/models/qwen2-2.1m")
    card.add_argument("model", type=Path, help="model directory")
    serve = add(_serve, "s2s serve qwen2-2.1m --port 8321")
    serve.add_argument("model", help="name of an embedded model, or path of a model directory")
    serve.add_argument("--port", type=int, default=8321, help="0 takes any free port (default: 8321)")
    serve.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(default: cpu)")
    numbers = "numbers of the weights (default: float32)"
    serve.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help=numbers)
    _add_fetch(add(_model, "s2s model fetch qwen2.5-coder-0.5b-instruct"))

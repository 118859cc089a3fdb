"""Commands that train, measure, serve and fetch models, and those around the released host."""

import argparse
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from functools import partial
from inspect import cleandoc
from pathlib import Path

from search_to_signal.base.errors import EXTRAS, ConfigError, require
from search_to_signal.base.package_data import TRAINING
from search_to_signal.base.progress import progress_display
from search_to_signal.cli.options import AGAIN, Add, show
from search_to_signal.models.files import KNOWN, PLACE
from search_to_signal.records.files import storage_errors

_NOT_COMPARED = 11


def _conformance(arguments: argparse.Namespace) -> int:
    """Compare our host with a CALM checkout, whose code runs with your rights.

    Prints a line per finding, then a line that counts them by family, with the draws behind them. What the
    checkout itself prints is left out; progress goes to standard error. Exit codes: 0 all equal; 1 something
    differs; 11 nothing differs, but something was not compared; 12 the checkout is another revision, or lacks
    a file, a signature or an option of the released host, and none of its code ran; 130 Ctrl-C or SIGTERM.
    """
    require(*EXTRAS["run"])
    from search_to_signal.search.hosts.released.host import quiet
    from search_to_signal.search.hosts.released.intervention import stoppable
    from search_to_signal.verify.conformance.comparison import conform
    from search_to_signal.verify.conformance.pair import Agreement

    counts, families, draws = Counter({kind: 0 for kind in Agreement}), Counter[str](), Counter[str]()
    findings = partial(
        conform,
        arguments.calm,
        arguments.problem,
        arguments.check,
        arguments.programs,
        arguments.draws,
        any_revision=arguments.any_revision,
        words=arguments.words,
    )
    # Threads of the host print at any time; those of Ray print the output of its workers.
    report = sys.stdout
    with stoppable() as stop, progress_display(stream=sys.stderr) as progress, quiet(), ExitStack() as stack:
        for problem, check, finding in stack.enter_context(closing(findings(progress=progress))):
            stop.check()
            counts[finding.verdict.agreement] += 1
            families[check] += 1
            draws[check] += finding.draws
            detail = f" ({finding.detail})" if finding.detail else ""
            line = f"{problem:5} {check:12} {finding.verdict.value:17} {finding.subject}{detail}"
            print(line, file=report, flush=True)
    stop.check()
    tally = ", ".join(f"{count} {kind.value}" for kind, count in counts.items())
    ends = {Agreement.DIFFERS: ("DIFFERS", 1), Agreement.NOT_COMPARED: ("NOT COMPARED", _NOT_COMPARED)}
    state, code = next((ends[kind] for kind in ends if counts[kind]), ("EQUAL", 0))
    parts = (f"{name} {families[name]}" + f" ({draws[name]} draws)" * (draws[name] > 0) for name in families)
    print(f"s2s: {state}: {tally}; of {', '.join(parts)}")
    return code


def _released(arguments: argparse.Namespace) -> None:
    """Run a CALM checkout, whose code runs with your rights, with one of our mappings.

    With model_name online/NAME an endpoint answers, with one completion per round, and nothing is trained.
    """
    require(*EXTRAS["run"])
    from search_to_signal.run.released import Order, run_released

    order = Order(
        calm=arguments.calm,
        config=arguments.config,
        out=arguments.out,
        mapping=arguments.mapping,
        normalizer=arguments.normalizer,
        problem=arguments.problem,
        seed=arguments.seed,
        any_revision=arguments.any_revision,
    )
    with progress_display() as progress:
        run_released(order, progress)
    print(f"s2s: records in {arguments.out}")


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
    compare = add(_conformance, "s2s conformance --calm ../CALM --problem tsp")
    compare.add_argument("--calm", type=Path, required=True, help="directory of the checkout")
    compare.add_argument("--problem", action="append", help="tsp, obp, cvrp or op; repeat it (default: all)")
    compare.add_argument("--check", action="append", help="one family of checks; repeat it (default: all)")
    compare.add_argument("--programs", type=int, default=6, help="generated programs per problem")
    compare.add_argument("--draws", type=int, default=5000, help="prompts drawn per state; seeded")
    compare.add_argument("--words", type=Path, help="TOML file with fingerprints (default: pin.toml)")
    compare.add_argument(
        "--any-revision", action="store_true", help="also compare a revision that is not the pinned one"
    )
    example = "--calm ../CALM --config configs/tsp/local.yaml --mapping factorized --out run"
    run = add(_released, f"s2s released {example}")
    run.add_argument("--calm", type=Path, required=True, help="directory of the checkout")
    run.add_argument("--config", required=True, help="configuration of the checkout, or a file of yours")
    run.add_argument("--problem", help="tsp, obp, cvrp or op: refuse a configuration of another problem")
    run.add_argument("--mapping", default="native", help="name or pkg.mod:obj")
    run.add_argument("--normalizer", default="group", help="only group: the host's trainer has no other")
    run.add_argument("--seed", type=int, default=42, help="seed of the host's random draws (default: 42)")
    run.add_argument("--out", type=Path, required=True, help="run directory")
    run.add_argument(
        "--any-revision",
        action="store_true",
        help="accept another revision than artifact/calm/pin.toml names",
    )
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

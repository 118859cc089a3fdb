"""Command that serves a model to OpenAI-compatible clients on this machine."""

import argparse
import signal
import time

from search_to_signal.cli.base import Add
from search_to_signal.errors import ConfigError

_PORTS = 65535


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _serve(arguments: argparse.Namespace) -> int:
    if not 0 <= arguments.port <= _PORTS:
        raise ConfigError(f"--port {arguments.port}: give a number from 0 to {_PORTS}")
    from search_to_signal.config import canonical_sha256
    from search_to_signal.generators.files import checked_files, model_directory
    from search_to_signal.generators.local import LocalGenerator, load_model, load_tokenizer
    from search_to_signal.generators.serving import serving
    from search_to_signal.generators.settings import GenerationSettings
    from search_to_signal.runtime import keep_freed_memory

    keep_freed_memory()
    path = model_directory(arguments.model)
    fingerprint = f"fp_{canonical_sha256(checked_files(path))[:16]}"
    generator = LocalGenerator(load_model(path), load_tokenizer(path), GenerationSettings())
    signal.signal(signal.SIGTERM, _stop)
    with serving(generator, arguments.model, port=arguments.port, fingerprint=fingerprint) as url:
        print(f"s2s: {arguments.model} at {url} (Ctrl-C ends it)", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return 0


def register(add: Add) -> None:
    """Add serve."""
    serve = add(
        "serve",
        _serve,
        "serve a local model to OpenAI-compatible clients on this machine",
        "s2s serve qwen2-2.1m --port 8321",
    )
    serve.add_argument("model", help="name of an embedded model, or path of a model directory")
    serve.add_argument("--port", type=int, default=8321, help="0 takes any free port (default: 8321)")

"""Commands that run a model."""

import argparse
import sys
from pathlib import Path

import msgspec

from search_to_signal.cli.base import Add, show
from search_to_signal.errors import ConfigError
from search_to_signal.progress import progress_display


def _run(arguments: argparse.Namespace) -> int:
    from search_to_signal.experiments.configuration import load_profile
    from search_to_signal.experiments.reproduction import reproduce

    profile = load_profile(arguments.profile)
    with progress_display() as progress:
        page = reproduce(profile, arguments.out, progress, arguments.layer)
    if page is not None:
        show(page)
    print(f"s2s: results in {arguments.out}")
    return 0


def _run_one(arguments: argparse.Namespace) -> int:
    from search_to_signal.experiments.configuration import RunConfig
    from search_to_signal.experiments.execution import PROGRESS_PREFIX
    from search_to_signal.experiments.run import run, spoken

    class Relay:
        def update(self, task: str, done: int, total: int, note: str = "") -> None:
            print(f"{PROGRESS_PREFIX}{done} {total} {note}", flush=True)

        def say(self, line: str) -> None:
            print(line, flush=True)

    try:
        config = msgspec.json.decode(sys.stdin.buffer.read(), type=RunConfig)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"standard input holds no run configuration: {error}") from error
    manifest = run(config, arguments.out, Relay())
    if manifest.timing is not None:
        print(spoken(manifest.timing))
    return 0


def register(add: Add) -> None:
    """Add run and run-one."""
    run = add(
        "run", _run, "run every run of a profile, then report", "s2s run --profile smoke --out results/smoke"
    )
    run.add_argument("--profile", required=True, help="name or path of a profile")
    run.add_argument("--out", required=True, type=Path, help="results directory")
    run.add_argument(
        "--layer", action="append", default=[], help="only this evidence layer of the profile; repeat it"
    )
    one = add(
        "run-one",
        _run_one,
        "run one configuration from standard input",
        "s2s run-one --out DIR < config.json",
    )
    one.add_argument("--out", required=True, type=Path)

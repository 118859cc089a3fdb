"""Commands that run a model."""

import argparse
import sys
from pathlib import Path

import msgspec

from search_to_signal.cli.base import Add, show
from search_to_signal.errors import ConfigError
from search_to_signal.progress import progress_display


def _run(arguments: argparse.Namespace) -> int:
    from search_to_signal.analysis.report import report
    from search_to_signal.experiments.cohort import run_cohort
    from search_to_signal.experiments.configuration import load_profile
    from search_to_signal.experiments.normalizer_replay import replay
    from search_to_signal.normalizer import NORMALIZERS
    from search_to_signal.provenance.seal import seal
    from search_to_signal.records.manifest import COHORT
    from search_to_signal.rewards import MAPPINGS

    profile = load_profile(arguments.profile)
    with progress_display() as progress:
        runs = run_cohort(profile, arguments.out / COHORT, progress)
        progress.say("replaying the recorded groups under every mapping and normalizer")
        replay(runs, arguments.out / "audit", list(MAPPINGS), list(NORMALIZERS))
    page = report(arguments.out, arguments.out / "report")
    seal(arguments.out, f"search-to-signal, profile {arguments.profile}")
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
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
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
    one = add(
        "run-one",
        _run_one,
        "run one configuration from standard input",
        "s2s run-one --out DIR < config.json",
    )
    one.add_argument("--out", required=True, type=Path)

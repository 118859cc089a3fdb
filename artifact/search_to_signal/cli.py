"""The s2s command."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markdown import Markdown

from search_to_signal.errors import ConfigError, S2SError
from search_to_signal.progress import progress_display

# Rooms that load torch are imported inside their command, so that reading records stays light.

Command = Callable[[argparse.Namespace], int]


def _show(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if sys.stdout.isatty():
        Console().print(Markdown(text))
    else:
        print(text)


def _run(arguments: argparse.Namespace) -> int:
    from search_to_signal.analysis.report import report
    from search_to_signal.experiments.cohort import run_cohort
    from search_to_signal.experiments.configuration import load_profile
    from search_to_signal.experiments.normalizer_replay import replay
    from search_to_signal.normalizer import NORMALIZERS
    from search_to_signal.provenance.checksums import write_sums
    from search_to_signal.rewards import MAPPINGS

    profile = load_profile(arguments.profile)
    with progress_display() as progress:
        runs = run_cohort(profile, arguments.out, progress)
        progress.say("replaying the recorded groups under every mapping and normalizer")
        replay(runs, arguments.out / "audit", list(MAPPINGS), list(NORMALIZERS))
    page = report(arguments.out, arguments.out / "report")
    write_sums(arguments.out)
    _show(page)
    print(f"s2s: results in {arguments.out}")
    return 0


def _run_one(arguments: argparse.Namespace) -> int:
    from search_to_signal.experiments.cohort import PROGRESS_PREFIX
    from search_to_signal.experiments.configuration import RunConfig
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


def _report(arguments: argparse.Namespace) -> int:
    from search_to_signal.analysis.report import report
    from search_to_signal.records.manifest import MANIFEST

    if arguments.out is None and (arguments.directory / MANIFEST).is_file():
        raise ConfigError(
            f"{arguments.directory} is one run, checksummed as it is: give --out for its report"
        )
    page = report(arguments.directory, arguments.out or arguments.directory / "report")
    _show(page)
    print(f"s2s: report in {page.parent}")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from search_to_signal.provenance.verify import verify

    verdict = verify(arguments.directory)
    for problem in verdict.problems:
        print(f"PROBLEM {problem}")
    state = "FAILED" if verdict.problems else "OK"
    print(f"s2s: {state}: {verdict.files} files, {verdict.runs} runs, {len(verdict.problems)} problems")
    return 1 if verdict.problems else 0


def _replay(arguments: argparse.Namespace) -> int:
    from search_to_signal.experiments.normalizer_replay import replay

    page = replay(arguments.directories, arguments.out, arguments.mapping, arguments.normalizer or ["group"])
    _show(page)
    print(f"s2s: replay in {arguments.out}")
    return 0


def _pretrain(arguments: argparse.Namespace) -> int:
    from search_to_signal.config import load_toml
    from search_to_signal.experiments.model_card import write_card
    from search_to_signal.experiments.pretraining import RECIPE, Recipe, pretrain

    recipe = load_toml(arguments.recipe, Recipe)
    with progress_display() as progress:
        pretrain(recipe, arguments.out, progress)
        (arguments.out / RECIPE).write_bytes(arguments.recipe.read_bytes())
        write_card(recipe, arguments.out, progress)
    print(f"s2s: model in {arguments.out}")
    return 0


def _card(arguments: argparse.Namespace) -> int:
    from search_to_signal.config import load_toml
    from search_to_signal.experiments.model_card import write_card
    from search_to_signal.experiments.pretraining import RECIPE, Recipe

    with progress_display() as progress:
        write_card(load_toml(arguments.model / RECIPE, Recipe), arguments.model, progress)
    _show(arguments.model / "README.md")
    print(f"s2s: card in {arguments.model}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="s2s",
        description="From Search to Signal: run, check and read search-coupled online post-training.",
        epilog="example: s2s run --profile smoke --out results/smoke && s2s verify results/smoke",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str, example: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, epilog=f"example: {example}")
        sub.set_defaults(command=command)
        return sub

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
    page = add("report", _report, "tables and figure of a results directory", "s2s report results/embedded")
    page.add_argument("directory", type=Path)
    page.add_argument("--out", type=Path, help="where to write (default: DIRECTORY/report)")
    check = add("verify", _verify, "check checksums and records", "s2s verify results/embedded")
    check.add_argument("directory", type=Path)
    replay = add(
        "replay",
        _replay,
        "recompute rewards and advantages from records",
        "s2s replay results/embedded --mapping native --mapping factorized --out audit",
    )
    replay.add_argument("directories", type=Path, nargs="+")
    replay.add_argument("--mapping", action="append", required=True, help="name or pkg.mod:obj; repeat it")
    replay.add_argument("--normalizer", action="append", help="name or pkg.mod:obj (default: the paper's)")
    replay.add_argument("--out", type=Path, required=True, help="where to write the audit")
    make = add(
        "pretrain",
        _pretrain,
        "train an embedded model from its recipe",
        "s2s pretrain artifact/models/qwen2-1.8m/recipe.toml --out my-model",
    )
    make.add_argument("recipe", type=Path)
    make.add_argument("--out", required=True, type=Path)
    card = add("card", _card, "measure an embedded model again", "s2s card artifact/models/qwen2-1.8m")
    card.add_argument("model", type=Path)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors of ours print one line and give their exit code."""
    # A mapping of one's own lies where one works; an installed command does not look there by itself.
    if "" not in sys.path:
        sys.path.append("")
    parsed = _parser().parse_args(arguments)
    try:
        code: int = parsed.command(parsed)
    except S2SError as error:
        print(f"s2s: error: {error}", file=sys.stderr)
        return error.exit_code
    return code


if __name__ == "__main__":
    sys.exit(main())

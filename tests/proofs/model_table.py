"""What a model costs on a machine: the rows of the table on the page on running.

    python -m tests.proofs.model_table measure pretrained --model DIR --groups 16 --out RUN
    python -m tests.proofs.model_table rows [--together] RUN [RUN ...]

`measure` makes one run of a profile in this process and writes the most memory that it held to
RUN.memory.json; SIGTERM ends it after the group that it is in. `rows` prints a row for every run, of its
settled groups: the second half, behind compilation and most captures. The memory is empty where nothing
measured it. Runs may be packed, as artifact/evidence has them. With `--together` the last line adds up
runs that went side by side.
"""

import argparse
import json
import resource
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import msgspec

from search_to_signal.base.processes import StopRequest, fix_kernels, install, wait_without_spinning

TITLE = "| model | libraries | machine | condition | groups | tokens/s | update, s | group, s | memory, GiB |"
GIB = 1 << 30


class Cost(NamedTuple):
    """A run's settled groups; times in seconds, ``memory`` in bytes where it was measured."""

    labels: tuple[str, ...]
    groups: int
    tokens_per_second: float
    update: float
    group: float
    groups_per_second: float
    memory: int | None

    def row(self) -> str:
        """The row of the table."""
        memory = "" if self.memory is None else f"{self.memory / GIB:.1f}"
        update = f"{self.update:.2f}" if self.update else ""
        numbers = (str(self.groups), f"{self.tokens_per_second:.0f}", update, f"{self.group:.2f}", memory)
        return f"| {' | '.join((*self.labels, *numbers))} |"


class _Length(msgspec.Struct):
    completion_tokens: int


def cost(run: Path) -> Cost:
    """What a run's own records say, packed ones too; raises SystemExit for one without a whole group."""
    # Not above: what a run computes with is chosen before numpy and torch are loaded.
    from search_to_signal.records.manifest import Accelerator, read_manifest
    from search_to_signal.records.reader import COMPLETIONS, TIMINGS
    from search_to_signal.records.schema import StepTiming
    from search_to_signal.study.container import read_container

    manifest, packed = read_manifest(run), run / "records.xz"
    if packed.is_file():
        parts = read_container(packed)
    else:
        parts = {name: (run / name).read_bytes() for name in (COMPLETIONS, TIMINGS)}
    lengths = msgspec.json.Decoder(_Length).decode_lines(parts[COMPLETIONS])
    timings = msgspec.json.Decoder(StepTiming).decode_lines(parts[TIMINGS])
    size = manifest.facts.group_size
    groups = min(len(timings), len(lengths) // size)
    if not groups:
        raise SystemExit(f"{run} has no whole group: let it run longer")
    settled = timings[groups // 2 : groups]
    sampled = sum(one.completion_tokens for one in lengths[groups // 2 * size : groups * size])
    generation, update, total = (
        [one.seconds[name] for one in settled] for name in ("generation", "update", "total")
    )
    environment = manifest.environment
    card = environment.accelerator
    libraries = (f"{name} {environment.packages.get(name)}" for name in ("torch", "transformers"))
    machine = card.kind if isinstance(card, Accelerator) else f"{environment.cpu_count} cores"
    labels = (Path(manifest.facts.model).name, ", ".join(libraries), machine, manifest.facts.condition)
    noted = _memory_file(run)
    return Cost(
        labels,
        groups,
        sampled / sum(generation),
        median(update),
        median(total),
        1 / mean(total),
        json.loads(noted.read_text())["bytes"] if noted.is_file() else None,
    )


def _memory_file(run: Path) -> Path:
    return run.with_name(f"{run.name}.memory.json")


def rows(runs: Sequence[Path], together: bool) -> None:
    """Print the table of runs, and what they do in all where they went side by side."""
    costs = [cost(run) for run in runs]
    print(f"{TITLE}\n| {':-- | ' * 4}{'--: | ' * 5}".rstrip())
    for one in costs:
        print(one.row())
    if together:
        groups, tokens = (
            sum(getattr(one, name) for one in costs) for name in ("groups_per_second", "tokens_per_second")
        )
        print(f"{len(costs)} together: {groups:.2f} groups/s, {tokens:.0f} tokens/s")


def measure(arguments: argparse.Namespace) -> None:
    """Make the run, note its memory, print its row."""
    fix_kernels()
    wait_without_spinning()
    import torch

    from search_to_signal.base.progress import PlainProgress
    from search_to_signal.run.loop import run
    from search_to_signal.run.profile import load_profile

    changes = {"model": str(arguments.model)} if arguments.model else {}
    config = load_profile(arguments.profile).run(
        arguments.condition, arguments.seed, groups=arguments.groups, **changes
    )
    install(stop := StopRequest())
    with suppress(KeyboardInterrupt):
        run(config, arguments.out, PlainProgress(), checkpoint_every=arguments.groups, stop=stop)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if config.on_card:
        held = torch.cuda.max_memory_reserved()
    _memory_file(arguments.out).write_text(json.dumps({"bytes": held}))
    rows([arguments.out], together=False)


def main() -> None:
    """Measure a run, or print rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("profile")
    one.add_argument("--model", type=Path, help="a model directory instead of the profile's")
    one.add_argument("--condition", default="frozen")
    one.add_argument("--seed", type=int, default=42)
    one.add_argument("--groups", type=int, default=16)
    one.add_argument("--out", type=Path, required=True)
    table = commands.add_parser("rows")
    table.add_argument("runs", type=Path, nargs="+")
    table.add_argument("--together", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "measure":
        measure(arguments)
    else:
        rows(arguments.runs, arguments.together)


if __name__ == "__main__":
    main()

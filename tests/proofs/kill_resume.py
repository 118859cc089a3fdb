"""Show that runs survive: kill them at random instants, let them go on, compare with undisturbed ones.

    python -m tests.proofs.kill_resume --kills 50
    python -m tests.proofs.kill_resume --kills 20 --profile evotune     another host, and a rule with pairs
    python -m tests.proofs.kill_resume --kills 6 --groups 20 --profile pretrained --without-weights

Live runs of the shipped model, frozen and trained, in processes that get SIGKILL again and again until
each run is complete: at a random moment of its time, at a random size of its records, or while a file of a
checkpoint is being written. After every kill each record file must be a beginning of the undisturbed one,
at the end equal. With ``--without-weights`` a kill takes the checkpoint's weights along, so that the records
make the learner again; ``pretrained`` needs a card.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tests.cohorts import Told
from tests.figures import print_figure

from search_to_signal.records.manifest import MANIFEST, read_manifest
from search_to_signal.run.config import RunConfig
from search_to_signal.run.loop import run
from search_to_signal.run.profile import Profile, load_profile
from search_to_signal.verify.directory import verify

RECORDS = ("completions.jsonl", "steps.jsonl", "generations.jsonl", "heuristics.jsonl", "preferences.jsonl")
# What else is cut to a handful of groups, so that rounds, batches, migration and reset come between kills.
SHORT: dict[str, dict[str, Any]] = {
    "smoke": {"conditions": ("frozen", "native", "factorized")},
    "evotune": {
        "host_settings": {"num_islands": 3, "num_cont_rounds": 2, "migration_period": 2, "reset_period": 4},
        "rule_settings": {"finetuning_frequency": 3, "gradient_accumulation_steps": 2},
    },
    "entropic": {"rule_settings": {"groups_per_batch": 2}},
    "pretrained": {"conditions": ("native", "factorized")},
}
SAME = (
    *RECORDS,
    "config.json",
    "database.json",
    "adapter/adapter_model.safetensors",
    "adapter/adapter_config.json",
)


class Moment(NamedTuple):
    """So many seconds after its start, so many bytes of records, and perhaps not outside a checkpoint."""

    seconds: float = 0.0
    size: float = 0.0
    in_checkpoint: bool = False

    def reached(self, directory: Path) -> bool:
        """Whether the records are that far."""
        if self.in_checkpoint and not any((directory / "checkpoint").glob("*.tmp")):
            return False
        return size(directory) >= self.size


def some_moment(chance: random.Random, directory: Path, reference: Path, seconds: float) -> Moment:
    """Any moment of a run: by the clock, by its records, or within one of the checkpoints to come."""
    if chance.random() < 1 / 3:
        return Moment(seconds=chance.uniform(0, seconds))
    return Moment(size=chance.uniform(size(directory), size(reference)), in_checkpoint=chance.random() < 0.5)


def size(directory: Path) -> int:
    """Bytes of records."""
    files = (directory / name for name in RECORDS)
    return sum(file.stat().st_size for file in files if file.exists())


def start(config: RunConfig, directory: Path) -> int:
    """Run, or go on, in a process of its own; returns its id. A fork, because imports would take longest."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with directory.with_name(f"{config.name}.log").open("ab") as log:
            os.dup2(log.fileno(), sys.stderr.fileno())
        run(config, directory, Told(), resume=True)
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)


def ended(child: int) -> bool:
    """Whether a process has ended by itself; raises where it failed."""
    found, status = os.waitpid(child, os.WNOHANG)
    if found and status:
        raise SystemExit(f"a run failed with wait status {status}")
    return bool(found)


def finished(config: RunConfig, directory: Path) -> float:
    """Run, or go on, to the end; returns the seconds it took."""
    begun, child = time.monotonic(), start(config, directory)
    while not ended(child):
        time.sleep(0.01)
    return time.monotonic() - begun


def killed(config: RunConfig, directory: Path, moment: Moment) -> bool:
    """Run, or go on, and kill it at that moment; False when it was done before."""
    begun, child = time.monotonic(), start(config, directory)
    while time.monotonic() - begun < moment.seconds or not moment.reached(directory):
        if ended(child):
            return False
        time.sleep(0.0002)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


def phase(directory: Path) -> str:
    """Where a kill met a run."""
    checkpoint = directory / "checkpoint"
    if not (directory / MANIFEST).exists():
        return "before its manifest"
    if any(directory.rglob("*.tmp")):
        return "while a file was being made"
    if read_manifest(directory).status == "complete":
        return "while it was being finished"
    if not list(checkpoint.glob("*.json")):
        return "before its first checkpoint"
    files = [directory / name for name in RECORDS if (directory / name).exists()]
    marks = msgspec.json.decode(max(checkpoint.glob("*.json")).read_bytes())["files"]
    ahead = any(file.stat().st_size > marks[file.stem]["bytes"] for file in files)
    return "with records behind a checkpoint" if ahead else "between records"


def begins(directory: Path, reference: Path) -> bool:
    """Whether every record file is a beginning of the undisturbed one."""
    files = [(directory / name, reference / name) for name in RECORDS if (directory / name).exists()]
    return all(whole.read_bytes().startswith(file.read_bytes()) for file, whole in files)


def same(directory: Path, reference: Path) -> bool:
    """Whether a finished run has the undisturbed one's bytes, adapter included, and verifies."""
    names = [name for name in SAME if (reference / name).exists()]
    equal = all((directory / name).read_bytes() == (reference / name).read_bytes() for name in names)
    left = {path.name for path in directory.iterdir()} == {path.name for path in reference.iterdir()}
    return equal and left and not verify(directory).problems


def torment(
    config: RunConfig,
    directory: Path,
    reference: Path,
    seconds: float,
    chance: random.Random,
    kills: int,
    *,
    without_weights: bool,
) -> tuple[Counter[str], int]:
    """Kill a run until it completes or ``kills`` are spent; returns the phases met and clean prefixes."""
    phases: Counter[str] = Counter()
    clean = 0
    while phases.total() < kills:
        if not killed(config, directory, some_moment(chance, directory, reference, seconds)):
            return phases, clean
        phases[phase(directory)] += 1
        clean += begins(directory, reference)
        if without_weights:
            for file in (directory / "checkpoint").glob("*.safetensors"):
                file.unlink()
    finished(config, directory)
    return phases, clean


def shortened(name: str, groups: int) -> Profile:
    """One seed of a profile over a few groups of four."""
    profile = load_profile(name)
    generation = msgspec.structs.replace(profile.generation, group_size=4)
    changes = {"seeds": profile.seeds[:1], "groups": groups, "generation": generation, **SHORT[name]}
    return msgspec.structs.replace(profile, **changes)


def main() -> None:
    """Kill, resume, compare, and print the tally."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--groups", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--profile", choices=sorted(SHORT), default="smoke")
    parser.add_argument("--without-weights", action="store_true")
    options = parser.parse_args()
    profile = shortened(options.profile, options.groups)
    chance, phases, clean, runs, equal = random.Random(options.seed), Counter[str](), 0, 0, 0
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        references = {}
        for config in profile.runs():
            directory = Path(folder) / "undisturbed" / config.name
            references[config.sha256] = directory, finished(config, directory)
        while phases.total() < options.kills:
            config = profile.runs()[runs % len(profile.runs())]
            directory = Path(folder) / f"{runs}" / config.name
            reference, seconds = references[config.sha256]
            left = options.kills - phases.total()
            met, whole = torment(
                config, directory, reference, seconds, chance, left, without_weights=options.without_weights
            )
            phases, clean, runs = phases + met, clean + whole, runs + 1
            equal += same(directory, reference)
            print(f"{config.name}: {met.total()} kills, {'identical' if equal == runs else 'DIFFERENT'}")
    for name, count in phases.most_common():
        print(f"{count:3d} kills {name}")
    print(f"{clean}/{phases.total()} kills left beginnings of the undisturbed files")
    name, own = "kill_resume", ""
    if options.profile != "smoke":
        name, own = f"{name}_{options.profile}", f" --profile {options.profile}"
    if options.without_weights:
        name, own = f"{name}_without_weights", f"{own} --without-weights"
    command = f"python -m tests.proofs.kill_resume --kills {options.kills}{own}"
    print_figure(name, command, f"{equal}/{runs} runs finished byte-identical after {phases.total()} kills")
    if (clean, equal) != (phases.total(), runs):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""Commands that execute runs, updates and held-out evaluations."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Protocol

import msgspec

from search_to_signal.base.errors import EXTRAS, UNREADABLE, ConfigError, S2SError, require
from search_to_signal.base.processes import called_every
from search_to_signal.base.progress import one_line, progress_display
from search_to_signal.cli import options
from search_to_signal.records.files import LARGEST, read_regular, refuse_special_files, storage_errors
from search_to_signal.records.manifest import runs_below
from search_to_signal.records.reader import STEPS
from search_to_signal.records.schema import StepRecord

SCALARS: Mapping[str, Callable[[StepRecord], float | None]] = {
    "search/best_score": lambda step: step.frontier_after,
    "search/archive_size": lambda step: step.archive_size,
    "search/admitted": lambda step: step.admitted,
    "completions/valid": lambda step: step.valid,
    "learner/grpo_loss": lambda step: step.loss,
    "learner/kl": lambda step: step.kl,
    "learner/grad_norm": lambda step: step.grad_norm,
    "learner/training_tokens": lambda step: step.training_tokens,
}
"""The scalars of a step by their tags; None is not written. Scores: higher is better."""
_SECONDS = 5.0


class Writer(Protocol):
    """The used part of torch's SummaryWriter."""

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Write one value."""

    def flush(self) -> None:
        """Write buffered values to disk."""


@dataclass
class Scalars:
    """The scalars of all runs below a results directory; ``opened`` opens a run's writer by its name."""

    results: Path
    opened: Callable[[str], Writer]
    writers: dict[str, Writer] = field(default_factory=dict)
    written: Counter[str] = field(default_factory=Counter)

    def write_new(self) -> None:
        """Write every step that was recorded since the last call.

        A run that resumed from a checkpoint records equal steps again, which are not written twice.
        """
        for run in runs_below(self.results):
            name = run.relative_to(self.results).as_posix()
            for step in _whole_steps(run / STEPS, self.written[name]):
                if name not in self.writers:
                    self.writers[name] = self.opened(name)
                for tag, value_of in SCALARS.items():
                    if (value := value_of(step)) is not None:
                        self.writers[name].add_scalar(tag, value, step.step)
                self.written[name] += 1
        for writer in self.writers.values():
            writer.flush()


def _whole_steps(file: Path, start: int) -> Iterator[StepRecord]:
    if file.is_file():
        *lines, _ = read_regular(file, LARGEST).split(b"\n")
        yield from (msgspec.json.decode(line, type=StepRecord) for line in lines[start:])


def require_tensorboard(results: Path, out: Path) -> None:
    """Raise MissingExtraError without the package, ConfigError where ``out`` lies in ``results``."""
    if out.resolve().is_relative_to(results.resolve()):
        raise ConfigError(
            f"--tensorboard {out} is inside {results}, which is sealed: give a directory outside of it"
        )
    require("tensorboard")


@contextmanager
def written_while_running(results: Path, out: Path | None) -> Iterator[None]:
    """Write scalars of the runs below ``results`` to ``out`` every few seconds within the context.

    Without ``out`` nothing is written. Raises as ``require_tensorboard`` does. Runs continue where scalars
    cannot be written.
    """
    if out is None:
        yield
        return
    require_tensorboard(results, out)
    # Imported by name: torch has no types for it, and loads slowly.
    writer = import_module("torch.utils.tensorboard").SummaryWriter
    # A repeated command writes all steps again, in place of the earlier ones.
    scalars = Scalars(results, lambda name: writer(str(out / name), purge_step=0))
    try:
        with called_every(_SECONDS, partial(_write_if_possible, scalars)):
            yield
    finally:
        _write_if_possible(scalars)


def _write_if_possible(scalars: Scalars) -> None:
    with suppress(S2SError, OSError, msgspec.MsgspecError):
        scalars.write_new()


def _run(arguments: argparse.Namespace) -> None:
    """Make every run of a profile, then the report.

    Ctrl-C and SIGTERM stop each run after the group that it is in, a second one at once.
    """
    require(*EXTRAS["run"])
    from search_to_signal.cli.running import written_while_running
    from search_to_signal.layers import reproduction
    from search_to_signal.run.execution import Execution
    from search_to_signal.run.machine_check import cards_of
    from search_to_signal.run.profile import load_profile
    from search_to_signal.verify.directory import verify

    profile = load_profile(arguments.profile)
    layers = [layer.key for layer in reproduction.chosen_layers(profile, arguments.layer)]
    if arguments.dry_run:
        reproduction.require_start(
            reproduction.on_this_machine(profile, arguments.ray), arguments.out, arguments.resume, layers
        )
        for line in reproduction.described_models(profile, layers):
            print(line)
        print(f"s2s: {', '.join(layers)} can start in {arguments.out}")
        return
    scalars = written_while_running(arguments.out, arguments.tensorboard)
    with scalars, progress_display(reproduction.planned_work(profile, layers)) as progress:
        execution = Execution(
            profile.jobs,
            profile.checkpoint_every,
            arguments.resume,
            arguments.ray,
            check=lambda run: verify(run).problems,
            cards=cards_of(profile),
        )
        page = reproduction.reproduce(profile, arguments.out, execution, progress, arguments.layer)
    if page is not None:
        options.show(page)
    print(f"s2s: results in {arguments.out}")


def _run_one(arguments: argparse.Namespace) -> None:
    """Run one configuration from standard input.

    Ctrl-C and SIGTERM stop it after the group that it is in, a second one at once.
    """
    from search_to_signal.base.processes import StopRequest, end_with_parent, install
    from search_to_signal.run.clock import format_timing
    from search_to_signal.run.config import RunConfig
    from search_to_signal.run.execution import ERROR_PREFIX, PROGRESS_PREFIX
    from search_to_signal.run.learning import retrain
    from search_to_signal.run.loop import run

    class Relay:
        def update(self, task: str, done: int, total: int, note: str = "") -> None:
            self.say(f"{PROGRESS_PREFIX}{done} {total} {note}")

        def say(self, line: str) -> None:
            # Not print, which cannot be called where a signal has interrupted it.
            os.write(sys.stdout.fileno(), f"{line}\n".encode(sys.stdout.encoding, "replace"))

    options.refuse_no_time("--wait", arguments.wait, zero=True)
    if arguments.parent is not None:
        end_with_parent(arguments.parent)
    # A run that is killed in the middle of a kernel ends the others on its card (NVIDIA MPS).
    install(stop := StopRequest())
    try:
        config = msgspec.json.decode(sys.stdin.buffer.read(), type=RunConfig)
    except UNREADABLE as error:
        raise ConfigError(f"standard input holds no run configuration: {error}") from error
    try:
        if arguments.retrain is not None:
            with storage_errors(arguments.out, options.AGAIN):
                retrain(config, arguments.retrain, arguments.out, Relay(), arguments.without)
            return
        manifest = run(
            config,
            arguments.out,
            Relay(),
            resume=arguments.resume,
            checkpoint_every=arguments.checkpoint_every,
            wait_s=arguments.wait,
            plan=arguments.plan,
            stop=stop,
        )
    except S2SError as error:
        # On a full disk the log cannot be written; the parent process still reads this output.
        print(f"{ERROR_PREFIX}{one_line(str(error))}", flush=True)
        raise
    if manifest.timing is not None:
        print(format_timing(manifest.timing))


def _updates(arguments: argparse.Namespace) -> None:
    """Train the same adapter on the same recorded groups with each mapping's rewards, and compare."""
    from search_to_signal.credit import PUBLISHED, get_mapping
    from search_to_signal.credit.normalizers import NORMALIZERS, get_normalizer
    from search_to_signal.layers.settings import UpdateSettings
    from search_to_signal.layers.updates.layer import matched_updates
    from search_to_signal.records.manifest import runs_below

    for mapping in arguments.mapping:
        get_mapping(mapping)
    for normalizer in arguments.normalizer:
        get_normalizer(normalizer)
    settings = UpdateSettings(
        groups=arguments.groups,
        withheld=arguments.withheld,
        mappings=tuple(arguments.mapping or PUBLISHED),
        normalizers=tuple(arguments.normalizer or NORMALIZERS),
    )
    for directory in arguments.directories:
        refuse_special_files(directory)
    runs = [run for directory in arguments.directories for run in runs_below(directory)]
    with progress_display() as progress:
        page = matched_updates(runs, arguments.out, settings, progress)
    options.show(page)
    print(f"s2s: matched updates in {arguments.out}")


def _heldout(arguments: argparse.Namespace) -> None:
    """Score a cohort's final heuristics on held-out instances, and find which programs behave alike."""
    from search_to_signal.layers.heldout.layer import heldout
    from search_to_signal.layers.settings import HeldoutSettings

    options.load_allowed(arguments)
    settings = HeldoutSettings(instances=arguments.instances, slots=arguments.slots)
    with progress_display() as progress:
        out = heldout(arguments.directory, settings, progress)
    print(f"s2s: held-out evaluation in {out}")


def _record(arguments: argparse.Namespace) -> None:
    """Record the runs of the evidence plan, in its order. The same command goes on after a stop.

    Ctrl-C and SIGTERM stop each run after the group that it is in, a second one at once.
    """
    from search_to_signal.records.amendments import closed_studies, read_amendments
    from search_to_signal.records.plan import PLAN, plan_sha256, read_plan
    from search_to_signal.study.recording import Stop, record

    options.refuse_no_time("--minutes", arguments.minutes, zero=True)
    path = arguments.plan or PLAN
    plan, stop = read_plan(path), Stop(arguments.minutes, arguments.stop_file)
    closed = closed_studies(read_amendments(path, plan))
    if closed and not arguments.study:
        print(f"s2s: not recorded, because an amendment closed them: {', '.join(closed)}")
    finished = arguments.finished
    if finished is not None and not finished.is_dir():
        raise ConfigError(f"there is no directory {finished}: give one with a directory per profile")
    complete = record(
        plan, plan_sha256(path), arguments.out, stop, arguments.study, closed, finished, arguments.jobs
    )
    state = "recorded" if complete else f"stopped as asked; {stop.remedy}"
    print(f"s2s: {state}: {arguments.out}")


def register(add: options.Add) -> None:
    run = add(_run, "s2s run --profile smoke --out results/smoke")
    run.add_argument("--profile", required=True, help="name or path of a profile")
    run.add_argument("--out", required=True, type=Path, help="results directory to write")
    options.add_repeated(run, "--layer", "only this evidence layer of the profile")
    run.add_argument(
        "--resume", action="store_true", help="go on with unfinished runs (default: set them aside)"
    )
    run.add_argument(
        "--tensorboard", type=Path, metavar="DIR", help="write scalars of every step here while runs go on"
    )
    run.add_argument("--ray", metavar="ADDRESS", help="run on this Ray cluster, 'auto' for the local one")
    run.add_argument("--dry-run", action="store_true", help="only check whether the runs can start")
    record = add(_record, "s2s record --out results/evidence --minutes 120")
    record.add_argument("--out", required=True, type=Path, help="a results directory per profile goes here")
    record.add_argument("--plan", type=Path, help="another plan than the one of this repository")
    options.add_repeated(record, "--study", "only this study of the plan", metavar="KEY", otherwise="all")
    record.add_argument(
        "--finished",
        type=Path,
        metavar="DIR",
        help="packed evidence or results: their runs are not made again",
    )
    record.add_argument("--jobs", type=int, help="runs side by side, over all cards (default: the profile's)")
    record.add_argument("--minutes", type=float, help="stop after this time; each run finishes its group")
    record.add_argument("--stop-file", type=Path, metavar="FILE", help="also stop once this file exists")
    one = add(_run_one, "s2s run-one --out DIR < config.json")
    one.add_argument("--out", required=True, type=Path, help="run directory")
    one.add_argument("--resume", action="store_true", help="go on with the unfinished run in it")
    interval = "groups between two checkpoints (default: 1)"
    one.add_argument("--checkpoint-every", type=int, default=1, metavar="GROUPS", help=interval)
    one.add_argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="wait for another process that writes it"
    )
    one.add_argument("--plan", metavar="SHA256", help="checksum of the plan that the run belongs to")
    one.add_argument("--retrain", type=Path, metavar="DIR", help="make only the adapter of this finished run")
    one.add_argument("--without", metavar="CLASS", help="with --retrain: leave out this class of credit")
    one.add_argument("--parent", type=int, metavar="PID", help="end when this parent process ends")
    updates = add(_updates, "s2s updates results/embedded/cohort --out updates")
    updates.add_argument("directories", type=Path, nargs="+", help="runs, or directories of runs")
    updates.add_argument("--out", type=Path, required=True, help="where to write records and page")
    for option in ("--mapping", "--normalizer"):
        options.add_repeated(updates, option, "name or pkg.mod:obj", otherwise="all built-in ones")
    updates.add_argument("--groups", type=int, default=3, help="consecutive groups to train on (default: 3)")
    updates.add_argument("--withheld", type=int, default=1, help="later groups to measure on (default: 1)")
    held = add(_heldout, "s2s heldout results/embedded --instances 8")
    held.add_argument("directory", type=Path, help="results directory with a complete cohort")
    held.add_argument("--instances", type=int, help="use the first N instances of each split (default: all)")
    options.allow_code(held, "problem")
    held.add_argument("--slots", type=int, default=1, help="evaluations side by side (default: 1)")

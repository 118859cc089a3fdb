"""Commands that execute recorded runs again, completely or their updates alone."""

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from search_to_signal.base.errors import ConfigError, StoppedError
from search_to_signal.base.progress import Progress, counted, one_line, progress_display
from search_to_signal.cli import options

if TYPE_CHECKING:
    from search_to_signal.run.config import RunConfig
    from search_to_signal.verify.rerun import Rerun


def _rerun(arguments: argparse.Namespace) -> int:
    """Execute recorded runs again, with model and learner, and compare every record.

    Ends with 0 where all are equal, with 1 where one differs.
    """
    from search_to_signal.run.execution import Execution
    from search_to_signal.study.unpacking import readable
    from search_to_signal.verify import RERUN, promise
    from search_to_signal.verify.rerun import rerun, with_parents

    if bool(arguments.run) == (arguments.sample is not None):
        raise ConfigError("name the runs to execute again, or give --sample N to have some drawn")
    options.refuse_loose_sample(arguments, "jobs")
    options.load_allowed(arguments)
    execution = Execution(jobs=arguments.jobs, checkpoint_every=10, resume=True)
    reruns: list[Rerun] = []
    names = _run_names(arguments)
    unpacked = list(with_parents(arguments.directory, names))
    with (
        readable(arguments.directory, unpacked, True, arguments.model) as recorded,
        _output_directory(arguments.out) as out,
        progress_display() as progress,
    ):
        for finished in rerun(recorded, names, out, execution, progress, arguments.model):
            reruns.append(finished)
            _print_rerun(finished, progress)
    equal = sum(finished.difference is None for finished in reruns)
    kept = sum(finished.kept for finished in reruns)
    note = f"; {kept} of them were already complete in --out and were not executed again" if kept else ""
    state = "EQUAL" if equal == len(reruns) else "DIFFERENT"
    print(f"s2s: {state}: {equal} of {len(reruns)} runs have equal records{note}")
    if equal < len(reruns):
        return 1
    print(promise(RERUN))
    return 0


def _retrain(arguments: argparse.Namespace) -> None:
    """Make the final adapters of recorded runs again from their recorded updates.

    Nothing is sampled or evaluated. Every adapter on the way has to be the recorded one. With --without or
    --by-class, make them with one class of credit left out as well, have all of them answer prompts of runs
    of other seeds, and say what each class bought.
    """
    from search_to_signal.run.execution import Execution, PlannedRun, execute
    from search_to_signal.study.unpacking import readable
    from search_to_signal.verify.rerun import refuse_inside, runnable_config, with_parents

    if arguments.jobs < 1:
        raise ConfigError("--jobs takes a number of at least 1")
    options.load_allowed(arguments)
    refuse_inside(arguments.out, arguments.directory)
    manifests = with_parents(arguments.directory, arguments.run)
    configs = {name: runnable_config(manifests[name], arguments.model) for name in arguments.run}
    if frozen := [name for name, config in configs.items() if not config.trained]:
        raise ConfigError(
            f"{', '.join(frozen)}: the run was not trained, so it has no adapter: name trained runs"
        )
    for name in configs:
        refuse_inside(arguments.out / name, arguments.directory)
    if arguments.without or arguments.by_class:
        _who_taught(arguments, configs)
        return
    with (
        readable(arguments.directory, list(configs), True, arguments.model) as recorded,
        progress_display() as progress,
    ):
        planned = [
            PlannedRun(config, arguments.out / name, recorded=recorded / name)
            for name, config in configs.items()
        ]
        for name in configs:
            _refuse_other_adapter(arguments.out / name, recorded / name)
        execute(planned, Execution(jobs=arguments.jobs, resume=True), progress)
    print(f"s2s: {counted(len(configs), 'adapter')} as recorded, in {arguments.out}")


def _who_taught(arguments: argparse.Namespace, configs: "Mapping[str, RunConfig]") -> None:
    """Say of each run what each class of its credit bought."""
    from search_to_signal.run.left_out import CLASSES, NOTHING, checked_classes
    from search_to_signal.study.unpacking import readable
    from search_to_signal.verify.rerun import runnable_config, with_parents
    from search_to_signal.verify.taught import Trial, bank_runs, who_taught

    asked = [*(CLASSES if arguments.by_class else ()), *map(checked_classes, arguments.without)]
    if arguments.prompts < 1 or arguments.completions < 0:
        raise ConfigError("--prompts takes a number of at least 1, --completions one of at least 0")
    banks = {name: bank_runs(arguments.directory, name) for name in configs}
    names = list(dict.fromkeys([*configs, *chain.from_iterable(banks.values())]))
    others = {
        name: runnable_config(manifest, arguments.model)
        for name, manifest in with_parents(arguments.directory, names).items()
    }
    with (
        readable(arguments.directory, names, True, arguments.model) as recorded,
        progress_display() as progress,
    ):
        trials = [
            Trial(
                name=name,
                config=msgspec.structs.replace(config, groups=arguments.groups or config.groups),
                recorded=recorded / name,
                bank={recorded / other: others[other] for other in banks[name]},
                variants=tuple(dict.fromkeys([NOTHING, *asked])),
                prompts=arguments.prompts,
                completions=arguments.completions,
                out=arguments.out / name,
            )
            for name, config in configs.items()
        ]
        page = who_taught(trials, arguments.out, arguments.jobs, progress)
    options.show(page)
    print(f"s2s: who taught what in {arguments.out}")


def _refuse_other_adapter(place: Path, run: Path) -> None:
    """Raise ConfigError where ``place`` contains another adapter than the recorded one of ``run``."""
    from search_to_signal.records.adapters import ADAPTER
    from search_to_signal.records.checksums import read_sums, sha256_file
    from search_to_signal.records.files import TEMPORARY

    listed, adapter = read_sums(run), place / ADAPTER
    files = sorted(adapter.iterdir()) if adapter.exists() else []
    for path in (path for path in files if not path.name.endswith(TEMPORARY)):
        if not path.is_file() or listed.get(f"{ADAPTER}/{path.name}") != sha256_file(path):
            raise ConfigError(
                f"{path} does not belong to the recorded adapter: give another --out, or move it away"
            )


def _run_names(arguments: argparse.Namespace) -> list[str]:
    from search_to_signal.run.again import Sample
    from search_to_signal.verify.rerun import runs_to_choose, sample_runs

    if arguments.sample is None:
        return list(arguments.run)
    seed = options.sample_seed(arguments)
    possible, refused = runs_to_choose(arguments.directory, arguments.model)
    names = sample_runs(possible, Sample(seed, arguments.sample))
    print(f"drawn from {len(possible)} runs: {', '.join(names)} (--seed {seed} draws the same ones)")
    for name, why in refused.items():
        print(one_line(f"not drawn: {name}: {why}"))
    if not names:
        raise ConfigError(f"{arguments.directory} holds no run that can be executed again")
    return names


@contextmanager
def _output_directory(out: Path | None) -> Iterator[Path]:
    """Yield the given directory, in which an interrupted command resumes, or a temporary one."""
    if out is not None:
        yield out
        return
    print("into a temporary directory; with --out DIR the runs are kept, and an interrupted command goes on")
    with tempfile.TemporaryDirectory(prefix="s2s-") as temporary:
        try:
            yield Path(temporary)
        except StoppedError:
            raise StoppedError("stopped; nothing is kept without --out") from None


def _print_rerun(finished: "Rerun", progress: Progress) -> None:
    from search_to_signal.verify import OTHER_STACK

    name, difference = finished.name, finished.difference
    state = "EQUAL" if difference is None else "DIFFERENT"
    equal = finished.groups if difference is None else difference.equal
    progress.say(f"{name}: {state}: {equal} of {finished.groups} groups are the recorded ones")
    if difference is not None:
        progress.say(one_line(difference.finding.within(name).line))
    for fact, (recorded, now) in finished.facts.items():
        progress.say(one_line(f"{name}: made on: {fact}: recorded {recorded} | now {now}"))
    if any(fact.startswith("environment.packages.") for fact in finished.facts):
        progress.say(f"{name}: other libraries: {OTHER_STACK}")
    if not finished.facts:
        progress.say(f"{name}: made on: the same source, model files and environment")


def register(add: options.Add) -> None:
    command = add(_rerun, "s2s rerun results/embedded cohort/native-s42")
    command.add_argument("directory", type=Path, help="results directory, or shipped evidence")
    command.add_argument(
        "run", nargs="*", metavar="RUN", help="a run's path in it, such as cohort/native-s42"
    )
    command.add_argument("--sample", type=int, metavar="N", help="draw N runs at random")
    command.add_argument("--seed", type=int, help="which runs --sample draws (default: drawn, and printed)")
    command.add_argument(
        "--out", type=Path, help="keep the runs here, so that an interrupted command goes on"
    )
    command.add_argument("--jobs", type=int, default=1, metavar="N", help="runs side by side (default: 1)")
    _allow(command)
    again = add(_retrain, "s2s retrain artifact/evidence main/cohort/native-s42 --out adapters")
    again.add_argument("directory", type=Path, help="results directory, or shipped evidence")
    again.add_argument("run", nargs="+", metavar="RUN", help="a trained run's path in it")
    again.add_argument("--out", type=Path, required=True, help="RUN/adapter of each run goes here")
    again.add_argument("--jobs", type=int, default=1, metavar="N", help="runs side by side (default: 1)")
    credit = "leave out this class of credit, several joined by +, and measure what it bought"
    options.add_repeated(again, "--without", credit, metavar="CLASS")
    again.add_argument("--by-class", action="store_true", help="--without each class of credit")
    again.add_argument(
        "--groups", type=int, metavar="N", help="with these: the first N groups (default: all)"
    )
    again.add_argument("--prompts", type=int, default=64, help="with these: prompts to answer (default: 64)")
    again.add_argument(
        "--completions", type=int, default=4, help="with these: answers to each, or 0 (default: 4)"
    )
    _allow(again)


def _allow(command: argparse.ArgumentParser) -> None:
    options.add_repeated(command, "--model", "your own model, if the runs used one", Path, metavar="DIR")
    options.allow_code(command, "mapping", "normalizer", "problem", "host", "rule")

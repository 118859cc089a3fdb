"""Runs executed again from their configurations, and compared with their records.

This level of verification includes model and learner: texts and adapters have to be equal, or the first
difference is reported.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from search_to_signal import plugins
from search_to_signal.errors import ConfigError, ModelFileError, RunDirectoryError, S2SError
from search_to_signal.generators.model_files import checked_files
from search_to_signal.hosts import find_host
from search_to_signal.learner import GROUP, RULES
from search_to_signal.normalizer import find_normalizer
from search_to_signal.package_data import MODELS
from search_to_signal.problems import find_problem
from search_to_signal.profiles.run_config import ADAPTER, ParentRun, RunConfig
from search_to_signal.progress import Progress
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.files import is_place, refuse_special_files
from search_to_signal.records.manifest import MANIFEST, Manifest, finished_manifest, read_manifest, runs_below
from search_to_signal.rewards import find_mapping
from search_to_signal.scheduling.card_check import require_card_of_run
from search_to_signal.scheduling.execution import Execution, PlannedRun, execute
from search_to_signal.verification.recompute.runs import run_config
from search_to_signal.verification.recompute.tools import Sample
from search_to_signal.verification.rerun.equality import Difference, facts_that_differ, first_difference


@dataclass(frozen=True)
class Rerun:
    """A run executed again: its first difference, and the facts about source and machine that differ.

    ``kept``: a complete run of this configuration was already in the output directory, and was compared.
    """

    name: str
    groups: int
    difference: Difference | None
    facts: Mapping[str, tuple[str, str]]
    kept: bool = False


def runs_to_choose(directory: Path, models: Sequence[Path]) -> tuple[list[str], dict[str, str]]:
    """Return the names of the runs that can be executed again, and the reasons why others cannot.

    Raises RunDirectoryError where the directory contains no run.
    """
    refuse_special_files(directory)
    possible, refused = [], {}
    for run in runs_below(directory):
        name = run.relative_to(directory).as_posix()
        try:
            runnable_config(read_manifest(run), models)
            possible.append(name)
        except S2SError as error:
            refused[name] = str(error)
    if not possible and not refused:
        raise RunDirectoryError(f"{directory} holds no run: give a results directory")
    return possible, refused


def sample_runs(names: Sequence[str], sample: Sample) -> list[str]:
    """Return a sample of these runs, in their order."""
    return [names[position] for position in sorted(sample.chosen("runs", len(names)))]


def rerun(
    directory: Path,
    names: Sequence[str],
    out: Path,
    execution: Execution,
    progress: Progress,
    models: Sequence[Path],
) -> Iterator[Rerun]:
    """Execute runs of a results directory again below ``out``, parents before their restarts.

    Yields every run, parents included, after the runs that are executed with it. Raises ConfigError for an
    unknown run, for code that is not available, and where ``out`` lies in the directory, RunDirectoryError
    where ``out`` contains another run, RunFailedError and StoppedError as ``execute`` does.
    """
    refuse_inside(out, directory)
    manifests = with_parents(directory, names)
    for name in manifests:
        refuse_inside(out / name, directory)
    left = {name: runnable_config(manifest, models) for name, manifest in manifests.items()}
    done: dict[str, Rerun] = {}
    while left:
        ready = {name: config for name, config in left.items() if not set(_parents(name, config)) & set(left)}
        for name in [name for name, config in ready.items() if _lacks_adapter(name, config, directory, done)]:
            done[name] = Rerun(name, left.pop(name).groups, _NOT_EXECUTED, {})
            del ready[name]
            yield done[name]
        configs = {name: _with_recorded_parent(name, c, directory, done) for name, c in ready.items()}
        planned = [PlannedRun(config, out / name, done=False) for name, config in configs.items()]
        kept = {run.directory for run in planned if finished_manifest(run.directory)}
        execute(planned, execution, progress)
        for run, name in zip(planned, configs, strict=True):
            done[name] = _compare(directory, name, run, run.directory in kept)
            yield done[name]
            del left[name]


def refuse_inside(out: Path, directory: Path) -> None:
    """Raise ConfigError where the output directory ``out`` lies within ``directory``."""
    if out.resolve().is_relative_to(directory.resolve()):
        raise ConfigError(f"{out} lies in the directory that is checked: give another --out")


def with_parents(directory: Path, names: Sequence[str]) -> dict[str, Manifest]:
    """Return the manifests of runs and of their parents by name; raises ConfigError for an unknown name."""
    refuse_special_files(directory)
    manifests: dict[str, Manifest] = {}
    pending = list(names)
    while pending:
        name = pending.pop(0)
        if name in manifests:
            continue
        if not _is_run_of(directory, name):
            known = [path.relative_to(directory).as_posix() for path in runs_below(directory)]
            raise ConfigError(f"{directory} has no run {name!r}: choose one of {', '.join(known)}")
        manifests[name] = read_manifest(directory / name)
        pending += _parents(name, run_config(manifests[name]))
    return manifests


def _is_run_of(directory: Path, name: str) -> bool:
    """Whether a name, which may come from a forged manifest, is that of a run below the directory."""
    if name != "." and not is_place(os.path.normpath(name)):
        return False
    run = directory / name
    return run.resolve().is_relative_to(directory.resolve()) and (run / MANIFEST).is_file()


def _parents(name: str, config: RunConfig) -> list[str]:
    """The runs that a run starts from, by their names below the results directory."""
    values = (getattr(config, field) for field in config.__struct_fields__)
    return [
        os.path.normpath(os.path.join(name, value.run)) for value in values if isinstance(value, ParentRun)
    ]


def runnable_config(manifest: Manifest, models: Sequence[Path]) -> RunConfig:
    """Return a recorded configuration with a model of this machine and required isolation.

    Raises ConfigError for an unfinished run, a run of the released host, and for code, a model or a card that
    is not available here: a results directory cannot name code to execute.
    """
    if manifest.of_host.own_loop:
        raise ConfigError("a run of the released host: s2s released --calm DIR runs it")
    if manifest.status != "complete":
        raise ConfigError("the run is not complete")
    config = run_config(manifest)
    find_problem(config.problem)
    find_host(config.host, config.host_setup)
    if config.condition != FROZEN:
        find_mapping(config.mapping)
        find_normalizer(config.normalizer)
        plugins.find(config.learning_rule, RULES, GROUP, "--rule")
    # Programs are always isolated, whatever the configuration records.
    limits = msgspec.structs.replace(config.evaluation, require_seccomp=True)
    require_card_of_run(config)
    return msgspec.structs.replace(config, model=model_here(config, manifest, models), evaluation=limits)


def model_here(config: RunConfig, manifest: Manifest, models: Sequence[Path]) -> str:
    """Return the shipped model, or the directory of ``models``, with the recorded checksums.

    Raises ConfigError where there is none. Recorded paths are not followed.
    """
    if not manifest.model_files:
        raise ConfigError("its model was served by an endpoint, which gives no equal completions again")
    shipped = {path.name: path for path in MODELS.glob("*") if path.is_dir()}
    for name, path in {**shipped, **{str(model): model for model in models}}.items():
        try:
            if checked_files(path) == manifest.model_files:
                return name
        except ModelFileError:
            continue
    raise ConfigError(f"its model {config.model} is not here with the recorded checksums (--model DIR)")


_NOT_EXECUTED = Difference(
    "not executed",
    "an adapter that is not stored",
    "another one",
    0,
    "the run it starts from came out otherwise",
)


def _lacks_adapter(name: str, config: RunConfig, directory: Path, done: Mapping[str, Rerun]) -> bool:
    """Whether a run starts from an adapter that is neither stored nor reproduced by the parent's rerun."""
    needs_adapter = config.parent is not None and config.parent.adapter_sha256 is not None
    differing = (parent for parent in _parents(name, config) if done[parent].difference is not None)
    return needs_adapter and any(not (directory / parent / ADAPTER).is_dir() for parent in differing)


def _with_recorded_parent(
    name: str, config: RunConfig, directory: Path, done: Mapping[str, Rerun]
) -> RunConfig:
    """A configuration that starts from the recorded parent where the parent's rerun differs."""
    differing = [parent for parent in _parents(name, config) if done[parent].difference is not None]
    if not differing or config.parent is None:
        return config
    recorded = (directory / differing[0]).resolve()
    return msgspec.structs.replace(config, parent=msgspec.structs.replace(config.parent, run=str(recorded)))


def _compare(directory: Path, name: str, run: PlannedRun, kept: bool) -> Rerun:
    recorded, again = directory / name, run.directory
    facts = facts_that_differ(read_manifest(recorded), read_manifest(again))
    return Rerun(name, run.config.groups, first_difference(recorded, again), facts, kept)

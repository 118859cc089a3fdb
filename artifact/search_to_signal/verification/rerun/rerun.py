"""Runs executed again from their configurations, and held against their records.

The third level of checking: model and learner give the same texts and adapters once more, or where they part.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from search_to_signal import plugins
from search_to_signal.errors import ConfigError, ModelFileError, RunDirectoryError, S2SError
from search_to_signal.generators.files import checked_files
from search_to_signal.hosts import find_host
from search_to_signal.learner import GROUP, RULES
from search_to_signal.normalizer import find_normalizer
from search_to_signal.package_data import MODELS
from search_to_signal.problems import find_problem
from search_to_signal.profiles.run_config import ADAPTER, Parent, RunConfig
from search_to_signal.progress import Progress
from search_to_signal.records.files import is_place, refuse_special_files
from search_to_signal.records.manifest import MANIFEST, Manifest, finished_manifest, read_manifest, runs_below
from search_to_signal.rewards import find_mapping
from search_to_signal.scheduling.execution import Execution, Place, execute
from search_to_signal.verification.recompute.runs import run_config
from search_to_signal.verification.recompute.tools import Sample
from search_to_signal.verification.rerun.equality import Difference, facts_that_differ, first_difference


@dataclass(frozen=True)
class Rerun:
    """A run executed again: what differs first, and what it ran on that differs, recorded and here.

    ``kept`` says that a complete run of that configuration lay in the directory already.
    """

    name: str
    groups: int
    difference: Difference | None
    facts: Mapping[str, tuple[str, str]]
    kept: bool = False


def runs_to_choose(directory: Path, models: Sequence[Path]) -> tuple[list[str], dict[str, str]]:
    """The names of the runs that can be executed again, and why others cannot."""
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


def drawn(names: Sequence[str], sample: Sample) -> list[str]:
    """Some of these runs, in their order."""
    return [names[place] for place in sorted(sample.chosen("runs", len(names)))]


def rerun(
    directory: Path,
    names: Sequence[str],
    out: Path,
    how: Execution,
    progress: Progress,
    models: Sequence[Path],
) -> Iterator[Rerun]:
    """Execute runs of a results directory again below ``out``, restarts after their parents.

    Yields every run, parents too, as soon as those beside it are done. Raises ConfigError for an unknown run
    or settings that no code here has, RunDirectoryError where ``out`` lies in the directory or
    holds something else, RunFailedError and StoppedError as ``execute`` does.
    """
    refuse_special_files(directory)
    refuse_inside(out, directory)
    manifests = with_parents(directory, names)
    for name in manifests:
        refuse_inside(out / name, directory)
    left = {name: runnable_config(manifest, models) for name, manifest in manifests.items()}
    done: dict[str, Rerun] = {}
    while left:
        ready = {name: config for name, config in left.items() if not set(_parents(name, config)) & set(left)}
        for name in [name for name, config in ready.items() if _stranded(name, config, directory, done)]:
            done[name] = Rerun(name, left.pop(name).groups, _STRANDED, {})
            del ready[name]
            yield done[name]
        placed = {name: _placed(name, config, directory, done) for name, config in ready.items()}
        places = [Place(config, out / name, done=False) for name, config in placed.items()]
        before = {place.directory for place in places if finished_manifest(place.directory)}
        execute(places, how, progress)
        for place, name in zip(places, placed, strict=True):
            done[name] = _compared(directory, name, place, place.directory in before)
            yield done[name]
            del left[name]


def refuse_inside(out: Path, directory: Path) -> None:
    """Raise ConfigError for an output that would lie among the records."""
    if out.resolve().is_relative_to(directory.resolve()):
        raise ConfigError(f"{out} lies in the directory that is checked: give another --out")


def with_parents(directory: Path, names: Sequence[str]) -> dict[str, Manifest]:
    """The manifests of runs and of those that they start from; raises ConfigError for an unknown name."""
    found: dict[str, Manifest] = {}
    asked = list(names)
    while asked:
        name = asked.pop(0)
        if name in found:
            continue
        if not _is_run_of(directory, name):
            known = [path.relative_to(directory).as_posix() for path in runs_below(directory)]
            raise ConfigError(f"{directory} has no run {name!r}: choose one of {', '.join(known)}")
        found[name] = read_manifest(directory / name)
        asked += _parents(name, run_config(found[name]))
    return found


def _is_run_of(directory: Path, name: str) -> bool:
    """Whether a name, which a manifest may have made up, is that of a run directory below another."""
    if name != "." and not is_place(os.path.normpath(name)):
        return False
    run = directory / name
    return run.resolve().is_relative_to(directory.resolve()) and (run / MANIFEST).is_file()


def _parents(name: str, config: RunConfig) -> list[str]:
    """The runs that a run starts from, as names below the results directory."""
    values = (getattr(config, field) for field in config.__struct_fields__)
    return [os.path.normpath(os.path.join(name, value.run)) for value in values if isinstance(value, Parent)]


def runnable_config(manifest: Manifest, models: Sequence[Path]) -> RunConfig:
    """The configuration as it can be run here; a directory's word for code or model is not enough.

    Raises ConfigError for a run that is not finished or not ours, and for code or a model that is not here.
    """
    if manifest.of_host.own_loop:
        raise ConfigError("a run of the released host: s2s released --calm DIR runs it")
    if manifest.status != "complete":
        raise ConfigError("the run is not complete")
    config = run_config(manifest)
    find_problem(config.problem)
    find_host(config.host, config.host_setup)
    if config.condition != "frozen":
        find_mapping(config.mapping)
        find_normalizer(config.normalizer)
        plugins.find(config.learning_rule, RULES, GROUP, "--rule")
    # Whatever was recorded, programs are isolated here.
    limits = msgspec.structs.replace(config.evaluation, require_seccomp=True)
    return msgspec.structs.replace(config, model=model_here(config, manifest, models), evaluation=limits)


def model_here(config: RunConfig, manifest: Manifest, models: Sequence[Path]) -> str:
    """The model by its recorded checksums, looked for among ours and ``models``; no path is followed."""
    if not manifest.model_files:
        raise ConfigError("its model stands behind an endpoint elsewhere, which nobody can ask again")
    shipped = {path.name: path for path in MODELS.glob("*") if path.is_dir()}
    for name, path in {**shipped, **{str(model): model for model in models}}.items():
        try:
            if checked_files(path) == manifest.model_files:
                return name
        except ModelFileError:
            continue
    raise ConfigError(f"its model {config.model} is not here with the recorded checksums (--model DIR)")


_STRANDED = Difference(
    "not executed",
    "an adapter that is not stored",
    "another one",
    0,
    "the run it starts from came out otherwise",
)


def _stranded(name: str, config: RunConfig, directory: Path, done: Mapping[str, Rerun]) -> bool:
    """Whether a run starts from an adapter that is neither stored nor came out again."""
    needs = config.parent is not None and config.parent.adapter_sha256 is not None
    lost = (parent for parent in _parents(name, config) if done[parent].difference is not None)
    return needs and any(not (directory / parent / ADAPTER).is_dir() for parent in lost)


def _placed(name: str, config: RunConfig, directory: Path, done: Mapping[str, Rerun]) -> RunConfig:
    """A run whose parent came out otherwise starts from the recorded one, to be compared at all."""
    otherwise = [parent for parent in _parents(name, config) if done[parent].difference is not None]
    if not otherwise or config.parent is None:
        return config
    recorded = (directory / otherwise[0]).resolve()
    return msgspec.structs.replace(config, parent=msgspec.structs.replace(config.parent, run=str(recorded)))


def _compared(directory: Path, name: str, place: Place, kept: bool) -> Rerun:
    recorded, again = directory / name, place.directory
    facts = facts_that_differ(read_manifest(recorded), read_manifest(again))
    return Rerun(name, place.config.groups, first_difference(recorded, again), facts, kept)

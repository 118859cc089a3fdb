"""Runs executed again from their configurations, and compared with their records.

This level of verification includes model and learner: texts and adapters have to be equal, or the first
difference is reported.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from search_to_signal.base import plugins
from search_to_signal.base.errors import ConfigError, ModelFileError, RecordError, RunDirectoryError, S2SError
from search_to_signal.base.numerics import Floats
from search_to_signal.base.package_data import MODELS
from search_to_signal.base.progress import Progress
from search_to_signal.credit import find_mapping
from search_to_signal.credit.normalizers import find_normalizer
from search_to_signal.learner import GROUP, RULES
from search_to_signal.models.files import checked_files, same_model
from search_to_signal.models.settings import BACKENDS
from search_to_signal.problems import find_problem
from search_to_signal.records.adapters import ADAPTER, TENSORS, StoredTensor, mapped_bytes, stored_tensors
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.differences import ABSENT, Finding, excerpts, flat, unequal_values
from search_to_signal.records.files import is_place, read_regular, refuse_special_files
from search_to_signal.records.manifest import MANIFEST, Manifest, finished_manifest, read_manifest, runs_below
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, HEURISTICS, STEPS, TIMINGS, read_records
from search_to_signal.run.again import LIMITED, Sample
from search_to_signal.run.config import CONFIG, ParentRun, RunConfig
from search_to_signal.run.execution import Execution, PlannedRun, execute
from search_to_signal.run.machine_check import require_card_of_run
from search_to_signal.run.replayed import run_config
from search_to_signal.search.hosts import find_host

# In the order in which a group is made: the first difference is the cause of the others.
_FILES = (GENERATIONS, COMPLETIONS, HEURISTICS, STEPS)
_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
# Fields of a manifest that are inputs or results of the run, not facts about source, model or machine.
_INPUTS_AND_RESULTS = (
    *("config", "config_sha256", "plan_sha256", "status", "timing", "interruptions"),
    *("initial_adapter_sha256", "final_adapter_sha256"),
)
Line = dict[str, Any]


@dataclass(frozen=True)
class FirstDifference:
    """The first difference of two runs: its place, both values, and a remark; ``equal`` groups precede it."""

    where: str
    recorded: str
    actual: str
    equal: int
    remark: str = ""

    @property
    def finding(self) -> Finding:
        """The difference as a finding."""
        remark = f" ({self.remark})" if self.remark else ""
        text = f"recorded {self.recorded} | now {self.actual}{remark}"
        return Finding(f"first difference: {self.where}", text)


def first_difference(recorded: Path, again: Path) -> FirstDifference | None:
    """Return the first difference between a recorded run and a rerun of it; None where they are equal.

    Timings and environments are not compared. An adapter that is not stored is compared by its checksum.
    Raises RunDirectoryError or RecordError for a run that cannot be read.
    """
    files = [(_lines(recorded / name), _lines(again / name)) for name in _FILES]
    steps = sorted({step for pair in files for lines in pair for step in lines})
    for done, step in enumerate(steps):
        for name, (first, second) in zip(_FILES, files, strict=True):
            if first.get(step) != second.get(step):
                place = f"group {step}, {name}"
                return _group_difference(place, first.get(step, []), second.get(step, []), done)
    return _result_difference(recorded, again, len(steps))


def _lines(path: Path) -> dict[int, list[Line]]:
    try:
        records = groupby(read_records(path, dict), key=lambda line: int(line["step"]))
        return {step: list(lines) for step, lines in records}
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{path}: a line has no step; restore the file") from error


def _group_difference(
    where: str, recorded: Sequence[Line], again: Sequence[Line], equal: int
) -> FirstDifference:
    for first, second in zip(recorded, again, strict=False):
        if first != second:
            completion = f", completion {first['index']}" if "index" in first else ""
            path, *values = next(unequal_values("", first, second))
            limited = _reached_limit(first) or _reached_limit(second)
            remark = "a time or memory limit ended it: another speed may decide that otherwise"
            place = f"{where}{completion}: {path}"
            return FirstDifference(place, *excerpts(*values), equal, remark if limited else "")
    return FirstDifference(f"{where}: records", str(len(recorded)), str(len(again)), equal)


def _reached_limit(line: Line) -> bool:
    return str(line.get("evaluation", "")).split(",")[0] in LIMITED


def _result_difference(recorded: Path, again: Path, groups: int) -> FirstDifference | None:
    """The first difference of final adapters, other record files, and adapter checksums."""
    first, second = (_adapter_tensors(run) for run in (recorded, again))
    if first is not None and second is not None:
        for name in sorted({*first, *second}):
            if first.get(name) != second.get(name):
                return _tensor_difference(name, first.get(name), second.get(name), groups)
    known = {*_FILES, TIMINGS, MANIFEST, CONFIG}
    # Further record files of both runs, which other hosts and learning rules write.
    further = ({path.name for path in run.glob("*.json*")} - known for run in (recorded, again))
    for name in sorted(set.intersection(*further)):
        first_bytes, second_bytes = (read_regular(run / name) for run in (recorded, again))
        if first_bytes != second_bytes:
            texts = (content.decode(errors="replace") for content in (first_bytes, second_bytes))
            return FirstDifference(name, *excerpts(*texts), groups)
    for field in ("initial_adapter_sha256", "final_adapter_sha256"):
        sha256, again_sha256 = (getattr(read_manifest(run), field) for run in (recorded, again))
        if sha256 != again_sha256:
            return FirstDifference(f"manifest: {field}", str(sha256), str(again_sha256), groups)
    return None


def _adapter_tensors(run: Path) -> dict[str, StoredTensor] | None:
    path = run / ADAPTER / TENSORS
    if not path.is_file():
        return None
    try:
        return stored_tensors(mapped_bytes(path))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(f"{path} is not a valid safetensors file ({error}); restore it") from error


def _tensor_difference(
    name: str, first: StoredTensor | None, second: StoredTensor | None, groups: int
) -> FirstDifference:
    where = f"final adapter, {name}"
    if first is None or second is None or first[:2] != second[:2] or first.dtype not in _TYPES:
        recorded, again = (f"{t.dtype} {list(t.shape)}" if t else ABSENT for t in (first, second))
        return FirstDifference(where, recorded, again, groups)
    weights, others = _values(first), _values(second)
    # Compared as bytes, since positive and negative zero are different weights.
    unequal = np.flatnonzero(weights.view(f"u{weights.itemsize}") != others.view(f"u{weights.itemsize}"))
    at = int(unequal[0])
    largest = np.abs(weights - others).max()
    remark = f"{len(unequal)} of {len(weights)} weights of it differ, by at most {largest:.3g}"
    texts = repr(float(weights[at])), repr(float(others[at]))
    return FirstDifference(f"{where}, weight {at}", *texts, groups, remark)


def _values(tensor: StoredTensor) -> Floats:
    values: Floats = np.frombuffer(tensor.data, dtype=_TYPES[tensor.dtype])
    return values


def facts_that_differ(recorded: Manifest, again: Manifest) -> dict[str, tuple[str, str]]:
    """Return the facts about source, model and environment that differ, as both values by dotted name."""
    first, second = (dict(flat("", msgspec.to_builtins(manifest))) for manifest in (recorded, again))
    return {
        name: _difference_texts(first.get(name), second.get(name))
        for name in {**first, **second}
        if first.get(name) != second.get(name) and name.split(".")[0] not in _INPUTS_AND_RESULTS
    }


def _difference_texts(first: Any, second: Any) -> tuple[str, str]:
    """Both values as text; of two lists the items that only one of them has."""
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        only_first, only_second = (
            [str(v) for v in a if v not in b] for a, b in ((first, second), (second, first))
        )
        return f"also {' '.join(only_first) or 'nothing'}", f"also {' '.join(only_second) or 'nothing'}"
    return excerpts(first, second)


@dataclass(frozen=True)
class Rerun:
    """A run executed again: its first difference, and the facts about source and machine that differ.

    ``kept``: a complete run of this configuration was already in the output directory, and was compared.
    """

    name: str
    groups: int
    difference: FirstDifference | None
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
            repeatable_config(read_manifest(run), models)
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
    left = {name: repeatable_config(manifest, models) for name, manifest in manifests.items()}
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
            recorded, again = directory / name, run.directory
            facts = facts_that_differ(read_manifest(recorded), read_manifest(again))
            done[name] = Rerun(
                name, run.config.groups, first_difference(recorded, again), facts, run.directory in kept
            )
            yield done[name]
            del left[name]


def refuse_inside(out: Path, directory: Path) -> None:
    """Raise ConfigError where the output directory ``out`` lies within ``directory``."""
    if out.resolve().is_relative_to(directory.resolve()):
        raise ConfigError(f"{out} is inside the directory that is checked: give another --out")


# Runs that an unknown name is answered with: the most similar names.
_SHOWN = 6


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
            near = known if len(known) <= _SHOWN else get_close_matches(name, known, _SHOWN, 0.0)
            more = f", or of {len(known) - len(near)} others" if len(near) < len(known) else ""
            raise ConfigError(f"{directory} has no run {name!r}: choose one of {', '.join(near)}{more}")
        manifests[name] = read_manifest(directory / name)
        pending += _parents(name, run_config(manifests[name]))
    return manifests


def _is_run_of(directory: Path, name: str) -> bool:
    if name != "." and not is_place(os.path.normpath(name)):
        return False
    run = directory / name
    return run.resolve().is_relative_to(directory.resolve()) and (run / MANIFEST).is_file()


def _parents(name: str, config: RunConfig) -> list[str]:
    values = (getattr(config, field) for field in config.__struct_fields__)
    return [
        os.path.normpath(os.path.join(name, value.run)) for value in values if isinstance(value, ParentRun)
    ]


def repeatable_config(manifest: Manifest, models: Sequence[Path]) -> RunConfig:
    """``runnable_config``, where completions come out again; raises ConfigError where they need not."""
    backend = run_config(manifest).generation.backend
    if backend not in BACKENDS or backend == "server":
        raise ConfigError(
            f"its completions came from {backend}, which promises no equal ones again: s2s retrain makes its "
            "adapter of them, s2s verify --recompute its scores"
        )
    return runnable_config(manifest, models)


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
            if same_model(checked_files(path), manifest.model_files):
                return name
        except ModelFileError:
            continue
    raise ConfigError(f"its model {config.model} is not here with the recorded checksums (--model DIR)")


_NOT_EXECUTED = FirstDifference(
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

"""The planned runs in a results directory: which are finished already, and execution of the others."""

import importlib
import shutil
import signal
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from search_to_signal.base.errors import ConfigError, RunDirectoryError, RunFailedError, S2SError, reason
from search_to_signal.base.progress import Progress, Task
from search_to_signal.models.opening import model_files
from search_to_signal.records.adapters import left_out
from search_to_signal.records.checksums import SUMS, read_sums, sha256_file, sum_problems, write_sums
from search_to_signal.records.files import LARGEST, read_regular
from search_to_signal.records.layers import COHORT
from search_to_signal.records.manifest import (
    Manifest,
    finished_manifest,
    read_manifest,
    run_directories,
    runs_below,
    write_roster,
)
from search_to_signal.records.provenance import source
from search_to_signal.records.reader import STEPS
from search_to_signal.run.config import ADAPTER, RunConfig
from search_to_signal.run.directory import RUN, read_own, set_aside
from search_to_signal.run.execution import (
    Execution,
    Failures,
    PlannedRun,
    RunProcesses,
    execute,
    execute_run,
    stoppable,
)
from search_to_signal.run.profile import Profile

# Execution on a Ray cluster, one process per run; Ray is imported only with the option --ray.
#
# The results directory and the project have to be the same directories on every node. A run of a lost node
# resumes from its last checkpoint on another node.

# The number of times that a run may lose its node.
_RETRIES = 8
_POLL_S = 1.0
_CONNECT_S = 5.0
# The run of a lost node may continue for a while, and holds its directory until it ends.
_WAIT_S = 60.0


class _CollectedLines:
    """Collects the lines of a run for the process that started it, which reads its progress from records."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def update(self, task: str, done: int, total: int, note: str = "") -> None: ...

    def say(self, line: str) -> None:
        self.lines.append(line)


def _remote_run(run: PlannedRun, execution: Execution) -> list[str]:
    # Ray interrupts a task that is cancelled while it runs; what has begun goes on. The worker ends with it.
    signal.signal(signal.SIGINT, lambda *_: None)
    collected = _CollectedLines()
    with RunProcesses() as processes:
        execute_run(run, execution, collected, processes, _WAIT_S)
    return collected.lines


def node_resources(run: PlannedRun, gpus: bool) -> dict[str, int]:
    """Return the resources of a run on its node: processors, and a GPU where the cluster has some.

    Evaluation workers run on the node of their run, in turns with the model, so the run needs the larger
    number of processors of the two.
    """
    return {"num_cpus": max(run.config.threads, run.config.evaluation.slots), "num_gpus": 1 if gpus else 0}


def execute_on_ray(pending: Sequence[PlannedRun], execution: Execution, progress: Progress) -> None:
    """Execute every run on the cluster at ``execution.ray``, in this order as resources become free.

    Raises ConfigError when there is no such cluster, otherwise as ``execute`` does.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError("Ray is not installed: install the project with its extra 'cluster'") from error
    _require_listener(execution.ray)
    try:
        ray.init(address=execution.ray, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"there is no Ray cluster at {execution.ray}: {error}") from error
    try:
        with Failures(execution, progress) as failures, stoppable(execution.resume):
            gpus = ray.cluster_resources().get("GPU", 0) >= 1
            # Every run has a new worker process, so that no state of another run or attempt remains.
            remote = ray.remote(max_retries=_RETRIES, max_calls=1)(_remote_run)
            waiting = {}
            for run in pending:
                if not execution.resume:
                    set_aside(run.directory)
                run = replace(run, directory=run.directory.resolve())
                # From here on the directory can contain only an earlier attempt of this run.
                attempt = replace(execution, resume=True)
                waiting[remote.options(**node_resources(run, gpus)).remote(run, attempt)] = run
            _watch(ray, waiting, failures, progress)
    finally:
        ray.shutdown()


def _require_listener(address: str | None) -> None:
    """Raise ConfigError where nothing listens at HOST:PORT, since Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # "auto" and the like, which Ray refuses at once
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"there is no Ray cluster at {address} ({reason(error)}): give the address that ray start printed"
        ) from error


def _watch(ray: Any, waiting: dict[Any, PlannedRun], failures: Failures, progress: Progress) -> None:
    shown: dict[str, int] = {}
    try:
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=_POLL_S)
            for reference in ready:
                run = waiting.pop(reference)
                try:
                    for line in _result(ray, reference, run):
                        progress.say(line)
                except (RunFailedError, ray.exceptions.RayTaskError) as failure:
                    cancelled = isinstance(failure.__cause__, ray.exceptions.TaskCancelledError)
                    if failures.none_starts and cancelled:
                        continue
                    failures.add(failure, bool(waiting))
                    if failures.none_starts:
                        for other in waiting:
                            ray.cancel(other)
            for run in waiting.values():
                label, groups = run.config.label, _groups(run.directory)
                if shown.get(label) != groups:
                    progress.update(label, groups, run.config.groups)
                shown[label] = groups
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)


def _result(ray: Any, reference: Any, run: PlannedRun) -> list[str]:
    try:
        lines: list[str] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if not isinstance(error.cause, S2SError):
            raise
        raise RunFailedError(str(error.cause)) from None
    except ray.exceptions.RayError as error:
        raise RunFailedError(
            f"run {run.config.label} was lost on the cluster ({type(error).__name__}); a run is started "
            f"again {_RETRIES} times when its node fails: look at the nodes, then go on with --resume"
        ) from error
    return lines


def _groups(directory: Path) -> int:
    try:
        return read_regular(directory / STEPS, LARGEST).count(b"\n")
    except FileNotFoundError:
        return 0


@dataclass(frozen=True)
class Reproduction:
    """A profile, its results directory, how its runs are executed, and the receiver of progress."""

    profile: Profile
    results: Path
    execution: Execution
    progress: Progress

    def run_all(self, plan: Mapping[Path, Sequence[RunConfig]]) -> list[Path]:
        """Execute the missing runs of every directory in one pool; returns the run directories.

        Complete runs are verified and kept; unfinished ones start again, or resume with ``execution.resume``.
        Raises RunDirectoryError, before a run starts, where a directory contains something else.
        """
        pending = self.begin(plan)
        run_missing(pending, self.execution, self.progress)
        for out in plan:
            write_sums(out)
        return [run.directory for run in pending]

    def run_cells(self, layer: str) -> None:
        """Run every cell of a layer, task x model, in a directory of its own: cells are never pooled.

        Raises RunDirectoryError where there are runs of a cell that the profile lacks, and as ``run_all``.
        """
        out, runs = self.results / layer, self.profile.cell_runs(layer)
        for folder in out.glob("*") if out.is_dir() else []:
            if folder.is_dir() and folder.name not in runs and run_directories(folder):
                raise RunDirectoryError(f"{folder} is a cell that the profile does not have: move it away")
        self.run_all({out / name: configs for name, configs in runs.items()})

    def begin(self, plan: Mapping[Path, Sequence[RunConfig]]) -> list[PlannedRun]:
        """Write the roster of every directory and return its planned runs; raises as ``run_all``."""
        pending = [run for out, configs in plan.items() for run in self._planned(configs, out)]
        for out, configs in plan.items():
            write_roster(out, (config.name for config in configs))
        return pending

    def _planned(self, configs: Sequence[RunConfig], out: Path) -> list[PlannedRun]:
        planned, finished_runs = plan_runs(configs, out, self.execution), self.execution.finished_runs
        if finished_runs is None:
            return planned
        other, plan = finished_runs / out.relative_to(self.results), self.execution.plan
        return [
            replace(run, done=run.done or _is_finished(run.config, other / run.directory.name, plan))
            for run in planned
        ]

    @property
    def has_cohort(self) -> bool:
        """Whether every run of the cohort is in this results directory."""
        return all((self.results / COHORT / config.name).is_dir() for config in self.profile.runs())

    def finished_cohort(self) -> Path:
        """Return the directory of the profile's finished cohort; raises as ``finished_cohort``."""
        return finished_cohort(self.profile, self.results, self.execution.plan)


# The cost of loading libraries and model, and of a group with a step, in groups of a Frozen run.
LOADING, TRAINED = 10.0, 2.0


def tasks_of(configs: Iterable[RunConfig], cost: float | None = None) -> list[Task]:
    """The runs as tasks; ``cost`` is that of a group, by default what the run's learner makes it."""
    return [
        Task(run.label, run.groups, cost or (TRAINED if run.trained else 1.0), LOADING, is_run=True)
        for run in configs
    ]


def _planned_run(
    config: RunConfig, directory: Path, source_sha256: str, weights: dict[str, str], execution: Execution
) -> PlannedRun:
    plan = execution.plan
    manifest = read_own(RUN, directory, lambda stored: _is_run(stored, config, plan))
    if manifest is None or manifest.status != "complete" or not (directory / SUMS).is_file():
        return PlannedRun(config, directory, done=False)
    remedy = "give another --out, or move it away"
    if plan is not None and manifest.plan_sha256 != plan:
        raise RunDirectoryError(f"{directory} holds this run, recorded for another plan: {remedy}")
    expected_source = source_sha256 if plan is None else manifest.source.sha256
    if (manifest.source.sha256, manifest.model_files) != (expected_source, weights):
        raise RunDirectoryError(
            f"{directory} holds this run, made with another version of the source or model: {remedy}"
        )
    if problem := _first_problem(directory, execution):
        raise RunDirectoryError(f"{directory} is complete but damaged ({problem}): {remedy}")
    return PlannedRun(config, directory, done=True)


def _first_problem(directory: Path, execution: Execution) -> str | None:
    if execution.check is not None and execution.plan is None:
        return next(iter(execution.check(directory)), None)
    # A plan has hundreds of runs, which every command checks: consistency is left to s2s verify.
    return min(sum_problems(directory).keys() - left_out(directory), default=None)


def _is_finished(config: RunConfig, directory: Path, plan: str | None) -> bool:
    manifest = finished_manifest(directory)
    if manifest is None or manifest.plan_sha256 != (plan or UNSET):
        return False
    return _is_run(manifest, config, plan)


def _is_run(manifest: Manifest, config: RunConfig, plan: str | None) -> bool:
    """Whether a manifest has a run's configuration; under a plan it may lack settings of later versions."""
    if plan is None or manifest.config_sha256 == config.sha256:
        return manifest.config_sha256 == config.sha256
    try:
        return msgspec.convert(manifest.config, RunConfig) == config
    except (msgspec.ValidationError, ConfigError):
        return False


def plan_runs(configs: Sequence[RunConfig], out: Path, execution: Execution) -> list[PlannedRun]:
    """Return the planned runs of ``out``.

    Raises RunDirectoryError, before anything is written, for another run in ``out`` and for a finished run of
    another plan, source or model, or with problems.
    """
    if out.exists() and not out.is_dir():
        raise RunDirectoryError(f"{out} is not a directory: give another --out, or move it away")
    expected = {config.name for config in configs}
    for run in run_directories(out) if out.is_dir() else []:
        if run == out or run.name not in expected:
            raise RunDirectoryError(f"{run} already holds another run: give another --out, or move it away")
    sha256 = source().sha256
    # Hashing the weights of a pretrained model takes seconds.
    loaded = {config.model: config.generation for config in configs}
    models = {model: model_files(generation, model) for model, generation in loaded.items()}
    return [
        _planned_run(config, out / config.name, sha256, models[config.model], execution) for config in configs
    ]


def run_missing(planned: Sequence[PlannedRun], execution: Execution, progress: Progress) -> None:
    """Execute every run that is not done, on this machine or on a cluster.

    The longest run starts first; runs of a plan start in order. Raises RunFailedError or StoppedError as
    ``execute`` does. An unfinished directory is never deleted.
    """
    for run in planned:
        if run.done:
            groups = run.config.groups
            progress.update(run.config.label, groups, groups)
            if execution.plan is None:
                progress.say(f"{run.config.label}: complete and verified, kept")
    pending = [run for run in planned if not run.done]
    if execution.plan is None:
        pending.sort(key=_length, reverse=True)
    if execution.ray is not None:
        from search_to_signal.run.planned_runs import execute_on_ray

        execute_on_ray(pending, execution, progress)
    elif pending:
        execute(pending, execution, progress)


def _length(run: PlannedRun) -> int:
    """A run's relative duration: an update takes about as long as a generation."""
    return run.config.groups * (2 if run.config.trained else 1)


def finished_cohort(profile: Profile, results: Path, plan: str | None = None) -> Path:
    """Return the cohort's directory; raises RunDirectoryError unless all its runs are complete.

    Runs of a plan may come from several versions of the source. Only manifests are read: each layer checks
    the files that it reads, and the cohort was verified when it finished.
    """
    cohort, sha256 = results / COHORT, None if plan is not None else source().sha256
    missing = [
        config.name
        for config in profile.runs()
        if not _is_complete(config, cohort / config.name, sha256, plan)
    ]
    if missing:
        raise RunDirectoryError(
            f"{cohort} has no complete {', '.join(missing)} made with this source, and this layer needs it: "
            "run the cohort first (s2s run ... --layer cohort)"
        )
    return cohort


def _is_complete(config: RunConfig, directory: Path, source_sha256: str | None, plan: str | None) -> bool:
    if not (directory / SUMS).is_file():
        return False
    manifest = read_manifest(directory)
    same_source = source_sha256 in (None, manifest.source.sha256)
    return manifest.status == "complete" and same_source and _is_run(manifest, config, plan)


def unfinished(directory: Path) -> str:
    """Return the names of started and unfinished runs below a directory, joined; empty without any."""
    runs = [run for run in runs_below(directory) if read_manifest(run).status != "complete"]
    return ", ".join(str(run.relative_to(directory)) for run in runs)


# Final adapters of runs that were shipped without them, made again by the runs' recorded updates.


def make_adapters(reproduction: Reproduction, cohort: Path, names: Collection[str]) -> None:
    """Make the missing final adapters of these runs of a finished cohort.

    They are made in a directory next to the results, and moved into their runs. Raises RunFailedError where
    an update gives another adapter, RunDirectoryError where a run lists another one, and StoppedError as
    ``execute`` does.
    """
    wanted = [config for config in reproduction.profile.runs() if config.trained and config.name in names]
    lacking = [config for config in wanted if not (cohort / config.name / ADAPTER).is_dir()]
    if not lacking:
        return
    reproduction.progress.say(
        f"{len(lacking)} runs have no final adapter here: training them again from their records"
    )
    scratch = reproduction.results.with_name(f".{reproduction.results.name}-adapters")
    for first in range(0, len(lacking), reproduction.execution.jobs):
        batch = lacking[first : first + reproduction.execution.jobs]
        planned = [
            PlannedRun(config, scratch / config.name, recorded=cohort / config.name) for config in batch
        ]
        execute(planned, reproduction.execution, reproduction.progress)
        for config in batch:
            adapter, run = scratch / config.name / ADAPTER, cohort / config.name
            sums = read_sums(run).items()
            recorded = {name: digest for name, digest in sums if Path(name).parent.name == ADAPTER}
            made = {f"{ADAPTER}/{path.name}": sha256_file(path) for path in sorted(adapter.iterdir())}
            if made != recorded:
                raise RunDirectoryError(
                    f"{run} records another adapter than its updates give here (see {adapter}): restore the "
                    "run, or pack it with its adapter (s2s pack --adapters)"
                )
            adapter.rename(run / ADAPTER)
    shutil.rmtree(scratch)

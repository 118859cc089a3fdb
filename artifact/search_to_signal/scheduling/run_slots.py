"""Any number of runs: where each of them goes, what is already there, and the rest executed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from msgspec import UNSET

from search_to_signal.errors import ConfigError, RunDirectoryError
from search_to_signal.generators.opening import model_files
from search_to_signal.loop.directory import RUN, read_own
from search_to_signal.profiles.profile import Profile
from search_to_signal.profiles.run_config import RunConfig
from search_to_signal.progress import Progress
from search_to_signal.provenance.adapters import left_out
from search_to_signal.provenance.checksums import SUMS, sum_problems, write_sums
from search_to_signal.provenance.source import source
from search_to_signal.records.layers import COHORT
from search_to_signal.records.manifest import (
    Manifest,
    finished_manifest,
    read_manifest,
    run_directories,
    runs_below,
    write_roster,
)
from search_to_signal.scheduling.execution import Execution, Place, execute


@dataclass(frozen=True)
class Reproduction:
    """A profile, the results directory that it runs into, how its runs are executed and who is told."""

    profile: Profile
    results: Path
    how: Execution
    progress: Progress

    def run_all(self, plan: Mapping[Path, Sequence[RunConfig]]) -> list[Path]:
        """Run what is missing of every directory's runs, all in one pool; returns the run directories.

        Complete runs are verified and kept, unfinished ones begin again, or with ``how.resume`` go on. Raises
        RunDirectoryError before anything starts where a directory holds something else.
        """
        todo = self.begin(plan)
        run_missing(todo, self.how, self.progress)
        for out in plan:
            write_sums(out)
        return [place.directory for place in todo]

    def begin(self, plan: Mapping[Path, Sequence[RunConfig]]) -> list[Place]:
        """Name every directory's runs in it; returns where they go. Raises as ``run_all``."""
        todo = [place for out, configs in plan.items() for place in self._places(configs, out)]
        for out, configs in plan.items():
            write_roster(out, (config.name for config in configs))
        return todo

    def _places(self, configs: Sequence[RunConfig], out: Path) -> list[Place]:
        found, shelf = places(configs, out, self.how), self.how.elsewhere
        if shelf is None:
            return found
        there = shelf / out.relative_to(self.results)
        return [
            place
            if place.done or not _is_finished(place.config, there / place.directory.name, self.how.plan)
            else replace(place, done=True)
            for place in found
        ]

    @property
    def has_cohort(self) -> bool:
        """Whether every run of the cohort is here, and not elsewhere."""
        return all((self.results / COHORT / config.name).is_dir() for config in self.profile.runs())

    def finished_cohort(self) -> Path:
        """``finished_cohort`` of the profile."""
        return finished_cohort(self.profile, self.results, self.how.plan)


def _place(
    config: RunConfig, directory: Path, source_sha256: str, weights: dict[str, str], how: Execution
) -> Place:
    plan = how.plan
    found = read_own(RUN, directory, lambda manifest: _is_run(manifest, config, plan))
    if found is None or found.status != "complete" or not (directory / SUMS).is_file():
        return Place(config, directory, done=False)
    remedy = "give another --out, or move it away"
    if plan is not None and found.plan_sha256 != plan:
        raise RunDirectoryError(f"{directory} holds this run of another plan: {remedy}")
    made = source_sha256 if plan is None else found.source.sha256
    if (found.source.sha256, found.model_files) != (made, weights):
        raise RunDirectoryError(f"{directory} holds this run of another version of source or model: {remedy}")
    if problem := _damage(directory, how):
        raise RunDirectoryError(f"{directory} is complete but damaged ({problem}): {remedy}")
    return Place(config, directory, done=True)


def _damage(directory: Path, how: Execution) -> str | None:
    """The first problem of a finished run, None where there is none."""
    if how.check is not None and how.plan is None:
        return next(iter(how.check(directory)), None)
    # Hundreds of runs of a plan, at every beginning: what they contradict is for verify.
    return min(sum_problems(directory).keys() - left_out(directory), default=None)


def _is_finished(config: RunConfig, directory: Path, plan: str | None) -> bool:
    """Whether a directory has the manifest of exactly this run, finished under the same plan."""
    found = finished_manifest(directory)
    return found is not None and found.plan_sha256 == (plan or UNSET) and _is_run(found, config, plan)


def _is_run(manifest: Manifest, config: RunConfig, plan: str | None) -> bool:
    """Whether a manifest is that of a run; one of a plan may lack settings that a later version added."""
    if plan is None or manifest.config_sha256 == config.sha256:
        return manifest.config_sha256 == config.sha256
    try:
        return msgspec.convert(manifest.config, RunConfig) == config
    except (msgspec.ValidationError, ConfigError):
        return False


def places(configs: Sequence[RunConfig], out: Path, how: Execution) -> list[Place]:
    """Where each run goes; raises RunDirectoryError, before anything is touched, where it cannot."""
    if out.exists() and not out.is_dir():
        raise RunDirectoryError(f"{out} is no directory: give another --out, or move it away")
    expected = {config.name for config in configs}
    for found in run_directories(out) if out.is_dir() else []:
        if found == out or found.name not in expected:
            raise RunDirectoryError(f"{found} already holds another run: give another --out, or move it away")
    sha256 = source().sha256
    models = {config.model: model_files(config.generation, config.model) for config in configs}
    return [_place(config, out / config.name, sha256, models[config.model], how) for config in configs]


def run_missing(places: Sequence[Place], how: Execution, progress: Progress) -> None:
    """Run every place that is not done, the longest first, or in order where a plan says it; here or on a
    cluster.

    Raises RunFailedError or StoppedError as ``execute`` does. An unfinished directory is never deleted.
    """
    for place in places:
        if place.done:
            groups = place.config.groups
            progress.update(place.config.label, groups, groups)
            if how.plan is None:
                progress.say(f"{place.config.label}: complete and verified, kept")
    todo = [place for place in places if not place.done]
    if how.plan is None:
        todo.sort(key=_length, reverse=True)
    if how.ray is not None:
        from search_to_signal.scheduling.cluster import execute_on_ray

        execute_on_ray(todo, how, progress)
    elif todo:
        execute(todo, how, progress)


def _length(place: Place) -> int:
    """How long a run takes beside others: an update costs about as much as a generation."""
    return place.config.groups * (2 if place.config.trained else 1)


def finished_cohort(profile: Profile, results: Path, plan: str | None = None) -> Path:
    """The cohort's directory, where all its runs are complete; raises RunDirectoryError otherwise.

    Runs of a plan may be of several versions of the source.

    Only manifests are read: a layer checks itself what it takes from a run, and the cohort verified the rest.
    """
    cohort, sha256 = results / COHORT, None if plan is not None else source().sha256
    missing = [
        config.name for config in profile.runs() if not _complete(config, cohort / config.name, sha256, plan)
    ]
    if missing:
        raise RunDirectoryError(
            f"{cohort} lacks {', '.join(missing)}, complete and of this source, for this layer to stand on: "
            "run the cohort first (s2s run ... --layer cohort)"
        )
    return cohort


def _complete(config: RunConfig, directory: Path, source_sha256: str | None, plan: str | None) -> bool:
    if not (directory / SUMS).is_file():
        return False
    found = read_manifest(directory)
    ours = source_sha256 in (None, found.source.sha256)
    return found.status == "complete" and ours and _is_run(found, config, plan)


def unfinished(directory: Path) -> str:
    """The runs below a directory that were begun and not finished, for people; empty when there is none."""
    runs = [run for run in runs_below(directory) if read_manifest(run).status != "complete"]
    return ", ".join(str(run.relative_to(directory)) for run in runs)

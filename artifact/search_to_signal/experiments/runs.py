"""A cohort, or any other list of runs: where each of them goes, and what is already there."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from search_to_signal.errors import RunDirectoryError
from search_to_signal.experiments.configuration import CONFIG, Profile, RunConfig
from search_to_signal.experiments.execution import Execution, Place, execute
from search_to_signal.generators.opening import model_files
from search_to_signal.progress import Progress
from search_to_signal.provenance.checksums import SUMS, write_sums
from search_to_signal.provenance.source import source
from search_to_signal.provenance.verify import verify
from search_to_signal.records.files import TEMPORARY
from search_to_signal.records.manifest import COHORT, MANIFEST, read_manifest, run_directories, write_roster

# What a run that was stopped in its first moments leaves.
_BEFORE_MANIFEST = (CONFIG, f"{MANIFEST}{TEMPORARY}")


def _place(config: RunConfig, directory: Path, source_sha256: str, weights: dict[str, str]) -> Place:
    if not directory.exists():
        return Place(config, directory, done=False)
    other = f"{directory} already holds another run: give another --out, or move it away"
    if directory.is_dir() and all(path.name in _BEFORE_MANIFEST for path in directory.iterdir()):
        return Place(config, directory, done=False)
    if not (directory / MANIFEST).is_file():
        raise RunDirectoryError(other)
    found = read_manifest(directory)
    if found.config_sha256 != config.sha256:
        raise RunDirectoryError(other)
    if found.status != "complete" or not (directory / SUMS).is_file():
        return Place(config, directory, done=False)
    if (found.source.sha256, found.model_files) != (source_sha256, weights):
        raise RunDirectoryError(f"{directory} holds this run of another version of source or model: {other}")
    if problems := verify(directory).problems:
        raise RunDirectoryError(f"{directory} is complete but damaged ({problems[0]}): {other}")
    return Place(config, directory, done=True)


def places(configs: Sequence[RunConfig], out: Path) -> list[Place]:
    """Where each run goes; raises RunDirectoryError, before anything is touched, where it cannot."""
    if out.exists() and not out.is_dir():
        raise RunDirectoryError(f"{out} is no directory: give another --out, or move it away")
    expected = {config.name for config in configs}
    for found in run_directories(out) if out.is_dir() else []:
        if found == out or found.name not in expected:
            raise RunDirectoryError(f"{found} already holds another run: give another --out, or move it away")
    sha256 = source().sha256
    models = {config.model: model_files(config.generation, config.model) for config in configs}
    return [_place(config, out / config.name, sha256, models[config.model]) for config in configs]


def run_all(plan: Mapping[Path, Sequence[RunConfig]], how: Execution, progress: Progress) -> list[Path]:
    """Run what is missing of every directory's runs, all of them in one pool; returns the run directories.

    Complete runs are verified and kept, unfinished ones begin again, or with ``how.resume`` go on. Raises
    RunDirectoryError before anything starts where a directory holds something else.
    """
    todo = [place for out, configs in plan.items() for place in places(configs, out)]
    for out, configs in plan.items():
        write_roster(out, (config.name for config in configs))
    execute(todo, how, progress)
    for out in plan:
        write_sums(out)
    return [place.directory for place in todo]


def finished_cohort(profile: Profile, results: Path) -> Path:
    """The cohort's directory, where all its runs are complete; raises RunDirectoryError otherwise.

    Only manifests are read: a layer checks itself what it takes from a run, and the cohort verified the rest.
    """
    cohort, sha256 = results / COHORT, source().sha256
    missing = [
        config.name for config in profile.runs() if not _complete(config, cohort / config.name, sha256)
    ]
    if missing:
        raise RunDirectoryError(
            f"{cohort} lacks {', '.join(missing)}, complete and of this source, for this layer to stand on: "
            "run the cohort first (s2s run ... --layer cohort)"
        )
    return cohort


def _complete(config: RunConfig, directory: Path, source_sha256: str) -> bool:
    if not (directory / SUMS).is_file():
        return False
    found = read_manifest(directory)
    facts = (found.status, found.config_sha256, found.source.sha256)
    return facts == ("complete", config.sha256, source_sha256)

"""Final adapters of runs that were shipped without them: the runs are executed again, for these alone."""

import shutil
from collections.abc import Collection
from pathlib import Path

from search_to_signal.errors import RunDirectoryError
from search_to_signal.experiments.configuration import ADAPTER, RunConfig
from search_to_signal.experiments.runs.execution import Place
from search_to_signal.experiments.runs.places import Reproduction, run_missing
from search_to_signal.provenance.checksums import read_sums, sha256_file
from search_to_signal.records.manifest import finished_manifest


def lacks_adapter(cohort: Path, name: str) -> bool:
    """Whether a finished, trained run of a cohort lies there without its final adapter."""
    return not (cohort / name / ADAPTER).is_dir()


def make_adapters(asked: Reproduction, cohort: Path, names: Collection[str]) -> None:
    """Put the final adapters of these runs of a finished cohort into place, those that are missing.

    The runs are made beside the results, and an interrupted one goes on when this is called again. Raises
    RunDirectoryError where another adapter comes out, and RunFailedError or StoppedError as ``execute`` does.
    """
    wanted = [config for config in asked.profile.runs() if config.trained and config.name in names]
    lacking = [config for config in wanted if lacks_adapter(cohort, config.name)]
    if not lacking:
        return
    asked.progress.say(f"{len(lacking)} runs lack their final adapters: executed again for them")
    beside = asked.results.with_name(f".{asked.results.name}-adapters")
    for first in range(0, len(lacking), asked.how.jobs):
        together = lacking[first : first + asked.how.jobs]
        run_missing([_place(config, beside) for config in together], asked.how, asked.progress)
        for config in together:
            _put_into_place(beside / config.name, cohort / config.name)
    shutil.rmtree(beside, ignore_errors=True)


def _place(config: RunConfig, beside: Path) -> Place:
    return Place(config, beside / config.name, done=finished_manifest(beside / config.name) is not None)


def _put_into_place(again: Path, run: Path) -> None:
    recorded = {name: digest for name, digest in read_sums(run).items() if Path(name).parent.name == ADAPTER}
    found = {f"{ADAPTER}/{path.name}": sha256_file(path) for path in sorted((again / ADAPTER).iterdir())}
    if found != recorded:
        raise RunDirectoryError(
            f"{run} ends with another adapter when it is executed here, which lies in {again} (s2s rerun "
            "says where they part): go on where the run was recorded, or ship its adapter (s2s pack "
            "--adapters)"
        )
    (again / ADAPTER).rename(run / ADAPTER)
    shutil.rmtree(again)

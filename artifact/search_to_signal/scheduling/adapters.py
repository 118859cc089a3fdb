"""Final adapters of runs that were shipped without them, made again by the runs' recorded updates."""

import shutil
from collections.abc import Collection
from pathlib import Path

from search_to_signal.errors import RunDirectoryError
from search_to_signal.profiles.run_config import ADAPTER
from search_to_signal.provenance.checksums import read_sums, sha256_file
from search_to_signal.scheduling.execution import PlannedRun, execute
from search_to_signal.scheduling.planned_runs import Reproduction


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
        f"{len(lacking)} runs lack their final adapters: trained again on their records"
    )
    scratch = reproduction.results.with_name(f".{reproduction.results.name}-adapters")
    for first in range(0, len(lacking), reproduction.execution.jobs):
        batch = lacking[first : first + reproduction.execution.jobs]
        planned = [
            PlannedRun(config, scratch / config.name, recorded=cohort / config.name) for config in batch
        ]
        execute(planned, reproduction.execution, reproduction.progress)
        for config in batch:
            _move_adapter(scratch / config.name / ADAPTER, cohort / config.name)
    shutil.rmtree(scratch)


def _move_adapter(adapter: Path, run: Path) -> None:
    recorded = {name: digest for name, digest in read_sums(run).items() if Path(name).parent.name == ADAPTER}
    made = {f"{ADAPTER}/{path.name}": sha256_file(path) for path in sorted(adapter.iterdir())}
    if made != recorded:
        raise RunDirectoryError(
            f"{run} lists another adapter than its updates make here, which lies in {adapter}: restore the "
            "run, or ship its adapter (s2s pack --adapters)"
        )
    adapter.rename(run / ADAPTER)

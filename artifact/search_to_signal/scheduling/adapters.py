"""Final adapters of runs that were shipped without them: made again by the runs' recorded updates."""

import shutil
from collections.abc import Collection
from pathlib import Path

from search_to_signal.errors import RunDirectoryError
from search_to_signal.profiles.run_config import ADAPTER
from search_to_signal.provenance.checksums import read_sums, sha256_file
from search_to_signal.scheduling.execution import Place, execute
from search_to_signal.scheduling.run_slots import Reproduction


def make_adapters(asked: Reproduction, cohort: Path, names: Collection[str]) -> None:
    """Put the final adapters of these runs of a finished cohort into place, those that are missing.

    They are made beside the results. Raises RunFailedError where another adapter comes out, RunDirectoryError
    where a run lists another one, and StoppedError as ``execute`` does.
    """
    wanted = [config for config in asked.profile.runs() if config.trained and config.name in names]
    lacking = [config for config in wanted if not (cohort / config.name / ADAPTER).is_dir()]
    if not lacking:
        return
    asked.progress.say(f"{len(lacking)} runs lack their final adapters: trained again on their records")
    beside = asked.results.with_name(f".{asked.results.name}-adapters")
    for first in range(0, len(lacking), asked.how.jobs):
        together = lacking[first : first + asked.how.jobs]
        places = [Place(config, beside / config.name, recorded=cohort / config.name) for config in together]
        execute(places, asked.how, asked.progress)
        for config in together:
            _put_into_place(beside / config.name / ADAPTER, cohort / config.name)
    shutil.rmtree(beside)


def _put_into_place(adapter: Path, run: Path) -> None:
    recorded = {name: digest for name, digest in read_sums(run).items() if Path(name).parent.name == ADAPTER}
    found = {f"{ADAPTER}/{path.name}": sha256_file(path) for path in sorted(adapter.iterdir())}
    if found != recorded:
        raise RunDirectoryError(
            f"{run} lists another adapter than its updates make here, which lies in {adapter}: restore the "
            "run, or ship its adapter (s2s pack --adapters)"
        )
    adapter.rename(run / ADAPTER)

"""Evidence layer "frozen restart": a final adapter with a new population, without updates.

Paper, attribution protocol: an advantage of such a run over the Frozen run of its seed comes from the
checkpoint and not from a population. The restart of the initial model is that Frozen run itself. Where the
profile asks for it (``archive_conditions``), the last archive of a run is the other factor: with the initial
model and with the final adapter, in subdirectories of the layer (D45).
"""

from pathlib import Path

import msgspec

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.base.progress import Task
from search_to_signal.layers.settings import RestartSettings
from search_to_signal.records.checksums import sha256_file, write_sums
from search_to_signal.records.layers import COHORT, FINAL_ARCHIVE, INITIAL_ARCHIVE, RESTART
from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.reader import COMPLETIONS
from search_to_signal.records.schema import population_sha256
from search_to_signal.run.config import ParentRun, RunConfig
from search_to_signal.run.execution import PlannedRun
from search_to_signal.run.planned_runs import LOADING, Reproduction, make_adapters, run_missing
from search_to_signal.run.profile import Profile
from search_to_signal.run.replayed import final_population


def restarts(profile: Profile, settings: RestartSettings, cohort: Path) -> list[RunConfig]:
    """Return the restarts of the chosen runs of a finished cohort.

    Raises RunDirectoryError for a run without a final adapter.
    """
    chosen = profile.conditions if settings.conditions is None else settings.conditions
    found = []
    for config in profile.runs():
        if config.trained and config.condition in chosen:
            adapter = read_manifest(cohort / config.name).final_adapter_sha256
            if adapter is None:
                raise RunDirectoryError(
                    f"the manifest of {config.label} names no final adapter: run the cohort again"
                )
            completions = sha256_file(cohort / config.name / COMPLETIONS)
            start = ParentRun(
                run=f"../../{COHORT}/{config.name}", adapter_sha256=adapter, completions_sha256=completions
            )
            groups = settings.groups or profile.groups
            found.append(msgspec.structs.replace(config, layer=RESTART, groups=groups, parent=start))
    return found


def archive_restarts(profile: Profile, settings: RestartSettings, cohort: Path) -> dict[str, list[RunConfig]]:
    """Return the restarts with an archive of a finished cohort, by directory; empty without conditions."""
    by_directory: dict[str, list[RunConfig]] = {}
    chosen = msgspec.structs.replace(settings, conditions=settings.archive_conditions)
    for config in restarts(profile, chosen, cohort):
        assert config.parent is not None
        archive = population_sha256(final_population(cohort / config.name, config.search))
        start = msgspec.structs.replace(config.parent, run=f"../{config.parent.run}", archive_sha256=archive)
        initial = msgspec.structs.replace(start, adapter_sha256=None)
        for where, parent in ((INITIAL_ARCHIVE, initial), (FINAL_ARCHIVE, start)):
            by_directory.setdefault(where, []).append(msgspec.structs.replace(config, parent=parent))
    return by_directory


def tasks(profile: Profile) -> list[Task]:
    settings = profile.restart or RestartSettings()
    chosen, archives = settings.conditions or profile.conditions, settings.archive_conditions
    starts = {"": chosen, f"{INITIAL_ARCHIVE}/": archives, f"{FINAL_ARCHIVE}/": archives}
    return [
        Task(f"restart/{where}{run.name}", settings.groups or profile.groups, setup=LOADING, is_run=True)
        for where, conditions in starts.items()
        for run in profile.runs()
        if run.trained and run.condition in conditions
    ]


def run(reproduction: Reproduction) -> None:
    """Run the restarts of a profile; raises RunDirectoryError when the cohort is not finished.

    As many seeds are executed at a time as there are jobs, so that finished runs stay balanced: first the
    missing final adapters of these seeds, then their restarts.
    """
    profile, out = reproduction.profile, reproduction.results / RESTART
    cohort = reproduction.finished_cohort()
    settings = profile.restart or RestartSettings()
    plan = {out: restarts(profile, settings, cohort)}
    plan |= {out / where: runs for where, runs in archive_restarts(profile, settings, cohort).items()}
    planned = reproduction.begin(plan)
    for first in range(0, len(profile.seeds), reproduction.execution.jobs):
        seeds = profile.seeds[first : first + reproduction.execution.jobs]
        batch = [cell for cell in planned if cell.config.seed in seeds]
        make_adapters(reproduction, cohort, {cell.config.name for cell in batch if _needs_adapter(cell)})
        run_missing(batch, reproduction.execution, reproduction.progress)
    # The list of the layer includes the lists of its subdirectories, so it is written last.
    for directory in reversed(plan):
        write_sums(directory)


def _needs_adapter(cell: PlannedRun) -> bool:
    parent = cell.config.parent
    return not cell.done and parent is not None and parent.adapter_sha256 is not None

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
from search_to_signal.records.manifest import Manifest, read_manifest
from search_to_signal.records.reader import COMPLETIONS
from search_to_signal.records.schema import population_sha256
from search_to_signal.run.config import ParentRun, RunConfig
from search_to_signal.run.execution import PlannedRun
from search_to_signal.run.planned_runs import LOADING, Reproduction, make_adapters, run_missing
from search_to_signal.run.profile import Profile
from search_to_signal.run.recorded import final_population


def restart_of(config: RunConfig, parent: Manifest, completions_sha256: str, groups: int) -> RunConfig:
    """Return the restart of a trained run; raises RunDirectoryError where it has no final adapter."""
    if parent.final_adapter_sha256 is None:
        raise RunDirectoryError(
            f"the manifest of {config.label} names no final adapter: run the cohort again"
        )
    start = ParentRun(
        run=f"../../{COHORT}/{config.name}",
        adapter_sha256=parent.final_adapter_sha256,
        completions_sha256=completions_sha256,
    )
    return msgspec.structs.replace(config, layer=RESTART, groups=groups, parent=start)


def with_archive(restart: RunConfig, archive_sha256: str) -> dict[str, RunConfig]:
    """Return the two restarts that start with the parent's last archive, by their directory."""
    assert restart.parent is not None
    start = msgspec.structs.replace(
        restart.parent, run=f"../{restart.parent.run}", archive_sha256=archive_sha256
    )
    initial = msgspec.structs.replace(start, adapter_sha256=None)
    starts = {INITIAL_ARCHIVE: initial, FINAL_ARCHIVE: start}
    return {where: msgspec.structs.replace(restart, parent=parent) for where, parent in starts.items()}


def restarts(profile: Profile, settings: RestartSettings, cohort: Path) -> list[RunConfig]:
    """Return the restarts of the chosen runs of a finished cohort."""
    chosen = profile.conditions if settings.conditions is None else settings.conditions
    groups = settings.groups or profile.groups
    return [
        restart_of(config, read_manifest(directory), sha256_file(directory / COMPLETIONS), groups)
        for config in profile.runs()
        for directory in [cohort / config.name]
        if config.trained and config.condition in chosen
    ]


def archive_restarts(profile: Profile, settings: RestartSettings, cohort: Path) -> dict[str, list[RunConfig]]:
    """Return the restarts with an archive of a finished cohort, by directory; empty without conditions."""
    by_directory: dict[str, list[RunConfig]] = {}
    chosen = msgspec.structs.replace(settings, conditions=settings.archive_conditions)
    for config in restarts(profile, chosen, cohort):
        archive = population_sha256(final_population(cohort / config.name, config.search))
        for where, restart in with_archive(config, archive).items():
            by_directory.setdefault(where, []).append(restart)
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

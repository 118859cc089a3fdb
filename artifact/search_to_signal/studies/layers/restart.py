"""Evidence layer "frozen restart": a final adapter in a fresh population, and not one update.

Paper, attribution protocol: what such a run does better than the Frozen run of its seed came with the
checkpoint and not with a population. The restart of the initial model is that Frozen run itself. Where the
profile asks for it (``archive_conditions``), the last archive of a run is the other factor: with the initial
model and with the final adapter, in directories of their own within the layer's (D45).
"""

from pathlib import Path

import msgspec

from search_to_signal.errors import RunDirectoryError
from search_to_signal.loop.recorded import final_population
from search_to_signal.profiles.layer_settings import RestartSettings
from search_to_signal.profiles.profile import Profile
from search_to_signal.profiles.run_config import Parent, RunConfig
from search_to_signal.provenance.checksums import sha256_file, write_sums
from search_to_signal.records.layers import COHORT, FINAL_ARCHIVE, INITIAL_ARCHIVE, RESTART
from search_to_signal.records.manifest import Manifest, read_manifest
from search_to_signal.records.population import population_sha256
from search_to_signal.records.reader import COMPLETIONS
from search_to_signal.scheduling.adapters import make_adapters
from search_to_signal.scheduling.execution import Place
from search_to_signal.scheduling.run_slots import Reproduction, run_missing


def restart_of(config: RunConfig, parent: Manifest, completions_sha256: str, groups: int) -> RunConfig:
    """The restart of a trained run; raises RunDirectoryError when its manifest knows no final adapter."""
    if parent.final_adapter_sha256 is None:
        raise RunDirectoryError(
            f"the manifest of {config.label} names no final adapter: run the cohort again"
        )
    start = Parent(
        run=f"../../{COHORT}/{config.name}",
        adapter_sha256=parent.final_adapter_sha256,
        completions_sha256=completions_sha256,
    )
    return msgspec.structs.replace(config, layer=RESTART, groups=groups, parent=start)


def with_archive(restart: RunConfig, archive_sha256: str) -> dict[str, RunConfig]:
    """The two restarts that begin with the parent's last archive, by the directory of each."""
    assert restart.parent is not None
    start = msgspec.structs.replace(
        restart.parent, run=f"../{restart.parent.run}", archive_sha256=archive_sha256
    )
    initial = msgspec.structs.replace(start, adapter_sha256=None)
    starts = {INITIAL_ARCHIVE: initial, FINAL_ARCHIVE: start}
    return {where: msgspec.structs.replace(restart, parent=parent) for where, parent in starts.items()}


def restarts(profile: Profile, settings: RestartSettings, cohort: Path) -> list[RunConfig]:
    """A restart of every chosen run of a finished cohort."""
    chosen = profile.conditions if settings.conditions is None else settings.conditions
    groups = settings.groups or profile.groups
    return [
        restart_of(config, read_manifest(directory), sha256_file(directory / COMPLETIONS), groups)
        for config in profile.runs()
        for directory in [cohort / config.name]
        if config.trained and config.condition in chosen
    ]


def archive_restarts(profile: Profile, settings: RestartSettings, cohort: Path) -> dict[str, list[RunConfig]]:
    """The restarts with an archive of a finished cohort, by directory; empty where none are asked for."""
    found: dict[str, list[RunConfig]] = {}
    chosen = msgspec.structs.replace(settings, conditions=settings.archive_conditions)
    for config in restarts(profile, chosen, cohort):
        archive = population_sha256(final_population(cohort / config.name, config.search))
        for where, restart in with_archive(config, archive).items():
            found.setdefault(where, []).append(restart)
    return found


def run(asked: Reproduction) -> None:
    """Run the restarts of a profile; raises RunDirectoryError when the cohort is not finished.

    As many seeds at a time as runs go side by side, so that what is finished is balanced: first the final
    adapters that are missing, then the restarts.
    """
    profile, out, cohort = asked.profile, asked.results / RESTART, asked.finished_cohort()
    settings = profile.restart or RestartSettings()
    plan = {out: restarts(profile, settings, cohort)}
    plan |= {out / where: runs for where, runs in archive_restarts(profile, settings, cohort).items()}
    todo = asked.begin(plan)
    for first in range(0, len(profile.seeds), asked.how.jobs):
        seeds = profile.seeds[first : first + asked.how.jobs]
        together = [place for place in todo if place.config.seed in seeds]
        make_adapters(asked, cohort, {place.config.name for place in together if _needs_adapter(place)})
        run_missing(together, asked.how, asked.progress)
    # The layer's own list comes last: it holds the archives' lists, too.
    for directory in reversed(plan):
        write_sums(directory)


def _needs_adapter(place: Place) -> bool:
    """Whether a restart is still to begin with a final adapter."""
    parent = place.config.parent
    return not place.done and parent is not None and parent.adapter_sha256 is not None

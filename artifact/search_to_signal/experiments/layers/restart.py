"""Evidence layer "frozen restart": a final adapter in a fresh population, and not one update.

Paper, attribution protocol: what such a run does better than the Frozen run of its seed came with the
checkpoint and not with a population. The restart of the initial model is that Frozen run itself.
"""

from pathlib import Path

import msgspec

from search_to_signal.errors import RunDirectoryError
from search_to_signal.experiments.configuration import Parent, Profile, RunConfig
from search_to_signal.experiments.layers.settings import RestartSettings
from search_to_signal.experiments.runs import Reproduction
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.layers import COHORT, RESTART
from search_to_signal.records.manifest import Manifest, read_manifest
from search_to_signal.records.reader import COMPLETIONS


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
    return msgspec.structs.replace(config, layer="restart", groups=groups, parent=start)


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


def run(asked: Reproduction) -> None:
    """Run the restarts of a profile; raises RunDirectoryError when the cohort is not finished."""
    settings = asked.profile.restart or RestartSettings()
    runs = restarts(asked.profile, settings, asked.finished_cohort())
    asked.run_all({asked.results / RESTART: runs})

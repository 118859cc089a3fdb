"""The runs of a results directory, read back from their records."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from search_to_signal.analysis.metrics import RunMetrics, group_trajectory, run_metrics
from search_to_signal.errors import RunDirectoryError
from search_to_signal.numerics import Floats
from search_to_signal.records.manifest import Manifest, read_manifest, run_directories
from search_to_signal.records.reader import read_groups
from search_to_signal.records.schema import CompletionRecord


@dataclass(frozen=True)
class RecordedRun:
    """One complete run with its groups in order."""

    directory: Path
    manifest: Manifest
    groups: tuple[tuple[CompletionRecord, ...], ...]

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return self.manifest.config

    @property
    def condition(self) -> str:
        """``frozen`` or the name of the reward mapping."""
        return str(self.config["condition"])

    @property
    def seed(self) -> int:
        """The run seed, the statistical unit."""
        return int(self.config["seed"])

    @cached_property
    def metrics(self) -> RunMetrics:
        """The run's metrics."""
        return run_metrics(self.groups)

    @cached_property
    def best(self) -> Floats:
        """(T,) best-so-far after each group, the seed heuristic included (D19)."""
        return group_trajectory(self.groups)


def load_runs(directory: Path) -> list[RecordedRun]:
    """The complete runs at or directly below a directory, by condition and seed.

    Raises RunDirectoryError when there is none, when one is unfinished, or when they do not share one
    protocol: a table over a part of a cohort would look complete.
    """
    places = run_directories(directory)
    manifests = [read_manifest(path) for path in places]
    if not places:
        raise RunDirectoryError(f"{directory} holds no run: give the directory of a run or of a cohort")
    for path, manifest in zip(places, manifests, strict=True):
        if manifest.status != "complete":
            raise RunDirectoryError(f"{path} is unfinished: finish or remove it, then report again")
    protocols = {_protocol(manifest) for manifest in manifests}
    if len(protocols) != 1:
        raise RunDirectoryError(
            f"{directory} mixes runs of {len(protocols)} protocols: report each in a directory of its own"
        )
    runs = [
        RecordedRun(path, manifest, tuple(read_groups(path)))
        for path, manifest in zip(places, manifests, strict=True)
    ]
    return sorted(runs, key=lambda run: (run.condition != "frozen", run.condition, run.seed))


def _protocol(manifest: Manifest) -> str:
    shared = {k: v for k, v in manifest.config.items() if k not in ("condition", "seed")}
    return repr((sorted(shared.items()), manifest.source.sha256, sorted(manifest.model_files.items())))

"""A results directory as its evidence layers, each read once and only when asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from search_to_signal.analysis.protocols import OWN, load_runs, require_layer
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import NoTableError
from search_to_signal.errors import RunDirectoryError
from search_to_signal.records.anchor import AnchorContract, read_contract
from search_to_signal.records.files import refuse_special_files
from search_to_signal.records.manifest import (
    ANCHOR,
    API,
    AUDIT,
    BREADTH,
    COHORT,
    RESTART,
    read_manifest,
    run_directories,
    runs_below,
)

Runs = tuple[RecordedRun, ...]


@dataclass(frozen=True)
class Results:
    """A results directory. A layer that has not run raises NoTableError, a damaged one RunDirectoryError."""

    directory: Path

    def __post_init__(self) -> None:
        """Refuse what verifying refuses, so that what is pooled is what was verified; RunDirectoryError."""
        refuse_special_files(self.directory)

    @cached_property
    def cohort(self) -> Runs:
        """The live cohort; a directory without layers is taken for a cohort, or a run, itself."""
        if (self.directory / COHORT).is_dir():
            return self._runs(COHORT)
        return tuple(load_runs(self.directory))

    @cached_property
    def restart(self) -> Runs:
        """Runs that start from a final adapter with a fresh population."""
        return self._runs(RESTART, (*OWN, "parent"))

    @cached_property
    def breadth(self) -> dict[str, Runs]:
        """Single-seed cohorts by cell (problem-model); every cell is a protocol of its own."""
        return self._cells(BREADTH)

    @cached_property
    def audit_cells(self) -> dict[str, Runs]:
        """Frozen runs recorded for the shared-record audit alone, by cell (problem-model)."""
        return self._cells(AUDIT)

    @cached_property
    def anchor(self) -> Runs:
        """Frozen runs long enough for every group budget of the contract; lengths may differ by seed."""
        return self._runs(ANCHOR, (*OWN, "groups"))

    @cached_property
    def contract(self) -> AnchorContract:
        """The anchor's budgets; raises ContractError where they are missing or altered."""
        return read_contract(self.folder(ANCHOR))

    @cached_property
    def api(self) -> Runs:
        """Frozen runs through an OpenAI-compatible endpoint."""
        return self._runs(API)

    @cached_property
    def smoke(self) -> bool:
        """Whether the runs were made for a smoke test: then no table is formal.

        Raises RunDirectoryError naming smoke runs that lie beside formal ones.
        """
        places = runs_below(self.directory)
        smoke = [p.name for p in places if read_manifest(p).config["purpose"] != "formal"]
        if smoke and len(smoke) < len(places):
            raise RunDirectoryError(
                f"{self.directory} holds smoke runs beside formal ones ({', '.join(smoke)}): "
                "no formal table may include them; move them away"
            )
        return bool(smoke)

    def folder(self, layer: str) -> Path:
        """The directory of a layer; raises NoTableError where it has not run."""
        path = self.directory / layer
        if not path.is_dir():
            raise NoTableError(f"layer {layer} has not run")
        return path

    def _cells(self, layer: str) -> dict[str, Runs]:
        cells = sorted(path for path in (self.directory / layer).glob("*") if run_directories(path))
        if not cells:
            raise NoTableError(f"layer {layer} has not run")
        return {path.name: self._runs(f"{layer}/{path.name}") for path in cells}

    def _runs(self, path: str, own: Sequence[str] = OWN) -> Runs:
        folder = self.folder(path)
        if not run_directories(folder):
            raise NoTableError(f"layer {path} has not run")
        runs = tuple(load_runs(folder, self.directory, own))
        require_layer(runs, path.split("/")[0])
        return runs

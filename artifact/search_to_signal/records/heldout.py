"""What final heuristics score on instances that no search has seen, and tours of them."""

from pathlib import Path
from typing import Literal

import msgspec

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.records.files import read_json, write_atomically, write_json
from search_to_signal.records.manifest import Environment, Source
from search_to_signal.records.reader import HEURISTICS, read_records
from search_to_signal.records.schema import HeuristicRecord, Outcome

HELDOUT_MANIFEST = "heldout.json"
SCORES = "scores.jsonl"
BEHAVIOURS = "behaviours.jsonl"


def final_heuristic(run: Path) -> HeuristicRecord:
    """The best heuristic that the run of a directory found, the first of equal ones."""
    return max(read_records(run / HEURISTICS, HeuristicRecord), key=lambda heuristic: heuristic.score)


class HeldoutRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The final best heuristic of a run on the instances of one split.

    ``run`` is the run's path below the results directory, ``heuristic`` the id of its first best one.
    ``scores`` are per instance (higher is better), none for a heuristic that failed there.
    """

    run: str
    split: str
    heuristic: str
    outcome: Outcome
    detail: str
    scores: tuple[float, ...]


class ProgramScores(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A program on the instances of one split, whoever found it.

    ``code_sha256`` is of its text: with another Python the canonical form has another. ``scores`` are per
    instance (higher is better), none for a program that failed there. ``timeout_s`` is the processor time
    that it had for all of them.
    """

    code_sha256: str
    split: str
    outcome: Outcome
    detail: str
    scores: tuple[float, ...]
    timeout_s: float


class BehaviourRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One program of the runs on the behaviour set.

    ``behaviour_sha256`` is of its scores on every instance, exactly: programs of equal hash answered the set
    alike as far as their scores can tell. None for a program that failed there.
    """

    program_sha256: str
    outcome: Outcome
    behaviour_sha256: str | None


class HeldoutManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A held-out evaluation of a cohort. ``runs`` are the SHA-256 of the completions that it read.

    ``instances`` is the number of instances of each split, the first ones; None for all of them.
    """

    status: Literal["running", "complete"]
    purpose: Literal["formal", "smoke"]
    problem: str
    splits: tuple[str, ...]
    instances: int | None
    behaviour_split: str
    behaviour_instances: int | None
    timeout_s: float
    runs: dict[str, str]
    files: dict[str, str]
    source: Source
    environment: Environment
    isolation: dict[str, str | bool]


def write_heldout(directory: Path, manifest: HeldoutManifest) -> None:
    write_json(directory / HELDOUT_MANIFEST, manifest)


def read_heldout(directory: Path) -> HeldoutManifest:
    """Read the manifest; raises RunDirectoryError when it is missing, unreadable or of an unfinished run."""
    manifest = stored_heldout(directory)
    if manifest.status != "complete":
        raise RunDirectoryError(f"{directory} is unfinished: remove it and evaluate again")
    return manifest


def stored_heldout(directory: Path) -> HeldoutManifest:
    """Read the manifest, finished or not; raises RunDirectoryError when it is missing or unreadable."""
    missing = f"{directory} has no {HELDOUT_MANIFEST}: no held-out evaluation is there"
    return read_json(directory / HELDOUT_MANIFEST, HeldoutManifest, missing)


TOURS = "tours.json"


class Tour(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The visiting order of all nodes, node 0 first, by one heuristic, and its score; higher is better."""

    heuristic: str
    order: tuple[int, ...]
    score: float


class Tours(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An instance of a split, (x, y) of its nodes in the unit square, and two tours; ``run`` has the best."""

    problem: str
    split: str
    instance: int
    run: str
    coordinates: tuple[tuple[float, float], ...]
    seed: Tour
    best: Tour


def write_tours(results: Path, tours: Tours) -> None:
    write_atomically(results / TOURS, msgspec.json.encode(tours, order="sorted") + b"\n")


def read_tours(results: Path) -> Tours:
    """Read the record; raises RunDirectoryError where it is missing or unreadable."""
    return read_json(results / TOURS, Tours, f"{results} has no {TOURS}")

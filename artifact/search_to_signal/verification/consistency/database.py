"""The program database of a run against its heuristics and its last step."""

from collections.abc import Iterator
from pathlib import Path

from search_to_signal.records.database import DATABASE, read_database
from search_to_signal.records.manifest import Manifest
from search_to_signal.records.reader import HEURISTICS, STEPS, read_records
from search_to_signal.records.schema import HeuristicRecord, StepRecord


def database_problems(directory: Path, manifest: Manifest) -> Iterator[str]:
    """What a database contradicts; who is on which island is asked of the host, by recomputing."""
    held = manifest.of_host.database
    if held in (None, "none") and not (directory / DATABASE).exists():
        return
    if held == "none":
        yield f"{DATABASE}: the run's host has no database"
        return
    found = read_database(directory)
    scores = {h.id: h.score for h in read_records(directory / HEURISTICS, HeuristicRecord)}
    ids = {identity for island in found.islands for identity in island}
    ids |= {identity for _, identity in found.waiting}
    if unknown := sorted(ids - set(scores)):
        yield f"{DATABASE}: program {unknown[0]} is no heuristic of this run"
        return
    (*_, last) = read_records(directory / STEPS, StepRecord)
    told: tuple[object, ...] = (len(ids), max((scores[identity] for identity in ids), default=None))
    is_archive = told == (last.archive_size, last.frontier_after)
    if found.groups != last.step + 1 or (held == "archive" and not is_archive):
        yield f"{DATABASE}: it is not the database after the last step"

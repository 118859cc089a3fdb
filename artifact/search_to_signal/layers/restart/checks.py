"""Restarts, compared with the runs that they began from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.manifest import read_manifest, runs_below
from search_to_signal.records.reader import COMPLETIONS, HEURISTICS, STEPS, read_records
from search_to_signal.records.schema import HeuristicRecord, StepRecord, given
from search_to_signal.run.texts import ParsedTexts


def problems(directory: Path, parsed: ParsedTexts) -> Iterator[str]:
    """Yield contradictions of restarts with their parents; raises S2SError for a file that cannot be read."""
    for run in runs_below(directory):
        parent = read_manifest(run).config.get("parent")
        # A run that is verified by itself has its parent outside of the directory.
        live_run = (run / parent["run"]).resolve() if parent else directory
        if parent and live_run.is_relative_to(directory.resolve()):
            missing = ["the run that it restarts is missing"]
            found = _restart_problems(run, parent, live_run) if live_run.is_dir() else missing
            yield from (f"{run.name}: {problem}" for problem in found)


def _restart_problems(run: Path, parent: dict[str, Any], live_run: Path) -> Iterator[str]:
    manifest, live = read_manifest(run), read_manifest(live_run)
    recorded = {manifest.initial_adapter_sha256, live.final_adapter_sha256, parent.get("adapter_sha256")}
    initial = parent.get("adapter_sha256") is None and manifest.initial_adapter_sha256 is None
    if len(recorded) != 1 and not (initial and parent.get("archive_sha256")):
        yield f"it did not begin with the final adapter of {live_run.name}"
    # A given first archive holds heuristics of the run's parent alone (D45).
    population = given(read_records(run / HEURISTICS, HeuristicRecord))
    known = {_content(record) for record in read_records(live_run / HEURISTICS, HeuristicRecord)}
    if any(_content(record) not in known for record in population):
        yield f"it was given a heuristic that {live_run.name} does not hold"
    if sha256_file(live_run / COMPLETIONS) != parent.get("completions_sha256"):
        yield f"{live_run.name} has other completions than when it was restarted"
    if any(s.training_tokens or s.adapter_sha256 for s in read_records(run / STEPS, StepRecord)):
        yield "a restart was trained"


def _content(record: HeuristicRecord) -> tuple[Any, ...]:
    return record.id, record.operator, record.idea, record.code, record.score

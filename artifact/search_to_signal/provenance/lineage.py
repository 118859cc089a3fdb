"""Do the layers of a results directory stand on each other as they say? Each line names what does not."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from search_to_signal.errors import S2SError
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.anchor import read_contract
from search_to_signal.records.manifest import (
    ANCHOR,
    COHORT,
    PROBE,
    read_manifest,
    run_directories,
    runs_below,
)
from search_to_signal.records.probe import BANK, PROBE_MANIFEST, ProbeRecord, read_probe
from search_to_signal.records.reader import COMPLETIONS, STEPS, TIMINGS, read_records
from search_to_signal.records.schema import StepRecord


def _restart_problems(run: Path, parent: dict[str, Any], found: Path) -> Iterator[str]:
    manifest, live = read_manifest(run), read_manifest(found)
    recorded = {manifest.initial_adapter_sha256, live.final_adapter_sha256, parent.get("adapter_sha256")}
    if len(recorded) != 1:
        yield f"it did not begin with the final adapter of {found.name}"
    if sha256_file(found / COMPLETIONS) != parent.get("completions_sha256"):
        yield f"{found.name} has other completions than when it was restarted"
    if any(s.training_tokens or s.adapter_sha256 for s in read_records(run / STEPS, StepRecord)):
        yield "a restart was trained"


def _restarts(directory: Path) -> Iterator[str]:
    for run in runs_below(directory):
        parent = read_manifest(run).config.get("parent")
        # A run that is checked by itself has its parent elsewhere, and nothing to say of it.
        found = (run / parent["run"]).resolve() if parent else directory
        if parent and found.is_relative_to(directory.resolve()):
            problems = _restart_problems(run, parent, found) if found.is_dir() else ["its parent is missing"]
            yield from (f"restart {run.name}: {problem}" for problem in problems)


def _anchor(directory: Path) -> Iterator[str]:
    runs = run_directories(directory / ANCHOR)
    if not runs:
        return
    contract = read_contract(directory / ANCHOR)
    for name, sha256 in contract.timings_sha256.items():
        if sha256_file(directory / COHORT / name / TIMINGS) != sha256:
            yield f"anchor: the contract follows from other timings than those of {name}"
    for run in runs:
        config = read_manifest(run).config
        if contract.run_groups.get(str(config["seed"])) != config["groups"]:
            yield f"anchor {run.name}: {config['groups']} groups are not what the contract says"


def _probe(directory: Path) -> Iterator[str]:
    folder = directory / PROBE
    if not (folder / PROBE_MANIFEST).is_file():
        return
    manifest = read_probe(folder)
    if manifest.status != "complete":
        yield "probe: it is not complete"
    if sha256_file(folder / BANK) != manifest.bank_sha256:
        yield f"probe: {BANK} is not the recorded one"
    due = [(p, i) for p in range(manifest.prompts) for i in range(manifest.completions)]
    for checkpoint in manifest.checkpoints:
        file = folder / f"{checkpoint.name}.jsonl"
        answers = list(read_records(file, ProbeRecord))
        if checkpoint.bank_sha256 != manifest.bank_sha256:
            yield f"probe {checkpoint.name}: it answered another bank"
        if sha256_file(file) != checkpoint.records_sha256:
            yield f"probe {checkpoint.name}: its records are not the recorded ones"
        if [(answer.prompt, answer.position) for answer in answers] != due:
            yield f"probe {checkpoint.name}: it does not answer every prompt {manifest.completions} times"


def lineage_problems(directory: Path) -> list[str]:
    """Contradictions between the layers of a results directory, one line each."""
    try:
        return list(chain(_restarts(directory), _anchor(directory), _probe(directory)))
    except (S2SError, OSError) as error:
        return [str(error)]

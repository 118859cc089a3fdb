"""The lineage of evidence layers: restarts, anchor, probe, held-out evaluation, updates, and their runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from search_to_signal.provenance.adapters import ADAPTER, CONFIG
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.anchor import budget, loop_seconds, read_contract, run_groups
from search_to_signal.records.conditions import FROZEN, run_name
from search_to_signal.records.files import files_named, read_regular
from search_to_signal.records.layers import ANCHOR, COHORT, PROBE
from search_to_signal.records.manifest import (
    INTERRUPTED,
    ROSTER,
    read_manifest,
    read_roster,
    run_directories,
    runs_below,
)
from search_to_signal.records.population import given
from search_to_signal.records.probe import BANK, PROBE_MANIFEST, read_probe
from search_to_signal.records.reader import COMPLETIONS, HEURISTICS, STEPS, TIMINGS, read_records
from search_to_signal.records.schema import HeuristicRecord, StepRecord
from search_to_signal.verification.consistency.completion_texts import ParsedTexts
from search_to_signal.verification.consistency.heldout import heldout_problems
from search_to_signal.verification.consistency.probe import probe_problems
from search_to_signal.verification.consistency.updates import update_problems
from search_to_signal.verification.findings import Finding, findings_of


def lineage_findings(directory: Path, parsed: ParsedTexts) -> list[Finding]:
    """Return the contradictions between the layers of a results directory.

    An unreadable file is a finding, and ends the checks of its layer.
    """
    layers = (
        ("", _shared_facts(directory)),
        ("", _rosters(directory)),
        ("", _restarts(directory)),
        ("", _anchor(directory)),
        ("probe", _probe(directory, parsed)),
        ("heldout", heldout_problems(directory)),
        ("updates", update_problems(directory)),
    )
    return [finding for where, problems in layers for finding in findings_of(where, problems, "a manifest")]


def _restart_problems(run: Path, parent: dict[str, Any], live_run: Path) -> Iterator[str]:
    manifest, live = read_manifest(run), read_manifest(live_run)
    recorded = {manifest.initial_adapter_sha256, live.final_adapter_sha256, parent.get("adapter_sha256")}
    initial = parent.get("adapter_sha256") is None and manifest.initial_adapter_sha256 is None
    if len(recorded) != 1 and not (initial and parent.get("archive_sha256")):
        yield f"it did not begin with the final adapter of {live_run.name}"
    yield from _population_problems(run, live_run)
    if sha256_file(live_run / COMPLETIONS) != parent.get("completions_sha256"):
        yield f"{live_run.name} has other completions than when it was restarted"
    if any(s.training_tokens or s.adapter_sha256 for s in read_records(run / STEPS, StepRecord)):
        yield "a restart was trained"


def _population_problems(run: Path, parent: Path) -> Iterator[str]:
    """Whether a given first archive holds heuristics of the run's parent alone (D45)."""
    population = given(read_records(run / HEURISTICS, HeuristicRecord))
    known = {_content(record) for record in read_records(parent / HEURISTICS, HeuristicRecord)}
    if any(_content(record) not in known for record in population):
        yield f"it was given a heuristic that {parent.name} does not hold"


def _content(record: HeuristicRecord) -> tuple[Any, ...]:
    return record.id, record.operator, record.idea, record.code, record.score


def _restarts(directory: Path) -> Iterator[str]:
    for run in runs_below(directory):
        parent = read_manifest(run).config.get("parent")
        # A run that is verified by itself has its parent outside of the directory.
        live_run = (run / parent["run"]).resolve() if parent else directory
        if parent and live_run.is_relative_to(directory.resolve()):
            missing = ["its parent is missing"]
            problems = _restart_problems(run, parent, live_run) if live_run.is_dir() else missing
            yield from (f"restart {run.name}: {problem}" for problem in problems)


def _anchor(directory: Path) -> Iterator[str]:
    runs = run_directories(directory / ANCHOR)
    if not runs:
        return
    contract = read_contract(directory / ANCHOR)
    for name, sha256 in contract.timings_sha256.items():
        if sha256_file(directory / COHORT / name / TIMINGS) != sha256:
            yield f"anchor: the contract follows from other timings than those of {name}"
    for recorded in contract.budgets:
        condition, seed = recorded.condition, recorded.seed
        online, frozen = (
            loop_seconds(directory / COHORT / run_name(name, seed), contract.clock)
            for name in (condition, FROZEN)
        )
        if recorded != budget(seed, condition, online, frozen):
            yield f"anchor: the budget of {condition}, seed {seed}, does not follow from timings"
    if contract.run_groups != run_groups(contract.budgets, contract.margin):
        yield "anchor: run_groups do not follow from the budgets"
    for run in runs:
        facts = read_manifest(run).facts
        if contract.run_groups.get(str(facts.seed)) != facts.groups:
            yield f"anchor {run.name}: {facts.groups} groups are not what the contract says"


def _probe(directory: Path, parsed: ParsedTexts) -> Iterator[str]:
    folder = directory / PROBE
    if not (folder / PROBE_MANIFEST).is_file():
        return
    manifest = read_probe(folder)
    if manifest.status != "complete":
        yield "it is not complete"
    if sha256_file(folder / BANK) != manifest.bank_sha256:
        yield f"{BANK} is not the recorded one"
    yield from probe_problems(directory, manifest, parsed)


def _shared_facts(directory: Path) -> Iterator[str]:
    """Facts that runs of a results directory have to share, and the folder of each run's layer."""
    shared: dict[str, set[str]] = {"purpose": set(), "source": set()}
    models: dict[str, dict[str, str]] = {}
    initial: dict[str, str | None] = {}
    configs: dict[str, bytes] = {}
    for run in runs_below(directory):
        manifest = read_manifest(run)
        facts, parts = manifest.facts, run.relative_to(directory).parts
        learner = manifest.config.get("learner")
        shared["purpose"].add(facts.purpose)
        shared["source"].add(manifest.made_by)
        if parts and (directory / COHORT).is_dir() and facts.layer != parts[0]:
            yield f"{run.name} is of layer {facts.layer} and lies in {parts[0]}"
        if manifest.model_files and models.setdefault(facts.model, manifest.model_files) != (
            manifest.model_files
        ):
            yield f"{run.name} has other files of model {facts.model} than another run"
        adapter_config = run / ADAPTER / CONFIG
        if adapter_config.is_file():
            content = read_regular(adapter_config)
            if configs.setdefault(repr(learner), content) != content:
                yield f"{run.name} has another {CONFIG} than other adapters of these settings"
        if manifest.final_adapter_sha256 is not None:
            start = repr((facts.model, facts.seed, learner))
            if initial.setdefault(start, manifest.initial_adapter_sha256) != manifest.initial_adapter_sha256:
                yield f"{run.name} began with another adapter than other runs of its seed"
    yield from (f"runs differ in {name}" for name, values in shared.items() if len(values) > 1)


def _rosters(directory: Path) -> Iterator[str]:
    for path in files_named(directory, ROSTER):
        names = [run.name for run in run_directories(path.parent)]
        if INTERRUPTED in path.relative_to(directory).parts:
            continue
        if read_roster(path.parent) != names:
            yield f"{path.relative_to(directory)} names other runs than there are"
        for name in names:
            if name != (expected := read_manifest(path.parent / name).facts.name):
                yield f"{(path.parent / name).relative_to(directory)} has the configuration of {expected}"

"""Forgeries by somebody who knows the project: what is derived follows, and lists are made anew."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.base.seeding import stream
from search_to_signal.base.settings import canonical_json, canonical_sha256
from search_to_signal.credit import get_mapping
from search_to_signal.credit.assignment import assign_credit
from search_to_signal.credit.normalizers import get_normalizer
from search_to_signal.models.base import Completion, Generation
from search_to_signal.problems import get_problem
from search_to_signal.records.checksums import SUMS, sha256_file, write_sums
from search_to_signal.records.manifest import read_manifest, write_manifest
from search_to_signal.records.reader import read_records
from search_to_signal.records.schema import (
    CompletionRecord,
    GenerationRecord,
    HeuristicRecord,
    IdeaEnd,
    Outcome,
    StepRecord,
    StepTiming,
)
from search_to_signal.records.seal import BLOCKS, write_blocks
from search_to_signal.run.config import RunConfig
from search_to_signal.run.directory import read_timing
from search_to_signal.run.group import EvaluatedCompletion, completion_records, step_record
from search_to_signal.run.recorded import recorded_rounds
from search_to_signal.sandbox.programs import Proposal, parse
from search_to_signal.search.host import Round
from search_to_signal.search.hosts.calm.host import ReferenceHost
from search_to_signal.search.hosts.calm.state import initial_state
from search_to_signal.search.hosts.calm.transition import replay
from search_to_signal.search.member import heuristic_record, seed_member

_LEARNED = ("mapping", "zero_advantage", "loss", "kl", "grad_norm", "training_tokens", "adapter_sha256")


def reseal(results: Path) -> None:
    """Write every list below a directory anew, block index included."""
    lists = [path.parent for path in results.rglob(SUMS)]
    for directory in sorted(lists, key=lambda path: -len(path.parts)):
        if (directory / BLOCKS).exists():
            write_blocks(directory)
        write_sums(directory)


def edit_line(file: Path, number: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change one line of a record file; -1 is the last one."""
    lines = file.read_bytes().splitlines()
    record = msgspec.json.decode(lines[number])
    change(record)
    lines[number] = msgspec.json.encode(record)
    file.write_bytes(b"".join(line + b"\n" for line in lines))


def forge_last_score(run: Path, gain: float) -> tuple[int, int, float]:
    """Lift the first valid score of the last group that has one, and all that follows from it.

    The groups behind it are cut off, and the configuration asks for as many as are left. Returns step, index
    and the forged score.
    """
    config = msgspec.convert(read_manifest(run).config, RunConfig)
    rounds = list(recorded_rounds(run))
    while not any(record.outcome is Outcome.VALID for record in rounds[-1].records):
        rounds.pop()
    *before, last = rounds
    index = next(record.index for record in last.records if record.outcome is Outcome.VALID)
    forged = [
        msgspec.structs.replace(record, score=record.score + gain) if record.index == index else record
        for record in last.records
    ]
    rows, step, admitted = _retold(run, config, before, replace(last, records=forged))
    steps = list(read_records(run / "steps.jsonl", StepRecord))[: len(before)]
    _write(run / "steps.jsonl", [*steps, step])
    _write(run / "completions.jsonl", [record for played in before for record in played.records] + rows)
    stored = list(read_records(run / "heuristics.jsonl", HeuristicRecord))
    old = [h for h in stored if h.operator is None or h.step < last.step]
    _write(run / "heuristics.jsonl", [*old, *admitted])
    for name in ("generations.jsonl", "timings.jsonl"):
        lines = (run / name).read_bytes().splitlines(keepends=True)
        (run / name).write_bytes(b"".join(lines[: len(rounds)]))
    configure(run, groups=len(rounds))
    score = rows[index].score
    assert score is not None
    return last.step, index, score


def _retold(
    run: Path, config: RunConfig, before: list[Round], last: Round
) -> tuple[list[CompletionRecord], StepRecord, list[HeuristicRecord]]:
    """What a run would have recorded of its last round: completions, step and admitted heuristics."""
    problem = get_problem(config.problem)
    host = ReferenceHost(problem, config.search)
    seed = next(read_records(run / "heuristics.jsonl", HeuristicRecord))
    start = initial_state(seed_member(problem.seed, seed.score))
    state = [start, *replay(start, before, config.search)][-1]
    request = host.propose(state, stream(config.seed, "search", last.step))
    results = last.results()
    transition = host.update(request, results, last.step)
    told = list(read_records(run / "generations.jsonl", GenerationRecord))[len(before)]
    completions = tuple(
        Completion(ids, text, record.truncated)
        for ids, text, record in zip(told.completion_ids, told.completions, last.records, strict=True)
    )
    generation = Generation(told.prompt, told.prompt_ids, completions)
    pairs = zip(last.records, completions, strict=True)
    judged = [_judged(*pair, config.reading) for pair in pairs]
    exposures = host.exposures(request, results)
    records = completion_records(
        request, last.step, config.problem, generation, judged, transition.events, exposures
    )
    rows = [
        msgspec.structs.replace(record, evaluation=known.evaluation)
        for record, known in zip(records, last.records, strict=True)
    ]
    if config.trained:
        rows = assign_credit(rows, get_mapping(config.mapping), get_normalizer(config.normalizer))
    recorded = list(read_records(run / "steps.jsonl", StepRecord))[len(before)]
    learned = {name: getattr(recorded, name) for name in (*_LEARNED, "prompt_tokens_cut")}
    step = msgspec.structs.replace(
        step_record(request, transition, generation, rows, config, None), **learned
    )
    return rows, step, [heuristic_record(member) for member in transition.admitted]


def keep_parents(results: Path) -> None:
    """Let every restart below a directory say that its parent has the completions that it has now."""
    for manifest in results.rglob("manifest.json"):
        parent = read_manifest(manifest.parent).config.get("parent")
        if parent:
            digest = sha256_file(manifest.parent / parent["run"] / "completions.jsonl")
            edit_manifest(
                manifest.parent, lambda m, d=digest: m["config"]["parent"].update(completions_sha256=d)
            )


def configure(run: Path, **changes: Any) -> None:
    """Change a run's configuration, and what its manifest says of configuration, time and adapter."""
    manifest = read_manifest(run)
    config = {**manifest.config, **changes}
    steps = list(read_records(run / "steps.jsonl", StepRecord))
    (run / "config.json").write_bytes(canonical_json(config))
    told = {"config": config, "config_sha256": canonical_sha256(config), "timing": read_timing(run)}
    adapter = steps[-1].adapter_sha256
    write_manifest(run, msgspec.structs.replace(manifest, **told, final_adapter_sha256=adapter))


def edit_manifest(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a run's manifest."""
    manifest = msgspec.json.decode((run / "manifest.json").read_bytes())
    change(manifest)
    (run / "manifest.json").write_bytes(msgspec.json.encode(manifest))


def record_elsewhere(run: Path, pace: float, cpu: str | None = "another", source: str | None = None) -> None:
    """Let a run's steps take ``pace`` times their seconds, on a processor or by a source of its own."""
    lines = read_records(run / "timings.jsonl", StepTiming)
    paced = [
        msgspec.structs.replace(line, processor_seconds=pace * (line.processor_seconds or 0.0))
        for line in lines
    ]
    _write(run / "timings.jsonl", paced)

    def moved(manifest: dict[str, Any]) -> None:
        manifest["environment"].update({} if cpu is None else {"cpu": cpu})
        manifest["source"].update({} if source is None else {"sha256": source})

    edit_manifest(run, moved)
    write_sums(run)


def _judged(record: CompletionRecord, completion: Completion, idea_end: IdeaEnd) -> EvaluatedCompletion:
    proposal = parse(completion.text, idea_end)
    found = proposal if isinstance(proposal, Proposal) else None
    return EvaluatedCompletion(
        completion, record.outcome, record.detail, record.score, found, record.program_sha256, None
    )


def _write(file: Path, records: list[Any]) -> None:
    file.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))

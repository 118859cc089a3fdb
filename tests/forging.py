"""Forgeries by somebody who knows the project: what is derived follows, and lists are made anew."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.base.settings import canonical_json, canonical_sha256
from search_to_signal.credit import get_mapping
from search_to_signal.credit.normalizers import get_normalizer
from search_to_signal.records.checksums import BLOCKS, SUMS, write_blocks, write_sums
from search_to_signal.records.manifest import read_manifest, write_manifest
from search_to_signal.records.reader import read_records
from search_to_signal.records.schema import HeuristicRecord, Outcome, StepRecord, StepTiming
from search_to_signal.run.directory import read_timing
from search_to_signal.run.replayed import (
    Due,
    RecordedGroup,
    Replay,
    host_search,
    recorded_groups,
    recorded_start,
    run_config,
)
from search_to_signal.search.hosts import open_host

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
    groups = list(recorded_groups(run))
    while not any(record.outcome is Outcome.VALID for record in groups[-1].group):
        groups.pop()
    *before, last = groups
    number = last.step.step
    index = next(record.index for record in last.group if record.outcome is Outcome.VALID)
    forged = tuple(
        msgspec.structs.replace(record, score=record.score + gain) if record.index == index else record
        for record in last.group
    )
    due = _due(run, before, replace(last, group=forged))
    rows = [
        msgspec.structs.replace(record, evaluation=known.evaluation)
        for record, known in zip(due.completions, forged, strict=True)
    ]
    learned = {name: getattr(last.step, name) for name in (*_LEARNED, "prompt_tokens_cut")}
    step = msgspec.structs.replace(due.step, **learned)
    _write(run / "steps.jsonl", [*(group.step for group in before), step])
    _write(run / "completions.jsonl", [record for group in before for record in group.group] + rows)
    stored = list(read_records(run / "heuristics.jsonl", HeuristicRecord))
    old = [h for h in stored if h.operator is None or h.step < number]
    _write(run / "heuristics.jsonl", [*old, *due.heuristics])
    for name in ("generations.jsonl", "timings.jsonl"):
        lines = (run / name).read_bytes().splitlines(keepends=True)
        (run / name).write_bytes(b"".join(lines[: len(groups)]))
    configure(run, groups=len(groups))
    score = rows[index].score
    assert score is not None
    return number, index, score


def _due(run: Path, before: list[RecordedGroup], last: RecordedGroup) -> Due:
    """What a run would have recorded of its last group."""
    manifest = read_manifest(run)
    config = run_config(manifest)
    credit = (get_mapping(config.mapping), get_normalizer(config.normalizer)) if config.trained else None
    search = host_search(open_host(config.host, config.host_setup), config)
    replay = Replay(search, recorded_start(run, search), manifest.facts, credit)
    for group in before:
        replay.play(group)
    return replay.play(last).due


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


def _write(file: Path, records: list[Any]) -> None:
    file.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))

"""Run directories that look like a live cohort's, from a generator of random numbers: no model, no search.

For tests of tables and for the analysis benchmark. Equal arguments give equal bytes.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from search_to_signal.base.seeding import stream
from search_to_signal.base.settings import canonical_sha256
from search_to_signal.credit import get_mapping
from search_to_signal.credit.normalizers import group_advantages
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.groups import batch_of
from search_to_signal.records.manifest import Environment, Manifest, Source, write_manifest
from search_to_signal.records.schema import (
    CALM_OPERATORS,
    ArchiveEvent,
    CompletionRecord,
    Operator,
    Outcome,
    StepRecord,
    StepTiming,
)
from search_to_signal.search.hosts.calm.prompts import CREATION

SEED_SCORE = -7.0
VALID_RATE = {"frozen": 0.6, "native": 0.9, "factorized": 0.95, "tail_weighted": 0.85}
FAILURES = tuple(outcome for outcome in Outcome if outcome is not Outcome.VALID)
Groups = list[list[CompletionRecord]]


def write_synthetic_run(
    directory: Path,
    condition: str,
    seed: int,
    *,
    groups: int = 40,
    size: int = 4,
    layer: str = "cohort",
    config: dict[str, Any] | None = None,
    load: float = 2.0,
    **manifest: Any,
) -> Path:
    """Write a complete, checksummed run without generations and heuristics; returns its directory.

    Its steps take 1.5 processor seconds when trained and 1.0 when not, and ``load`` times that by the wall.
    """
    directory.mkdir(parents=True)
    settings: dict[str, Any] = {
        "purpose": "formal",
        "layer": layer,
        "problem": "tsp",
        "split": "embedded",
        "model": "tiny",
        "condition": condition,
        "seed": seed,
        "groups": groups,
        "generation": {"group_size": size},
        **(config or {}),
    }
    trained = condition != "frozen" and settings.get("parent") is None
    made = synthetic_groups(condition, seed, groups, size)
    steps = [_step(group, trained) for group in made]
    write_lines(
        directory / "completions.jsonl", [r for group in credited(made, condition, trained) for r in group]
    )
    write_lines(directory / "steps.jsonl", steps)
    speed = 1.5 if trained else 1.0
    split = {"total": load * speed}
    timings = [StepTiming(step=t, seconds=split, processor_seconds=speed) for t in range(groups)]
    write_lines(directory / "timings.jsonl", timings)
    write_manifest(directory, msgspec.structs.replace(plain_manifest(settings), **manifest))
    write_sums(directory)
    return directory


def synthetic_groups(condition: str, seed: int, groups: int, size: int) -> Groups:
    """Groups of a search that wanders near its frontier and rarely improves on it."""
    rng = stream(seed, "synthetic", condition)
    archive = [SEED_SCORE]
    return [_group(t, size, archive, VALID_RATE.get(condition, 0.9), rng) for t in range(groups)]


def _group(
    step: int, size: int, archive: list[float], valid: float, rng: np.random.Generator
) -> list[CompletionRecord]:
    operator = tuple(CALM_OPERATORS)[rng.integers(len(CALM_OPERATORS))]
    parents = tuple(sorted({int(i) for i in rng.integers(min(len(archive), 10), size=2)}))
    before = list(archive)
    bases = () if operator == CREATION else tuple(sorted(before)[-1 - i] for i in parents)
    records = []
    for index in range(size):
        failed = rng.random() > valid
        score = None if failed else round(max(before) - float(rng.exponential(0.4)) + 0.05, 4)
        if rng.random() < 0.1 and not failed:
            score = bases[0] if bases else before[0]
        fresh = score is not None and min(abs(score - old) for old in archive) > 1e-7
        records.append(_record(step, index, operator, parents, bases, before, score, fresh, rng))
        if fresh and score is not None:
            archive.append(score)
    return records


def _record(
    step: int,
    index: int,
    operator: Operator,
    parents: Sequence[int],
    bases: tuple[float, ...],
    before: list[float],
    score: float | None,
    fresh: bool,
    rng: np.random.Generator,
) -> CompletionRecord:
    outcome = Outcome.VALID if score is not None else FAILURES[rng.integers(len(FAILURES))]
    text, event = int(rng.integers(4000)), ArchiveEvent.ADMITTED if fresh else ArchiveEvent.DUPLICATE_SCORE
    ran = outcome.evaluated
    return CompletionRecord(
        step=step,
        index=index,
        problem="tsp",
        operator=operator,
        prompt_sha256=_sha256(f"prompt {operator} {parents}"),
        parents=tuple(_sha256(f"parent {i}") for i in parents),
        base_scores=bases,
        frontier=max(before),
        archive_size=len(before),
        outcome=outcome,
        detail="",
        score=score,
        evaluation="ok" if ran else "not_run",
        response_sha256=_sha256(f"text {text}"),
        program_sha256=_sha256(f"program {text % 1000}") if ran else None,
        matches_base_code=False,
        archive_gap=None if score is None else min(abs(score - old) for old in before),
        exposure=None if score is None else round(float(rng.random()), 3),
        prompt_tokens=400,
        completion_tokens=200,
        truncated=False,
        archive_event=event if score is not None else ArchiveEvent.INVALID,
        components=None,
        reward=None,
        advantage=None,
    )


def credited(groups: Groups, condition: str, trained: bool) -> Groups:
    """The groups with what a mapping and the group normalizer give them; untrained ones as they are."""
    if not trained:
        return groups
    credit = get_mapping(condition)(batch_of(groups))
    advantages = group_advantages(credit.reward)
    return [
        [
            msgspec.structs.replace(
                record,
                components={name: float(values[t, i]) for name, values in credit.components.items()},
                reward=float(credit.reward[t, i]),
                advantage=float(advantages[t, i]),
            )
            for i, record in enumerate(group)
        ]
        for t, group in enumerate(groups)
    ]


def _step(group: Sequence[CompletionRecord], trained: bool) -> StepRecord:
    step, admitted = group[0].step, [r.score for r in group if r.archive_event is ArchiveEvent.ADMITTED]
    return StepRecord(
        step=step,
        operator=group[0].operator,
        prompt_sha256=group[0].prompt_sha256,
        collapsed=step % 17 == 16,
        stagnation=0,
        archive_size=group[0].archive_size + len(admitted),
        frontier_before=group[0].frontier,
        frontier_after=max([score for score in (*admitted, group[0].frontier) if score is not None]),
        valid=sum(record.score is not None for record in group),
        admitted=len(admitted),
        mapping="made up" if trained else None,
        zero_advantage=False if trained else None,
        loss=0.0 if trained else None,
        kl=0.0 if trained else None,
        grad_norm=0.5 if trained else None,
        training_tokens=800 if trained else 0,
        adapter_sha256="adapter" if trained else None,
    )


def plain_manifest(settings: dict[str, Any]) -> Manifest:
    """The manifest of a complete run, made nowhere and of nothing."""
    nothing = Environment(
        python="3.10",
        packages={},
        system="Linux",
        kernel="6",
        libc="glibc",
        machine="x86_64",
        cpu="cpu",
        cpu_flags_simd=(),
        cpu_count=1,
        memory_mib=1,
    )
    return Manifest(
        status="complete",
        config=settings,
        config_sha256=canonical_sha256(settings),
        source=Source(sha256="s", commit=None, clean=None),
        environment=nothing,
        model_files={},
        isolation={},
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_lines(path: Path, records: Sequence[msgspec.Struct]) -> None:
    """One JSON line per record."""
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))

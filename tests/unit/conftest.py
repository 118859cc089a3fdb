"""Small things to test with: a language model made in a blink, and run directories made by hand."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from spec.synthetic_runs import credited, plain_manifest, write_lines

from search_to_signal.provenance.checksums import write_sums
from search_to_signal.records.manifest import Manifest, Timing, write_manifest
from search_to_signal.records.schema import (
    ArchiveEvent,
    CompletionRecord,
    GenerationRecord,
    HeuristicRecord,
    Operator,
    Outcome,
    StepRecord,
)

SAMPLE = (
    "def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):\n"
    "    score = distance_matrix[current_node, nodes] * 0.4\n    return int(nodes[np.argmin(score)])\n"
)
SEED_SCORE = -7.0
GROUP_SIZE = 4


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A byte-level tokenizer with a few merges."""
    from search_to_signal.generators.chat import train_tokenizer

    return train_tokenizer([SAMPLE], 300)


@pytest.fixture(scope="session")
def new_model(tokenizer: Any) -> Callable[..., Any]:
    """Make a fresh two-layer Qwen2 whose weights follow from the seed, with a far from uniform answer."""
    from search_to_signal.learner.pretrain import Architecture, build_model

    def make(seed: int = 0) -> Any:
        shape = Architecture("qwen2", 32, 64, 2, 4, 2, 256, 0.2)
        return build_model(shape, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, seed).eval()

    return make


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _group(step: int, frontier: float, archive: Sequence[float], shift: float) -> list[CompletionRecord]:
    """An improvement, a failure, a copy of the best, and a worse novelty: two admissions."""
    scores = (frontier + 0.1 + shift, None, frontier, SEED_SCORE - 0.3 - 0.01 * step)
    events = (
        ArchiveEvent.ADMITTED,
        ArchiveEvent.INVALID,
        ArchiveEvent.DUPLICATE_SCORE,
        ArchiveEvent.ADMITTED,
    )
    return [
        CompletionRecord(
            step=step,
            index=index,
            problem="tsp",
            operator=Operator.REPLACEMENT,
            prompt_sha256=_sha256(f"prompt {step}"),
            parents=("seed",),
            base_scores=(frontier,),
            frontier=frontier,
            archive_size=len(archive),
            outcome=Outcome.RUNTIME_FAILURE if score is None else Outcome.VALID,
            detail="",
            score=score,
            evaluation="ok",
            response_sha256=_sha256(f"answer {step} {index}"),
            program_sha256=f"program {step} {index}",
            matches_base_code=False,
            archive_gap=None if score is None else min(abs(other - score) for other in archive),
            exposure=None if score is None else 0.25,
            prompt_tokens=2,
            completion_tokens=3,
            truncated=False,
            archive_event=event,
            components=None,
            reward=None,
            advantage=None,
        )
        for index, (score, event) in enumerate(zip(scores, events, strict=True))
    ]


def _step(group: Sequence[CompletionRecord], archive: Sequence[float], condition: str) -> StepRecord:
    frozen = condition == "frozen"
    return StepRecord(
        step=group[0].step,
        operator=group[0].operator,
        prompt_sha256=group[0].prompt_sha256,
        collapsed=False,
        stagnation=0,
        archive_size=len(archive),
        frontier_before=group[0].frontier,
        frontier_after=max(archive),
        valid=sum(record.score is not None for record in group),
        admitted=2,
        mapping=None if frozen else condition,
        zero_advantage=None if frozen else False,
        loss=None if frozen else 0.0,
        kl=None if frozen else 0.0,
        grad_norm=None if frozen else 0.5,
        training_tokens=0 if frozen else 12,
        adapter_sha256=None if frozen else "adapter",
    )


def _heuristic(record: CompletionRecord | None) -> HeuristicRecord:
    if record is None:
        return HeuristicRecord(
            id="seed", step=0, index=0, operator=None, idea="i", code="c", score=SEED_SCORE
        )
    assert record.score is not None
    assert record.program_sha256 is not None
    return HeuristicRecord(
        id=record.program_sha256,
        step=record.step,
        index=record.index,
        operator=record.operator,
        idea="idea",
        code="code",
        score=record.score,
    )


def _generation(number: int) -> GenerationRecord:
    return GenerationRecord(
        step=number,
        prompt=f"prompt {number}",
        prompt_ids=(1, 2),
        completion_ids=((1, 2, 3),) * GROUP_SIZE,
        completions=tuple(f"answer {number} {index}" for index in range(GROUP_SIZE)),
    )


def made_manifest(config: dict[str, Any], **changes: Any) -> Manifest:
    """A manifest by hand."""
    timing = Timing(generation=2.0, evaluation=1.0, update=0.5, other=0.5, total=4.0, groups_per_minute=30.0)
    return msgspec.structs.replace(plain_manifest(config), **{"timing": timing, **changes})


def _write_records(directory: Path, condition: str, groups: int, shift: float) -> None:
    archive, frontier = [SEED_SCORE], SEED_SCORE
    records: list[CompletionRecord] = []
    steps, heuristics = [], [_heuristic(None)]
    for number in range(groups):
        plain = _group(number, frontier, archive, shift)
        (group,) = credited([plain], condition, condition != "frozen")
        admitted = [record for record in group if record.archive_event is ArchiveEvent.ADMITTED]
        archive += [record.score for record in admitted if record.score is not None]
        frontier = max(archive)
        records += group
        steps.append(_step(group, archive, condition))
        heuristics += map(_heuristic, admitted)
    write_lines(directory / "completions.jsonl", records)
    write_lines(directory / "steps.jsonl", steps)
    write_lines(directory / "heuristics.jsonl", heuristics)
    write_lines(directory / "generations.jsonl", [_generation(number) for number in range(groups)])


def write_run(
    directory: Path,
    condition: str = "native",
    seed: int = 42,
    *,
    groups: int = 4,
    shift: float = 0.0,
    config: dict[str, Any] | None = None,
    **manifest: Any,
) -> Path:
    """Write a complete, checksummed run by hand; ``shift`` makes every improvement that much larger."""
    directory.mkdir(parents=True)
    shape: dict[str, Any] = {
        "purpose": "formal",
        "problem": "tsp",
        "split": "embedded",
        "model": "tiny",
        "condition": condition,
        "seed": seed,
        "groups": groups,
        "generation": {"group_size": GROUP_SIZE},
        **(config or {}),
    }
    _write_records(directory, condition, groups, shift)
    write_manifest(directory, made_manifest(shape, **manifest))
    write_sums(directory)
    return directory


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Path]:
    """``write_run``."""
    return write_run


@pytest.fixture(scope="session")
def manifest() -> Callable[..., Manifest]:
    """``made_manifest``."""
    return made_manifest

"""Small things to test with: a language model made in a blink, and run directories made by hand.

Here it is also seen to that a test which starts Python is marked ``slow``, itself or its module.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save
from spec.synthetic_runs import credited, plain_manifest, write_lines
from tests.command import Command, Said

from search_to_signal.cli import main
from search_to_signal.problems.tsp import Tsp
from search_to_signal.records.adapters import tensors_sha256
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.files import write_atomically
from search_to_signal.records.manifest import Manifest, Timing, write_manifest
from search_to_signal.records.schema import (
    ArchiveEvent,
    CompletionRecord,
    GenerationRecord,
    HeuristicRecord,
    Outcome,
    StepRecord,
    StepTiming,
)
from search_to_signal.sandbox.programs import OPENING, program_sha256, sha256_text
from search_to_signal.search.hosts.calm.prompts import REPLACEMENT

SAMPLE = (
    "def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):\n"
    "    score = distance_matrix[current_node, nodes] * 0.4\n    return int(nodes[np.argmin(score)])\n"
)
SEED_SCORE = -7.0
SECONDS = {"generation": 0.5, "evaluation": 0.25, "update": 0.125, "other": 0.125}
GROUP_SIZE = 4


# What the test that is running started.
_STARTED: list[str] = []


def _notice(event: str, arguments: tuple[Any, ...]) -> None:
    program = Path(str(arguments[0])).name if event == "subprocess.Popen" else ""
    if event == "os.fork" or program.startswith("python"):
        _STARTED.append(program or event)


sys.addaudithook(_notice)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Forget what earlier tests started."""
    _STARTED.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail where a test that is not marked started Python."""
    yield
    if _STARTED and item.get_closest_marker("slow") is None:
        pytest.fail(f"it starts Python ({_STARTED[0]}): mark it slow, or its module", pytrace=False)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A byte-level tokenizer with a few merges."""
    from recipe.training import train_tokenizer

    return train_tokenizer([SAMPLE], 300)


@pytest.fixture(scope="session")
def new_model(tokenizer: Any) -> Callable[..., Any]:
    """Make a fresh two-layer Qwen2 whose weights follow from the seed, with a far from uniform answer."""
    from recipe.training import Architecture, build_model

    def make(seed: int = 0) -> Any:
        shape = Architecture("qwen2", 32, 64, 2, 4, 2, 256, 0.2)
        return build_model(shape, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, seed).eval()

    return make


SEED = Tsp().seed


def _code(step: int, index: int) -> str:
    return f"def choose(a, b, c, d):\n    return {GROUP_SIZE * step + index}"


def _text(step: int, index: int) -> str:
    return f"{{{{{_idea(step, index)}}}}}\n```python\n{_code(step, index)}\n```"


def _idea(step: int, index: int) -> str:
    return f"{OPENING} take number {GROUP_SIZE * step + index} of all."


def _group(step: int, archive: Sequence[HeuristicRecord], shift: float) -> list[CompletionRecord]:
    """An improvement, a failure, a copy of the best, and a worse novelty: two admissions."""
    best = max(archive, key=lambda member: member.score)
    scores = (best.score + 0.1 + shift, None, best.score, SEED_SCORE - 0.3 - 0.01 * step)
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
            operator=REPLACEMENT,
            prompt_sha256=sha256_text(f"prompt {step}"),
            parents=(best.id,),
            base_scores=(best.score,),
            frontier=best.score,
            archive_size=len(archive),
            outcome=Outcome.RUNTIME_FAILURE if score is None else Outcome.VALID,
            detail="",
            score=score,
            evaluation="exception" if score is None else "ok",
            response_sha256=sha256_text(_text(step, index)),
            program_sha256=program_sha256(_code(step, index)),
            matches_base_code=False,
            archive_gap=None if score is None else min(abs(member.score - score) for member in archive),
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


def _step(
    group: Sequence[CompletionRecord], archive: Sequence[HeuristicRecord], condition: str, adapter: str
) -> StepRecord:
    frozen = condition == "frozen"
    return StepRecord(
        step=group[0].step,
        operator=group[0].operator,
        prompt_sha256=group[0].prompt_sha256,
        collapsed=False,
        stagnation=0,
        archive_size=len(archive),
        frontier_before=group[0].frontier,
        frontier_after=max(member.score for member in archive),
        valid=sum(record.score is not None for record in group),
        admitted=2,
        mapping=None if frozen else condition,
        zero_advantage=None if frozen else False,
        loss=None if frozen else 0.0,
        kl=None if frozen else 0.0,
        grad_norm=None if frozen else 0.5,
        training_tokens=0 if frozen else 12,
        adapter_sha256=None if frozen else adapter,
    )


def _seed() -> HeuristicRecord:
    identity = program_sha256(SEED.code)
    return HeuristicRecord(
        id=identity, step=0, index=0, operator=None, idea=SEED.idea, code=SEED.code, score=SEED_SCORE
    )


def _heuristic(record: CompletionRecord) -> HeuristicRecord:
    assert record.score is not None
    assert record.program_sha256 is not None
    return HeuristicRecord(
        id=record.program_sha256,
        step=record.step,
        index=record.index,
        operator=record.operator,
        idea=_idea(record.step, record.index),
        code=_code(record.step, record.index),
        score=record.score,
    )


def _generation(number: int) -> GenerationRecord:
    return GenerationRecord(
        step=number,
        prompt=f"prompt {number}",
        prompt_ids=(1, 2),
        completion_ids=((1, 2, 3),) * GROUP_SIZE,
        completions=tuple(_text(number, index) for index in range(GROUP_SIZE)),
    )


def made_manifest(config: dict[str, Any], **changes: Any) -> Manifest:
    """A manifest by hand."""
    groups, split = int(config.get("groups", 4)), dict(SECONDS, total=sum(SECONDS.values()))
    timing = Timing(
        **{name: sum(value for _ in range(groups)) for name, value in split.items()},
        groups_per_minute=60 * groups / sum(split["total"] for _ in range(groups)),
    )
    return msgspec.structs.replace(plain_manifest(config), **{"timing": timing, **changes})


def write_adapter(directory: Path, config: dict[str, Any]) -> str:
    """Write an adapter of one small tensor; returns its checksum."""
    directory.mkdir()
    write_atomically(directory / "adapter_model.safetensors", save({"lora": np.ones((1, 2), np.float32)}))
    learner = config.get("learner", {})
    facts = {"r": learner.get("lora_rank"), "lora_alpha": learner.get("lora_alpha")}
    text = json.dumps({**facts, "base_model_name_or_path": None})
    (directory / "adapter_config.json").write_text(text, encoding="utf-8")
    return tensors_sha256(directory / "adapter_model.safetensors")


def _write_records(directory: Path, condition: str, groups: int, shift: float, adapter: str) -> None:
    archive = [_seed()]
    records: list[CompletionRecord] = []
    steps: list[StepRecord] = []
    for number in range(groups):
        plain = _group(number, archive, shift)
        (group,) = credited([plain], condition, condition != "frozen")
        archive += [_heuristic(r) for r in group if r.archive_event is ArchiveEvent.ADMITTED]
        records += group
        steps.append(_step(group, archive, condition, adapter))
    seconds = {**SECONDS, "total": sum(SECONDS.values())}
    write_lines(directory / "completions.jsonl", records)
    write_lines(directory / "steps.jsonl", steps)
    write_lines(directory / "heuristics.jsonl", archive)
    write_lines(directory / "generations.jsonl", [_generation(number) for number in range(groups)])
    write_lines(
        directory / "timings.jsonl", [StepTiming(step=number, seconds=seconds) for number in range(groups)]
    )


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
    trained = condition != "frozen" and shape.get("parent") is None
    adapter = write_adapter(directory / "adapter", shape) if trained else ""
    _write_records(directory, condition, groups, shift, adapter)
    facts = {"final_adapter_sha256": adapter} if trained else {}
    write_manifest(directory, made_manifest(shape, **{**facts, **manifest}))
    (directory / "config.json").write_bytes(msgspec.json.encode(shape))
    write_sums(directory)
    return directory


@pytest.fixture
def s2s(capsys: pytest.CaptureFixture[str]) -> Command:
    """``s2s`` with these words; it ends with ``code``, unless that is None."""

    def call(*words: object, code: int | None = 0) -> Said:
        capsys.readouterr()
        found = main([str(word) for word in words])
        said = Said(found, *capsys.readouterr())
        assert code in (None, found), said
        return said

    return call


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Path]:
    """``write_run``."""
    return write_run


@pytest.fixture(scope="session")
def manifest() -> Callable[..., Manifest]:
    """``made_manifest``."""
    return made_manifest

"""Pairs and batches that a rule trained on, against the run's completions."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from spec.synthetic_runs import write_lines

from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.reader import STEPS, read_groups, read_records
from search_to_signal.records.schema import (
    PREFERENCES,
    PreferencePair,
    PreferenceRecord,
    PreferenceRound,
    StepRecord,
)
from search_to_signal.verify.directory import verify
from search_to_signal.verify.records import batch_problems, pair_problems

CONFIG = {"learning_rule": "dpo", "rule_settings": {"finetuning_frequency": 2, "beta": 0.1}}
OTHERS = "preferences.jsonl:3: the pairs of step 2 are not the ones that its completions make"
Records = list[PreferenceRecord]


def told(step: int, scores: Sequence[float], collected: int) -> PreferenceRound | None:
    """The round behind every second group: a score of each class since the last one decides."""
    if step % 2 == 0:
        return None
    recent = [score for group in scores[step - 1 : step + 1] for score in group]  # type: ignore[attr-defined]
    threshold = float(np.percentile(recent, 30))
    kept = sum(2 for group in scores[: step + 1] if group[0] >= threshold)  # type: ignore[index]
    return PreferenceRound(
        threshold=threshold, collected=collected, kept=kept, optimizer_steps=2, accuracy=0.5, margin=0.1
    )


@pytest.fixture
def run(make_run: Callable[..., Path], tmp_path: Path) -> Path:
    """Four groups with an improvement, a failure, a copy and a worse one each, in two rounds of DPO."""
    directory = make_run(tmp_path / "pairs-s42", "pairs", config=CONFIG)
    groups = list(read_groups(directory))
    scores: Any = [[r.score for r in group if r.score is not None] for group in groups]
    records = []
    for step, group in enumerate(groups):
        pairs = tuple(
            PreferencePair(
                chosen=0, rejected=i, chosen_score=group[0].score or 0.0, rejected_score=group[i].score
            )
            for i in (2, 1)
        )
        records.append(PreferenceRecord(step=step, pairs=pairs, round=told(step, scores, 2 * step + 2)))
    write(directory, records)
    return directory


def write(directory: Path, records: Records) -> None:
    """The pairs, and steps that trained where there was a round: two epochs of pairs of six tokens."""
    write_lines(directory / PREFERENCES, records)
    steps = []
    for step, record in zip(read_records(directory / STEPS, StepRecord), records, strict=False):
        tokens = 12 * record.round.kept if record.round else 0
        steps.append(msgspec.structs.replace(step, training_tokens=tokens))
    write_lines(directory / STEPS, steps)


def problems(directory: Path) -> list[str]:
    """What is said of the pairs."""
    return list(pair_problems(directory, read_manifest(directory)))


def read(directory: Path) -> Records:
    """The pairs as they stand there."""
    return list(read_records(directory / PREFERENCES, PreferenceRecord))


def changed(record: PreferenceRecord, **entry: Any) -> PreferenceRecord:
    first = msgspec.structs.replace(record.pairs[0], **entry)
    return msgspec.structs.replace(record, pairs=(first, *record.pairs[1:]))


def test_true_pairs_are_accepted_and_no_training_without_them(run: Path) -> None:
    assert [record.round is not None for record in read(run)] == [False, True, False, True]
    assert problems(run) == []
    records = list(read_records(run / STEPS, StepRecord))
    more = [msgspec.structs.replace(step, training_tokens=step.training_tokens + 1) for step in records]
    write_lines(run / STEPS, more)
    assert [problem.split(": ", 1)[1] for problem in problems(run)] == [
        "step 0 was trained without a round",
        f"step 1: training_tokens is {more[1].training_tokens}, its pairs have {records[1].training_tokens}",
        "step 2 was trained without a round",
        f"step 3: training_tokens is {more[3].training_tokens}, its pairs have {records[3].training_tokens}",
    ]


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ({"rejected": 9}, "preferences.jsonl:3: step 2 has no completion 9: restore the file"),
        ({"chosen": -1}, "preferences.jsonl:3: step 2 has no completion -1: restore the file"),
        ({"rejected": 3}, OTHERS),
        (
            {"chosen_score": 0.0},
            OTHERS,
        ),
    ],
)
def test_a_pair_of_other_completions_is_named(run: Path, entry: dict[str, Any], line: str) -> None:
    records = read(run)
    write(run, [*records[:2], changed(records[2], **entry), records[3]])
    assert problems(run) == [line]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"threshold": -9.0}, "the round of step 3 is not the one that its pairs give"),
        ({"collected": 7}, "the round of step 3 is not the one that its pairs give"),
        ({"optimizer_steps": 3}, "the round of step 3 is not the one that its pairs give"),
        ({"accuracy": 1.5}, "the round of step 3 has accuracy 1.5"),
    ],
)
def test_a_round_that_did_not_follow_is_named(run: Path, change: dict[str, Any], text: str) -> None:
    records = read(run)
    assert records[3].round is not None
    other = msgspec.structs.replace(records[3].round, **change)
    write(run, [*records[:3], msgspec.structs.replace(records[3], round=other)])
    (problem,) = problems(run)
    assert text in problem


def test_rounds_and_lines_cannot_be_left_out(
    run: Path, make_run: Callable[..., Path], tmp_path: Path
) -> None:
    records = read(run)
    write(run, [records[0], msgspec.structs.replace(records[1], round=None), *records[2:]])
    assert problems(run) == ["preferences.jsonl:2: step 1: a round is missing"]
    write(run, [msgspec.structs.replace(records[0], round=records[1].round), *records[1:]])
    assert problems(run) == ["preferences.jsonl:1: step 0: a round is recorded that was not due"]
    write(run, records)
    write_lines(run / PREFERENCES, records[:3])
    assert problems(run) == ["preferences.jsonl:4: it does not hold the steps of the run, one line each"]
    plain = make_run(tmp_path / "native-s42")
    assert verify(plain).problems == ()
    write_lines(plain / PREFERENCES, read(run))
    assert problems(plain) == ["preferences.jsonl: the run's rule learns from no pairs"]


@pytest.mark.parametrize(
    ("tokens", "problems"),
    [
        ((0, 24, 0, 24), []),
        ((12, 12, 0, 24), [(0, 12, 0), (1, 12, 24)]),
        ((0, 24, 0, 25), [(3, 25, 24)]),
        ((0, 0, 0, 48), [(1, 0, 24), (3, 48, 24)]),
    ],
)
def test_a_step_trains_on_its_batch(
    make_run: Callable[..., Path],
    tmp_path: Path,
    tokens: tuple[int, ...],
    problems: list[tuple[int, int, int]],
) -> None:
    config = {"learning_rule": "entropic", "rule_settings": {"groups_per_batch": 2}}
    run = make_run(tmp_path / "native-s42", config=config)
    steps = read_records(run / STEPS, StepRecord)
    changed = [
        msgspec.structs.replace(step, training_tokens=n) for step, n in zip(steps, tokens, strict=True)
    ]
    write_lines(run / STEPS, changed)
    told = [f"step {s}: training_tokens is {found}, its completions have {due}" for s, found, due in problems]
    assert list(batch_problems(run, read_manifest(run))) == told


@pytest.mark.parametrize(
    ("dropped", "tokens", "problem"),
    [
        ((True, True, False, False), (0, 0, 0, 24), ""),
        ((True, True, True, False), (0, 0, 0, 12), "step 2: its group is dropped against the settings"),
        ((False, True, False, False), (0, 0, 0, 24), "step 0: its group is not dropped"),
        ((True, True, False, False), (0, 0, 12, 12), "step 2: training_tokens is 12"),
    ],
)
def test_groups_are_dropped_as_often_as_asked(
    make_run: Callable[..., Path],
    tmp_path: Path,
    dropped: tuple[bool, ...],
    tokens: tuple[int, ...],
    problem: str,
) -> None:
    """Of three groups without advantage two are drawn again; the third and the last are a step."""
    config = {"rule_settings": {"prompts_per_step": 2, "redraws": 2}}
    run = make_run(tmp_path / "native-s42", config=config)
    changed = [
        msgspec.structs.replace(
            step,
            zero_advantage=step.step < 3,
            training_tokens=count,
            dropped="no_advantage" if drops else msgspec.UNSET,
        )
        for step, count, drops in zip(read_records(run / STEPS, StepRecord), tokens, dropped, strict=True)
    ]
    write_lines(run / STEPS, changed)
    told = list(batch_problems(run, read_manifest(run)))
    assert told[0].startswith(problem) if problem else told == []

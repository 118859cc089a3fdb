"""Steps on several groups: tokens of all of them, none in between, and groups that were dropped."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from spec.synthetic_runs import write_lines

from search_to_signal.records.manifest import read_manifest
from search_to_signal.records.reader import STEPS, read_records
from search_to_signal.records.schema import StepRecord
from search_to_signal.verify.records import batch_problems


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
    """Two groups of four completions of three tokens are a batch."""
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

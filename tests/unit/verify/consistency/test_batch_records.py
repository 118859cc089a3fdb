"""The steps of the entropic rule: tokens of a whole batch, and none in between."""

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
    config = {"learning_rule": "entropic", "rule_settings": {"groups_per_batch": 2}}
    run = make_run(tmp_path / "native-s42", config=config)
    steps = read_records(run / STEPS, StepRecord)
    changed = [
        msgspec.structs.replace(step, training_tokens=n) for step, n in zip(steps, tokens, strict=True)
    ]
    write_lines(run / STEPS, changed)
    told = [f"step {s}: training_tokens is {found}, its completions have {due}" for s, found, due in problems]
    assert list(batch_problems(run, read_manifest(run))) == told

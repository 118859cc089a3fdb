"""Logs with a list of completions under each column: of ms-swift, of ROLL, and of anybody with --map."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal import audit
from search_to_signal.audit.importers import find

TOLD = "4 groups with 16 completions in 2 steps (groups: 4 of 4)."
# The second group of step 1 and the first of step 2 are flat.
REWARDS = {1: [1.0, 0.0, 1.0, 0.0, 0.5, 0.5, 0.5, 0.5], 2: [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0]}
A = 0.8658754229545593
ADVANTAGES = {1: [A, -A, A, -A, 0, 0, 0, 0], 2: [0, 0, 0, 0, -A, A, -A, A]}


def lines(step: str = "step", **more: Any) -> list[dict[str, Any]]:
    """Two logged steps of two groups of four, as the trainer of ms-swift hands them to its writer."""
    return [
        {
            step: [str(number) if step == "step" else number] * 8,
            "prompt": ["q0 ü"] * 4 + ["q1"] * 4,
            "completion": [f"answer {at}" for at in range(8)],
            "MathAccuracy": REWARDS[number],
            "Format": [1.0] * 8,
            "advantages": ADVANTAGES[number],
            "num_turns": [at % 3 for at in range(8)],
            **more,
        }
        for number in (1, 2)
    ]


def as_rows(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: values[at] for name, values in line.items()} for line in given for at in range(8)]


FORMS = {
    "transformers": lines(),
    "megatron": lines("gen_step"),
    "with solutions of some": lines(solution=["5"] * 3, entropy=[0.1] * 8),
    "rows": as_rows(lines()),
    "one line for a step": [{**line, "step": line["step"][:1] * 8} for line in lines()],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("whole", [True, False])
def test_a_log_of_ms_swift(form: str, whole: bool, tmp_path: Path, printed: Printed) -> None:
    path = logs.jsonl(tmp_path / "output" / "completions.jsonl", FORMS[form])
    (path.parent / "args.json").write_text('{\n  "model": "x"\n}', encoding="utf-8")
    out = printed(path.parent if whole else path)
    assert "Read as ms-swift." in out
    assert TOLD in out
    assert "the reward is the sum of MathAccuracy, Format (" in out
    assert "2 of 4 groups (50.0 %) are dead: 2 with equal rewards" in out
    assert "explained bit for bit by trl-grpo" in out


def test_lists_logged_as_rows_and_logged_again(tmp_path: Path, printed: Printed) -> None:
    rows = [
        {name: row[name] for name in ("gen_step", "prompt", "completion")} | {"reward": row["MathAccuracy"]}
        for row in as_rows(lines("gen_step"))
    ]
    out = printed(logs.jsonl(tmp_path / "completions.jsonl", rows))
    assert TOLD in out
    assert "2 of 4 groups (50.0 %) are dead" in out
    # ms-swift keeps what it logged: a step that sampled nothing logs the batch before once more.
    first, second = lines()
    path = logs.jsonl(tmp_path / "1" / "completions.jsonl", [first, first | {"step": ["2"] * 8}, second])
    out = printed(path)
    assert TOLD in out
    assert "the same batch logged again, and is left out (1 line)" in out


def test_a_dump_of_roll(tmp_path: Path, printed: Printed) -> None:
    for step in (9, 10):
        line = {
            "global_step": [step] * 8,
            "id": [str(at // 4) for at in range(8)],
            "difficulty": [3.0] * 8,
            "prompt": ["q0"] * 4 + ["q1"] * 4,
            "messages": ["[]"] * 8,
            "responses": [f"answer {at}" for at in range(8)],
            "scores": REWARDS[step - 8],
        }
        logs.jsonl(tmp_path / f"rollout_dump_data.step_{step}.jsonl", [line])
    out = printed(tmp_path)
    assert "Read as roll." in out
    assert TOLD in out
    assert "the reward is the sum of scores (" in out
    batches = audit.read(tmp_path)
    assert [step for batch in batches for step in batch.step.tolist()] == [9, 9, 10, 10]


@pytest.mark.parametrize("whole", [True, False])
def test_lists_with_a_map(whole: bool, tmp_path: Path, printed: Printed) -> None:
    path = logs.jsonl(tmp_path / "completions.jsonl", lines())
    given = "reward=MathAccuracy,group=prompt,step=step,advantage=advantages,response=completion"
    out = printed(tmp_path if whole else path, "--map", given)
    assert TOLD in out
    assert "explained bit for bit by trl-grpo" in out


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet"])
def test_a_row_for_each_group(name: str, tmp_path: Path, printed: Printed) -> None:
    chat = [{"role": "user", "content": "?"}] * 4
    rows = [
        {"group": f"q{at}", "step": at // 2, "reward": REWARDS[1 + at % 2][:4], "prompt": chat}
        for at in range(4)
    ]
    path = tmp_path / name
    if name == "a.json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif name == "a.jsonl":
        logs.jsonl(path, rows)
    else:
        logs.parquet(path, {key: [row[key] for row in rows] for key in rows[0]})
    out = printed(path)
    assert TOLD in out
    assert "2 of 4 groups (50.0 %) are dead" in out


@pytest.mark.parametrize(
    "change",
    [
        {"completion": ["a"]},
        {"MathAccuracy": [1.0] * 7},
        {"MathAccuracy": ["high"] * 8, "Format": ["low"] * 8},
        {"step": ["1"] * 9},
        {"advantages": ["?"] * 8},
    ],
)
def test_lists_that_do_not_fit_are_one_line(change: dict[str, Any], tmp_path: Path, printed: Printed) -> None:
    path = logs.jsonl(tmp_path / "completions.jsonl", [lines()[0] | change])
    err = printed(path, code=5)
    assert str(path) in err
    assert find(path)[0].name == "ms-swift"


def test_mapped_lists_that_do_not_fit_are_one_line(tmp_path: Path, printed: Printed) -> None:
    path = logs.jsonl(tmp_path / "a.jsonl", [{"group": ["a", "b"], "reward": [0.0, 1.0, 1.0]}])
    assert f"{path}:1: not a rollout (lists of different lengths: group" in printed(path, code=5)

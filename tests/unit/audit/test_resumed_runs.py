"""A step that comes again: of a run that was resumed, of ranks and tasks with own files, of late rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command import Capture
from tests.unit.audit import logs

from search_to_signal import audit
from search_to_signal.audit import live
from search_to_signal.audit.agreement import apply, step_batches
from search_to_signal.audit.atlas import get_entry
from search_to_signal.audit.groups import whole_steps
from search_to_signal.cli import main

pytestmark = pytest.mark.slow

Name = Callable[[int, int], Any]
Rows = list[dict[str, Any]]


def steps(first: int, end: int, seed: int = 0, name: Name | None = None, size: int = 4) -> Rows:
    """Three groups in each step, with GRPO's advantages; a seed is a sampling."""
    stream = np.random.default_rng([seed, first])
    found: Rows = []
    for step in range(first, end):
        for group in range(3):
            rewards = stream.integers(0, 2, size).astype(np.float64)
            rewards[:2] = 0.0, 1.0
            advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
            called = name(step, group) if name else f"q{step}-{group}"
            found += [
                {"group": called, "step": step, "reward": reward, "advantage": advantage}
                for reward, advantage in zip(rewards.tolist(), advantages.tolist(), strict=True)
            ]
    return found


def of_seed(seed: int) -> Name:
    """Names that no other sampling has."""
    return lambda step, group: f"{seed}/{step}/{group}"


def told(path: Path, capsys: Capture) -> str:
    """What the command prints of a log."""
    assert main(["audit", str(path)]) == 0
    return capsys.readouterr().out


RESUMED: dict[str, tuple[Rows, str]] = {
    "the same groups": (
        [*steps(1, 6), *steps(4, 8, 1)],
        "27 groups with 108 completions in 7 steps (groups: 27 of 4)",
    ),
    "groups by other names": (
        [*steps(1, 6, 0, of_seed(0)), *steps(4, 8, 1, of_seed(1))],
        "27 groups with 108 completions in 7 steps (groups: 27 of 4)",
    ),
    "groups that are counted in each step": (
        [*steps(1, 6, 0, lambda _, group: group), *steps(4, 8, 1, lambda _, group: group)],
        "27 groups with 108 completions in 7 steps (groups: 27 of 4)",
    ),
    "from the start": (
        [*steps(1, 4), *steps(1, 4, 1)],
        "18 groups with 72 completions in 3 steps (groups: 18 of 4)",
    ),
    "twice": (
        [*steps(1, 6), *steps(4, 8, 1), *steps(3, 9, 2)],
        "45 groups with 180 completions in 8 steps (groups: 45 of 4)",
    ),
    "stopped within a step": (
        [*steps(1, 6)[:-5], *steps(5, 8, 1)],
        "23 groups with 91 completions in 7 steps (groups: 1 of 3, 22 of 4)",
    ),
}


@pytest.mark.parametrize("kind", RESUMED)
@pytest.mark.parametrize("container", ["jsonl", "csv", "parquet"])
def test_what_a_resumed_run_sampled_again_is_a_step_of_its_own(
    kind: str, container: str, tmp_path: Path, capsys: Capture
) -> None:
    rows, size = RESUMED[kind]
    path = tmp_path / f"log.{container}"
    if container == "jsonl":
        logs.jsonl(path, rows)
    elif container == "csv":
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        rows = [row | {"group": str(row["group"])} for row in rows]
        logs.parquet(path, {name: [row[name] for row in rows] for name in rows[0]})
    out = told(path, capsys)
    assert size in out
    assert "comes again after later ones, as where a run was resumed" in out
    # A group that lacks a row has advantages that nothing explains.
    assert ("The logged advantages are explained" in out) == ("stopped" not in kind)


def test_a_step_that_comes_again_at_once_is_normalized_by_itself(tmp_path: Path) -> None:
    path = logs.jsonl(tmp_path / "log.jsonl", [*steps(1, 4), *steps(3, 5, 1)])
    found = audit.audit(audit.read(path)).steps
    assert [(step.step, step.groups) for step in found] == [(1, 3), (2, 3), (3, 3), (3, 3), (4, 3)]
    for _ in range(2):
        live.write(tmp_path / "1", 3, [0.0, 1.0], ["a", "a"], [-1.0, 1.0])
    findings = audit.audit(audit.read(tmp_path / "1"))
    assert [step.groups for step in findings.steps] == [1, 1]
    assert audit.conclusions(findings)[0].startswith("2 groups with 4 completions in 1 step ")


def delayed(rows: Rows, count: int) -> Rows:
    """The last rows of each step come after those of the next."""
    found: Rows = []
    for step in range(0, len(rows) + 12, 12):
        found += [*rows[step : step + 12 - count], *rows[max(0, step - count) : step]]
    return found


LATE: dict[str, Callable[[Rows], Rows]] = {
    "rows in turn within a step": lambda rows: [
        rows[12 * step + 4 * group + at] for step in range(6) for at in range(4) for group in range(3)
    ],
    "rows of two steps in turn": lambda rows: [
        row for pair in zip(rows[:36], rows[36:], strict=True) for row in pair
    ],
    "a group of each step after the next": lambda rows: delayed(rows, 4),
    "two rows of each step after the next": lambda rows: delayed(rows, 2),
}


@pytest.mark.parametrize("order", LATE)
def test_rows_that_come_late_are_of_their_step(order: str, tmp_path: Path, capsys: Capture) -> None:
    rows = LATE[order](steps(0, 6))
    out = told(logs.jsonl(tmp_path / "log.jsonl", rows), capsys)
    assert "18 groups with 72 completions in 6 steps (groups: 18 of 4)." in out
    assert "resumed" not in out


def test_what_was_logged_twice_is_no_other_sampling(tmp_path: Path, capsys: Capture) -> None:
    rows = [row | {"response": f"answer {at}"} for at, row in enumerate(steps(1, 6))]
    out = told(logs.jsonl(tmp_path / "log.jsonl", [*rows, *rows[36:], *steps(6, 8)]), capsys)
    assert "24 rows stand twice" in out
    assert "resumed" not in out
    # ms-swift appends to the file that is there.
    path = tmp_path / "completions.jsonl"
    for step in (1, 2, 3, 2, 3):
        line = {
            "step": [str(step)] * 4,
            "prompt": [f"q{step}"] * 4,
            "completion": ["a", "b", "c", "d"],
            "Right": [0.0, 1.0, 0.0, 1.0],
            "advantages": [-0.8658754, 0.8658754] * 2,
        }
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    out = told(path, capsys)
    assert "5 groups with 20 completions in 3 steps (groups: 5 of 4)." in out
    assert "step 2 comes again after later ones" in out


SIDE_BY_SIDE: dict[str, tuple[dict[str, Rows], str]] = {
    "ranks with groups of their own": (
        {f"rank_{rank}.jsonl": steps(0, 4, rank, of_seed(rank)) for rank in range(2)},
        "24 groups with 96 completions in 4 steps (groups: 24 of 4)",
    ),
    "ranks that count their groups": (
        {f"rank_{rank}.jsonl": steps(0, 4, rank, lambda _, group: group) for rank in range(2)},
        "24 groups with 96 completions in 4 steps (groups: 24 of 4)",
    ),
    "ranks that share groups": (
        {f"rank_{rank}.jsonl": steps(0, 4, rank, size=2) for rank in range(2)},
        "12 groups with 48 completions in 4 steps (groups: 12 of 4)",
    ),
    "directories of ranks": (
        {f"rank_{rank}/rollouts.jsonl": steps(0, 4, rank, of_seed(rank)) for rank in range(2)},
        "24 groups with 96 completions in 4 steps (groups: 24 of 4)",
    ),
    "a file of each task": (
        {f"{at // 3}/{at}.jsonl": steps(0, 3)[4 * at : 4 * at + 4] for at in range(9)},
        "9 groups with 36 completions in 3 steps (groups: 9 of 4)",
    ),
}


@pytest.mark.parametrize("kind", SIDE_BY_SIDE)
@pytest.mark.parametrize("together", [True, False])
def test_a_step_in_several_files_is_one_step(
    kind: str, together: bool, tmp_path: Path, capsys: Capture
) -> None:
    files, size = SIDE_BY_SIDE[kind]
    for name, rows in files.items():
        logs.jsonl(tmp_path / name, rows)
    out = told(tmp_path, capsys) if together else audit.conclusions(audit.audit(audit.read(tmp_path)))[0]
    assert size in out
    if together:
        assert "rows of one step in several files" in out
        assert ("spread over several places" in out) == ("share groups" in kind)


def test_a_batch_normalizer_sees_the_whole_step(tmp_path: Path) -> None:
    parts = [steps(0, 3, rank, of_seed(rank)) for rank in range(2)]
    for rank, rows in enumerate(parts):
        logs.jsonl(tmp_path / "ranks" / f"rank_{rank}.jsonl", rows)
    rows = sorted([*parts[0], *parts[1]], key=lambda row: row["step"])
    entry = get_entry("trl-grpo-batch")
    found = []
    for path in (tmp_path / "ranks", logs.jsonl(tmp_path / "all.jsonl", rows)):
        batches = list(whole_steps(audit.read(path)))
        found.append([value for one in batches for value in apply(entry, step_batches(one)).tolist()])
    assert found[0] == found[1]
    (batch, *_) = whole_steps(audit.read(tmp_path / "ranks"))
    assert {Path(batch.source_of(row)).name for row in range(24)} == {"rank_0.jsonl", "rank_1.jsonl"}
    for rank, weight in enumerate((1.0, 0.5)):
        parts = {"weights": {"right": weight}, "group": str(rank), "step": 1}
        rows = [{**parts, "reward": weight * at, "components": {"right": at}} for at in range(2)]
        logs.jsonl(tmp_path / "1" / f"rank_{rank}.jsonl", rows)
    (batch,) = audit.read(tmp_path / "1")
    assert (batch.components["right"] * batch.weights["right"]).tolist() == batch.reward.tolist()


@pytest.mark.parametrize("names", [("run.jsonl", "run_resumed.jsonl"), ("b.jsonl", "a.jsonl")])
@pytest.mark.parametrize("own", [True, False])
def test_the_second_file_of_a_resumed_run(
    names: tuple[str, str], own: bool, tmp_path: Path, capsys: Capture
) -> None:
    for seed, (name, bounds) in enumerate(zip(names, ((0, 6), (4, 9)), strict=True)):
        logs.jsonl(tmp_path / name, steps(*bounds, seed, of_seed(seed) if own else None))
    out = told(tmp_path, capsys)
    assert "33 groups with 132 completions in 9 steps (groups: 33 of 4)." in out
    assert f"{names[1]} goes back to step 4" in out

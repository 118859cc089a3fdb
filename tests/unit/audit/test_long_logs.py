"""A long log reads as a short one does, however it is cut; where a part speaks for all, that is said."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from tests.command import Command, Patch
from tests.unit.audit import logs

from search_to_signal import audit
from search_to_signal.audit import findings as run_audit
from search_to_signal.audit.agreement import agreement, reference_of
from search_to_signal.audit.flags import group_flags
from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.importers import neutral, read
from search_to_signal.audit.importers import streams as lines
from search_to_signal.audit.importers.base import ReadOptions, ScatteredGroupsError
from search_to_signal.base.numerics import midranks
from search_to_signal.cli import audit as command
from search_to_signal.cli import main

pytestmark = pytest.mark.slow


def rows(groups: int, seed: int = 1) -> list[dict[str, Any]]:
    """Groups of one to seven with parts of the reward, one of which is weighed anew now and then."""
    stream = np.random.default_rng(seed)
    found = []
    for group in range(groups):
        for _ in range(int(stream.integers(1, 8))):
            parts = {"right": float(stream.integers(0, 2)), "style": float(stream.uniform())}
            weights = {"right": 1.0, "style": 0.5 if group < groups // 2 else 0.25}
            found.append(
                {
                    "group": group,
                    "step": group // 8,
                    "reward": sum(parts[name] * weights[name] for name in parts),
                    "response": str(int(stream.integers(0, 4))),
                    "label": "odd" if group % 2 else None,
                    "components": parts,
                    "weights": weights,
                }
            )
    return found


def columns(batches: list[RewardGroups]) -> dict[str, list[Any]]:
    """All that batches hold, end to end: sizes, steps, rewards, classes, weighted parts, equal responses."""
    responses = np.concatenate([one.response for one in batches])
    first: dict[int, int] = {}
    return {
        "sizes": [size for one in batches for size in one.sizes.tolist()],
        "steps": [step for one in batches for step in one.step.tolist()],
        "rewards": [reward for one in batches for reward in one.reward.tolist()],
        "positions": [at for one in batches for at in one.position.tolist()],
        "labels": [one.label.names[code] for one in batches for code in one.label.code],
        "parts": [
            value
            for one in batches
            for value in sum(one.weights[name] * part for name, part in one.components.items())
        ],
        "responses": [first.setdefault(one, len(first)) for one in responses.tolist()],
    }


@pytest.mark.parametrize("chunk", [1, 700, 1 << 20])
@pytest.mark.parametrize("limit", [1, 5, 40, 1 << 16])
def test_a_log_is_the_same_however_it_is_cut(
    chunk: int, limit: int, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(lines, "CHUNK", chunk)
    given = rows(60)
    path = logs.jsonl(tmp_path / "a.jsonl", given)
    batches = list(read(path, options=ReadOptions(rows=limit)))
    found = columns(batches)
    sizes = np.unique([row["group"] for row in given], return_counts=True)[1]
    assert found["sizes"] == sizes.tolist()
    assert found["rewards"] == [row["reward"] for row in given]
    assert found["parts"] == pytest.approx(found["rewards"])
    assert found["positions"] == list(range(1, len(given) + 1))
    assert found["labels"] == [row["label"] or "" for row in given]
    first: dict[str, int] = {}
    assert found["responses"] == [first.setdefault(row["response"], len(first)) for row in given]
    assert all(len(one.reward) <= limit or len(one.step) == 1 for one in batches)
    if limit == 40:
        assert len(batches) < len(given) / 30


@pytest.mark.parametrize("odd", ['{"group": 70, "reward": NaN}', "", '{"group": 70.0, "reward": true}'])
def test_a_line_of_another_kind_changes_no_other(odd: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(lines, "CHUNK", 700)
    given = rows(30)
    path = logs.jsonl(tmp_path / "a.jsonl", given)
    text = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*text[:50], odd, *text[50:]]) + "\n", encoding="utf-8")
    found = columns(list(read(path)))
    assert [at for at in found["positions"] if at != 51] == [*range(1, 51), *range(52, len(given) + 2)]
    kept = [reward for at, reward in zip(found["positions"], found["rewards"], strict=True) if at != 51]
    assert sorted(kept) == sorted(row["reward"] for row in given)


AGAIN = {
    "a group of the first step": {"group": 0, "step": 0, "reward": 1.0},
    "a new group of the first step": {"group": 999, "step": 0, "reward": 1.0},
    "a group of the last step": {"group": 59 - 1, "step": 7, "reward": 1.0},
}


@pytest.mark.parametrize("again", AGAIN)
def test_a_group_that_comes_again_is_one_group(
    again: str, tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lines, "CHUNK", 700)
    given = rows(60)
    late = logs.jsonl(tmp_path / "late.jsonl", [*given, AGAIN[again]])
    with pytest.raises(ScatteredGroupsError, match="late.jsonl"):
        list(read(late, options=ReadOptions(rows=16, together=True)))
    ordered = sorted([*given, AGAIN[again]], key=lambda row: (row["step"], row["group"]))
    reports = []
    for path in (late, logs.jsonl(tmp_path / "sorted.jsonl", ordered)):
        assert main(["audit", str(path), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        reports.append({name: report[name] for name in ("groups", "sizes", "statuses")})
    assert reports[0] == reports[1]


def test_groups_that_stand_together_are_read_once(tmp_path: Path, monkeypatch: Patch) -> None:
    given = [*rows(30), {"group": 30, "step": 9, "reward": 1.0, "other": "column"}]
    path = logs.jsonl(tmp_path / "a.jsonl", given)
    read_again = Mock(side_effect=AssertionError)
    monkeypatch.setattr(neutral, "_keys", read_again)
    assert main(["audit", str(path)]) == 0
    batches = list(read(path, options=ReadOptions(rows=16, together=True)))
    assert columns(batches)["rewards"] == [row["reward"] for row in given]


def logged(path: Path, steps: int, wrong: int | None = None) -> Path:
    """Steps of four groups with GRPO's advantages; those of one step may be another's."""
    stream = np.random.default_rng(3)
    found = []
    for step in range(steps):
        for group in range(4):
            reward = stream.uniform(size=4)
            scale = 1.0 if step == wrong else reward.std(ddof=1) + 1e-4
            found += [
                {"group": group, "step": step, "reward": one, "advantage": (one - reward.mean()) / scale}
                for one in reward
            ]
    return logs.jsonl(path, found)


@pytest.fixture
def _few(monkeypatch: Patch) -> None:
    """Every entry is compared with 16 groups, then with one in eight."""
    monkeypatch.setattr(run_audit, "_ALL_COMPARED", 16)
    monkeypatch.setattr(run_audit, "_ONE_IN", 8)


@pytest.mark.usefixtures("_few")
def test_what_explains_is_compared_with_all(tmp_path: Path) -> None:
    found = audit.audit(read(logged(tmp_path / "a.jsonl", 100), options=ReadOptions(rows=16)))
    assert "trl-grpo" in found.explaining
    assert found.agreements["trl-grpo"].groups == 400
    seen = found.agreements["rs-grpo"].groups
    assert 50 <= seen <= 60
    (told,) = [one for one in found.assumptions if one.key == run_audit.IN_PART]
    assert told.counts == {"groups": 400, "compared": seen}


@pytest.mark.usefixtures("_few")
@pytest.mark.parametrize("wrong", [37, 99])
def test_one_wrong_step_anywhere_is_found(wrong: int, tmp_path: Path) -> None:
    """Nothing explains a log of which a step that no other entry sees was made otherwise."""
    found = audit.audit(read(logged(tmp_path / "a.jsonl", 100, wrong), options=ReadOptions(rows=16)))
    assert found.explaining == ()
    first = found.agreements["trl-grpo"].first
    assert first is not None
    assert first.place.step == wrong


def test_a_short_log_is_compared_whole(tmp_path: Path) -> None:
    found = audit.audit(read(logged(tmp_path / "a.jsonl", 40)))
    assert {one.groups for name, one in found.agreements.items() if name != "trl-grpo"} >= {160}
    assert not [one for one in found.assumptions if one.key == run_audit.IN_PART]


@pytest.mark.parametrize(
    ("reference", "computed", "turned"),
    [
        ([0.0, 0.0, 1.0], [5.0, 1.0, 3.0], 1),
        ([0.0, 0.0, 1.0], [1.0, 5.0, 3.0], 1),
        ([0.0, 1.0, 1.0], [2.0, 3.0, 1.0], 1),
        ([0.0, 0.0, 1.0], [1.0, 3.0, 3.0], 0),
        ([0.0, 1.0, 2.0], [0.0, 1.0, 1.0 - 1e-9], 0),
        ([0.0, 1.0, 2.0], [3.0, 2.0, 1.0], 1),
        ([0.0, 1e-12, 2.0], [1.0, 0.0, 2.0], 0),
        ([0.0, 1.0, 2.0], [0.0, math.nan, -1.0], 0),
    ],
)
def test_groups_that_are_ordered_otherwise(
    reference: list[float], computed: list[float], turned: int
) -> None:
    groups = audit.of_arrays([*reference, 0.0, 1.0], [3, 2], advantage=[*reference, 0.0, 1.0])
    known = reference_of(groups, groups.advantage, group_flags(groups, groups.advantage))
    assert agreement(known, np.array([*computed, 0.0, 1.0])).turned == turned


def test_ranks_of_a_large_group_take_no_square() -> None:
    """Of one group of 100,000, ranks come in less than the 20 s that comparing all pairs would take."""
    values = np.random.default_rng(1).integers(0, 50, (1, 100_000)).astype(float)
    begun = time.process_time()
    ranks = midranks(values)
    assert time.process_time() - begun < 2.0
    assert ranks.sum() == 100_000 * 100_001 / 2


def test_a_long_read_says_how_far_it_is(tmp_path: Path, monkeypatch: Patch, s2s: Command) -> None:
    monkeypatch.setattr(command, "PLAIN_SECONDS", 0.0)
    said = s2s("audit", logged(tmp_path / "a.jsonl", 20), "--json")
    out, err = said.out, said.err
    assert json.loads(out)["groups"] == 80
    assert err.splitlines()[-1].startswith("s2s: audited 80 groups, 320 completions in ")


def test_equal_texts_are_equal_in_every_process() -> None:
    """What is counted as a repeat does not hang on the salt of Python's hashes."""
    code = (
        "from search_to_signal.audit.importers.rows import digest, digests\n"
        "texts = ['a', 'b', 'a', None, '', 'b' * 1000]\n"
        "print([digest(t) == d for t, d in zip(texts, digests(texts).tolist())], "
        "digest('a') == digest('b'), digest(None), digest('') != 0)"
    )
    said = {
        subprocess.check_output([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, text=True)
        for seed in ("1", "2")
    }
    assert said == {f"{[True] * 6} False 0 True\n"}

"""prime-rl: what was sampled joined with what was trained, in both layouts of its runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.audit import logs
from tests.unit.audit.logs import counts, statuses, whole

from search_to_signal import audit
from search_to_signal.audit.importers import read
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.base.errors import RecordError

Rewards = Mapping[str, Sequence[float]]


def episode(group: str, member: int, reward: float | None, step: int = 3, **info: Any) -> dict[str, Any]:
    """One episode of one trace, which failed where it has no reward."""
    name = f"{group}-{member}"
    trace = {
        "id": f"t-{name}",
        "nodes": [
            {"message": {"role": "user", "content": group}, "mask": [False]},
            {"message": {"role": "assistant", "content": name}, "sampled": True, "mask": [True, True]},
        ],
        "rewards": {"correct": {"score": 0.5 if reward is None else reward, "weight": 1.0}},
        "info": info,
        "ok": reward is not None,
        "errors": [] if reward is not None else [{"type": "SandboxError"}],
        "stop_condition": "agent_completed",
    }
    run = {"type": "train", "id": "r", "work": {"type": info.get("kind", "train"), "step": step}}
    return {
        "id": f"e-{name}",
        "env": {"id": "math"},
        "task": {"type": "Math"},
        "group": {"id": group},
        "run": run,
        "ok": reward is not None,
        "traces": [trace],
    }


def cohort(run: Path, step: int, name: str, episodes: Sequence[dict[str, Any]]) -> Path:
    """The file of ``all`` or of ``effective``."""
    return logs.jsonl(run / "rollouts" / f"step_{step}" / "train" / name / "traces.jsonl", list(episodes))


def centred(rewards: Sequence[float]) -> list[float]:
    """The advantages that prime-rl computes, in float32."""
    given = np.array(rewards, dtype=np.float32)
    return [float(value) for value in given - given.mean()]


def shipped(group: str, given: Sequence[float | None]) -> list[dict[str, Any]]:
    """The episodes of a group that a batch trains: those that did not fail and whose advantage is not 0."""
    advantages = iter(centred([reward for reward in given if reward is not None]))
    members = [(at, r, next(advantages)) for at, r in enumerate(given) if r is not None]
    return [episode(group, at, reward, advantage=a) for at, reward, a in members if a]


def filtered_run(run: Path) -> Path:
    """Case i01: ten groups of four were sampled, seven of them tie, and three were trained."""
    rewards = {f"g{n}": [1.0] * 4 if n < 7 else [1.0, 0.0, 0.0, 1.0] for n in range(10)}
    sampled = [episode(group, at, r) for group, given in rewards.items() for at, r in enumerate(given)]
    cohort(run, 3, "all", sampled)
    cohort(run, 3, "effective", [one for group, given in rewards.items() for one in shipped(group, given)])
    return run


def test_a_step_is_read_from_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number stands in no path that is relative to it, and ``all`` is still beside ``effective``."""
    monkeypatch.chdir(filtered_run(tmp_path) / "rollouts" / "step_3")
    groups = whole(Path())
    assert (len(groups.step), set(groups.step.tolist()), int(groups.masked.sum())) == (10, {3}, 28)


@pytest.mark.parametrize("below", ["", "rollouts", "rollouts/step_3", "rollouts/step_3/train"])
def test_what_was_filtered_before_training_is_waste(tmp_path: Path, below: str) -> None:
    """Case i01: 28 of 40 completions bought nothing, and the page said 0 %: it had the survivors' number."""
    groups = whole(filtered_run(tmp_path) / below)
    assert groups.sizes.tolist() == [4] * 10
    assert (int(groups.masked.sum()), int(groups.has_advantage.sum())) == (28, 12)
    assert counts(groups, "filtered") == {"traces": 40, "not trained": 28}
    found = audit.audit(groups)
    assert found.signal.waste == pytest.approx(0.7)
    assert "prime-rl-grpo" in found.explaining


def test_a_file_of_a_run_is_read_as_it_is_and_says_what_it_cannot_show(tmp_path: Path) -> None:
    """``all`` by itself has every group, ``effective`` the survivors: that is said, not passed as the run."""
    step = filtered_run(tmp_path) / "rollouts" / "step_3" / "train"
    everything, survivors = (whole(step / name / "traces.jsonl") for name in ("all", "effective"))
    assert (len(everything.step), bool(everything.masked.any())) == (10, False)
    assert counts(survivors, "survivors") == {"groups": 3}
    assert "survivors" not in {one.key for one in everything.assumptions}
    # Where ``all`` was not kept nobody knows what was filtered; lone survivors stay groups of one.
    lone = [episode("g", 0, 1.0, advantage=0.0), episode("h", 0, 1.0, advantage=0.5)]
    cohort(tmp_path / "1", 3, "effective", lone)
    groups = whole(tmp_path / "1")
    assert groups.sizes.tolist() == [1, 1]
    assert groups.advantage.tolist() == [0.0, 0.5]
    assert counts(groups, "survivors") == {"groups": 2}
    assert not groups.masked.any()


def test_what_arrives_in_one_step_may_be_trained_in_the_next(tmp_path: Path) -> None:
    """A group belongs to the step that trained it, whenever its traces came; one that waits is left out."""
    given = [1.0, 0.0, 0.0, 1.0]
    late = [episode("late", at, r) for at, r in enumerate(given)]
    cohort(tmp_path, 3, "all", [*late[:2], *(episode("tie", at, 1.0) for at in range(4))])
    cohort(tmp_path, 4, "all", late[2:])
    cohort(tmp_path, 5, "all", [episode("waits", 0, 1.0)])
    cohort(tmp_path, 4, "effective", shipped("late", given))
    groups = whole(tmp_path)
    assert (sorted(groups.name), groups.step.tolist()) == (["late", "tie"], [4, 4])
    assert groups.masked.tolist() == (~groups.has_advantage).tolist()
    assert counts(groups, "waiting") == {"groups": 1}
    cohort(tmp_path / "1", 3, "all", [episode("g", at, r) for at, r in enumerate(given)])
    cohort(tmp_path / "1", 3, "effective", shipped("g", given)[:3])
    cohort(tmp_path / "1", 4, "effective", shipped("g", given)[3:])
    groups = whole(tmp_path / "1")
    assert (groups.sizes.tolist(), groups.step.tolist(), bool(groups.masked.any())) == ([4], [3], False)
    assert "prime-rl-grpo" in audit.audit(groups).explaining
    assert whole(tmp_path / "1" / "rollouts" / "step_3").sizes.tolist() == [4]


def test_names_that_begin_again_in_every_step_are_no_group(tmp_path: Path) -> None:
    for step in (3, 4):
        cohort(tmp_path, step, "all", [episode(g, at, float(at)) for g in "gh" for at in (0, 1)])
        cohort(tmp_path, step, "effective", shipped("g", [0.0, 1.0]))
    groups = whole(tmp_path)
    assert groups.step.tolist() == [3, 3, 4, 4]
    assert groups.sizes.tolist() == [2] * 4
    assert groups.masked.reshape(4, 2).all(axis=1).tolist() == [False, True, False, True]


def test_traces_without_credit_or_that_failed(tmp_path: Path) -> None:
    given = [1.0, 0.5, 0.5, 0.0]
    cohort(tmp_path, 3, "all", [episode("g", at, r) for at, r in enumerate(given)])
    cohort(tmp_path, 3, "effective", shipped("g", given))
    groups = whole(tmp_path)
    assert groups.masked.tolist() == [False, True, True, False]
    assert "prime-rl-grpo" in audit.audit(groups).explaining
    # prime-rl takes means over what did not fail; what failed was generated and teaches nothing.
    given: list[float | None] = [1.0, None, 0.0, 0.0]
    cohort(tmp_path / "1", 3, "all", [episode("g", at, r) for at, r in enumerate(given)])
    cohort(tmp_path / "1", 3, "effective", shipped("g", given))
    groups = whole(tmp_path / "1")
    assert groups.masked.tolist() == [False, True, False, False]
    assert np.isnan(groups.reward).tolist() == [False, True, False, False]
    assert statuses(groups)[1] == "SandboxError"
    found = audit.audit(groups)
    assert "prime-rl-grpo" in found.explaining
    assert found.signal.waste == pytest.approx(0.25)
    # orjson writes NaN as null: a batch of NaN was trained, which is not the same as no advantage.
    cohort(tmp_path / "2", 3, "all", [episode("g", at, float(at)) for at in (0, 1)])
    cohort(tmp_path / "2", 3, "effective", [episode("g", at, float(at), advantage=None) for at in (0, 1)])
    groups = whole(tmp_path / "2")
    assert groups.has_advantage.all()
    assert np.isnan(groups.advantage).all()


def test_a_part_of_the_reward_is_left_out_of_groups_in_which_a_trace_failed(tmp_path: Path) -> None:
    """The rewards of those that count are tried without each part, whatever weight it had."""
    logs.prime_traces(tmp_path)
    found = audit.audit(read(tmp_path))
    assert {name: knob.groups for name, knob in found.knobs.items()} == {
        "all rewards times 10": 1,
        "component correct": 1,
        "component style": 1,
    }
    assert [found.knobs[f"component {name}"].changed for name in ("correct", "style")] == [1, 0]


def test_traces_that_were_not_trained_are_no_rollouts(tmp_path: Path) -> None:
    judged = [episode("g", at, float(at)) for at in (0, 1)]
    for one in judged:
        one["traces"].append({**one["traces"][0], "id": f"j-{one['id']}", "agent": {"trainable": False}})
    assert whole(cohort(tmp_path, 3, "all", judged)).sizes.tolist() == [2]
    path = tmp_path / "1" / "rollouts" / "step_3" / "eval" / "effective" / "traces.jsonl"
    groups = whole(logs.jsonl(path, [episode("g", at, 1.0, kind="eval") for at in (0, 1)]))
    assert counts(groups, "evaluation") == {"groups": 1}
    assert whole(tmp_path / "1").sizes.tolist() == [2]


def sealed(data: bytes) -> bytes:
    """A chunk as prime-rl seals it: frames that are read one by one, and a table of them that is no data."""
    arrow = pytest.importorskip("pyarrow")
    half = len(data) // 2
    frames = b"".join(arrow.compress(part, "zstd", asbytes=True) for part in (data[:half], data[half:]))
    table = b"\x00" * 9
    return frames + b"\x5e\x2a\x4d\x18" + len(table).to_bytes(4, "little") + table


def lines(records: Sequence[dict[str, Any]]) -> bytes:
    """Records as the lines of a file."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def stream(run: Path, chunked: bool, scalar: bool = True) -> Path:
    """Steps 3 and 4: one group tied, one trained, an evaluation between them, and indices beside them.

    Without ``scalar`` the advantages are those of tokens, of four decimals.
    """
    given = [1.0, 0.0, 0.0]
    arrived: dict[str, Any] = {"kind": "train", "arrival": {"step": 3, "time": 0.0}}
    records = [
        *(episode("tie", at, 1.0, **arrived) for at in range(3)),
        episode("eval", 0, 1.0, **{**arrived, "kind": "eval"}),
        *(episode("g", at, r, **arrived) for at, r in enumerate(given)),
    ]
    updates = [
        {
            "version": 1,
            "trace_id": f"t-g-{at}",
            "info": {"effective": True, "ship": {"step": 4}, **({"advantage": a} if scalar else {})},
            "branches": [{"index": 0, "advantages": [0.0, round(a, 4), round(a, 4)]}],
        }
        for at, a in enumerate(centred(given))
    ]
    masks = [{"trace_id": "t-g-0", "info": {}, "branches": [{"index": 0, "is_masked": [None, True, True]}]}]
    traces = run / "monitors" / "file" / "traces"
    put(traces / "stream.index.jsonl", lines([{"id": "x", "offset": 0}]))
    index = [{"trace_id": "t-tie-0", "info": {"ship": {}}}]
    put(traces / "annotations" / "orchestrator.index.jsonl", lines(index))
    put(run / "monitors" / "file" / "metrics.jsonl", lines([{"step": 3, "loss": 0.5}]))
    if not chunked:
        put(traces / "annotations" / "orchestrator.jsonl", lines(updates))
        put(traces / "annotations" / "trainer.jsonl", lines(masks))
        return put(traces / "stream.jsonl", lines(records))
    put(traces / "annotations" / "orchestrator" / "00000.jsonl.zst", sealed(lines(updates[:2])))
    put(traces / "annotations" / "orchestrator" / "00001.jsonl", lines(updates[2:]))
    put(traces / "annotations" / "trainer" / "00000.jsonl", lines(masks))
    put(traces / "stream" / "00000.jsonl.zst", sealed(lines(records[:5])))
    return put(traces / "stream" / "00001.jsonl", lines(records[5:]))


@pytest.mark.parametrize("below", ["", "monitors", "monitors/file", "monitors/file/traces"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_stream_is_read_with_its_annotations(tmp_path: Path, chunked: bool, below: str) -> None:
    """The layout since prime-rl#3444 and #3465 was no known log: sealed chunks, a live one, annotations."""
    stream(tmp_path, chunked)
    groups = whole(tmp_path / below)
    assert (groups.name, groups.step.tolist()) == (("tie", "g"), [4, 4])
    assert groups.masked.tolist() == [True] * 3 + [True, False, False]
    assert groups.advantage[3:].tolist() == centred([1.0, 0.0, 0.0])
    assert counts(groups, "evaluations") == {"traces": 1}
    assert groups.position.tolist() == [1, 2, 3, 5, 6, 7]
    assert "prime-rl-grpo" in audit.audit(groups).explaining


def test_a_stream_given_as_a_file_has_its_annotations(tmp_path: Path) -> None:
    for chunked in (False, True):
        groups = whole(stream(tmp_path / str(chunked), chunked))
        assert groups.advantage[np.isfinite(groups.advantage)].tolist()[-2:] == centred([1.0, 0.0, 0.0])[1:]
    # Two different advantages are too few to see rounding by two digits, and enough for 0.6667.
    stream(tmp_path / "1", chunked=False, scalar=False)
    groups = whole(tmp_path / "1")
    assert groups.advantage[3:].tolist() == [0.6667, -0.3333, -0.3333]
    found = audit.audit(groups)
    assert ("prime-rl-grpo" in found.explaining, found.digits) == (True, 4)
    path = stream(tmp_path / "2", chunked=False)
    for file in (path.parent / "annotations").iterdir():
        file.unlink()
    groups = whole(tmp_path / "2")
    assert not groups.masked.any()
    assert not groups.has_advantage.any()


def test_steps_come_whole_from_a_long_run(tmp_path: Path) -> None:
    for step in range(2, 6):
        sampled = [episode(f"{step}-{g}", at, float(at)) for g in range(5) for at in (0, 1)]
        cohort(tmp_path, step, "all", sampled)
        cohort(tmp_path, step, "effective", [episode(f"{step}-0", 1, 1.0, advantage=0.5)])
    batches = read(tmp_path, None, ReadOptions(rows=4))
    steps = [step for batch in batches for step in batch.step.tolist()]
    assert steps == [step for step in range(2, 6) for _ in range(5)]


@pytest.mark.parametrize("info", [7, {"advantage": "x"}, {"advantage": [7]}])
def test_a_damaged_trace_names_its_line(tmp_path: Path, info: Any) -> None:
    shaped = {**episode("g", 0, 1.0), "traces": [{**episode("g", 0, 1.0)["traces"][0], "info": info}]}
    cohort(filtered_run(tmp_path), 3, "effective", [shaped])
    with pytest.raises(RecordError, match=r"effective/traces.jsonl:1: a value does not fit"):
        list(read(tmp_path))


@pytest.mark.parametrize(
    "update",
    [
        {"info": {}},
        {"trace_id": "t", "info": 3},
        {"trace_id": "t", "info": {"ship": 3}},
        {"trace_id": "t", "info": {"advantage": [1]}},
        {"trace_id": "t", "branches": 3},
        {"trace_id": "t", "branches": [{"advantages": ["x"]}]},
    ],
)
def test_a_damaged_annotation_names_its_line(tmp_path: Path, update: dict[str, Any]) -> None:
    path = stream(tmp_path, chunked=False).parent / "annotations" / "orchestrator.jsonl"
    path.write_bytes(lines([update]))
    with pytest.raises(RecordError, match=r"orchestrator.jsonl:1: a value does not fit"):
        list(read(tmp_path))

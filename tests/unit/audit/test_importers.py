"""What a user relies on in every importer, on files built as the frameworks build them."""

import inspect
import json
import math
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed, counts, labels, statuses, whole

from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.importers import FORMATS, find, read
from search_to_signal.audit.importers import neutral as rollouts
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.audit.importers.containers import sniff
from search_to_signal.base.errors import RecordError

NAN = None
TWO_OF_TWO = {"groups": 2, "groups of 2": 2}


@dataclass(frozen=True)
class Known:
    """A log, what is asked of its reader, what of the evidence and of the columns is expected.

    None stands for NaN, and equal numbers for equal responses.
    """

    build: Callable[[Path], Path]
    options: ReadOptions
    evidence: dict[str, dict[str, int]]
    columns: dict[str, Any]


def known(
    build: Callable[[Path], Path],
    options: ReadOptions | None = None,
    evidence: dict[str, dict[str, int]] | None = None,
    **columns: Any,
) -> Known:
    return Known(build, options or ReadOptions(), evidence or {}, columns)


READ: dict[str, Known] = {
    "trl": known(
        logs.trl,
        ReadOptions(label="note", weights={"format": 0.5}),
        **{"sizes": [2, 2], "step": [10, 10], "reward": [0.5, 1.0, 2.5, 3.0], "advantage": [0.5, -0.5] * 2},
        **{
            "labels": ["easy", "hard"] * 2,
            "responses": [1, 2, 3, 1],
            "weights": {"length": 1.0, "format": 0.5},
        },
    ),
    # What TRL 0.15.1 logs: one reward, the step from its text.
    "trl-wandb": known(
        logs.trl_table, sizes=[2, 2], reward=[0.0, 0.25, 0.5, 0.75], step=[10, 10], advantage=[NAN] * 4
    ),
    # A prompt id with an underscore stays whole, and a session of two outputs is one sample.
    "verl": known(
        logs.verl_v1,
        evidence={"outputs_of_sessions": {"rows": 5, "sessions": 4, **TWO_OF_TWO}},
        **{"sizes": [2, 2], "reward": [0.0, 1.0, 0.25, 0.5], "name": ["aa", "b_b"]},
    ),
    # Equal inputs of one step are one group wherever they stand; extras of the reward are there.
    "verl v0": known(
        logs.verl_v0,
        ReadOptions(label="acc"),
        {"equal_inputs": TWO_OF_TWO},
        **{
            "sizes": [2, 2],
            "reward": [0.0, 2.0, 1.0, 3.0],
            "labels": list("0011"),
            "acc": [0.0, 0.0, 1.0, 1.0],
        },
    ),
    "prime-rl": known(
        logs.prime_traces,
        **{"step": [4], "reward": [0.5, 2.5], "advantage": [-1.0, 1.0], "tokens": [2, 2]},
        **{"weights": {"correct": 2.0, "style": 0.5}, "statuses": ["agent_completed"] * 2},
    ),
    # Only trained tokens count: their credit, their number, how many the trust region masked.
    "prime-rl-tokens": known(
        logs.prime_tokens,
        evidence={"sequences_alone": {"sequences": 1}},
        **{
            "advantage": [1.0],
            "tokens": [3],
            "reward": [NAN],
            "is_masked_high": [1.0],
            "importance_ratio": [2.0],
        },
    ),
    # A task is a group of its version's step, whatever the versions of its samples are.
    "areal": known(
        logs.areal,
        evidence={"tasks": {"groups": 1, "groups of 4": 1}},
        **{"sizes": [4], "step": [3], "reward": [0.0, 1.0, 0.0, 1.0], "tokens": [28, 29, 30, 31]},
        tail_version=[3.0, 3.0, 2.0, 2.0],
    ),
    # What was filtered is masked; the step is that of the directory.
    "prime-rl-rollouts": known(
        logs.prime_rollouts,
        **{"sizes": [2, 2], "step": [4, 4], "reward": [0.0, 1.0, 1.0, 1.0], "name": ["uuid 0", "uuid 1"]},
        **{"advantage": [-0.5, 0.5, 0.0, 0.0], "masked": [False, False, True, True]},
        statuses=["stop", "truncated"] * 2,
    ),
    "tinker": known(
        logs.tinker,
        **{"sizes": [2, 1], "reward": [0.25, 1.25, 1.25], "tokens": [7] * 3, "labels": ["math"] * 3},
        components={"steps": [0.0, 1.0, 1.0], "final_reward": [0.25] * 3},
    ),
    # A group of one follows a group of two, and a new update starts a new group.
    "ttt-discover": known(
        logs.ttt,
        evidence={"restarting_index": {"groups": 3, "groups of 1": 1, "groups of 2": 2}},
        **{"sizes": [2, 1, 2], "step": [0, 0, 1]},
    ),
    # Groups by group_index though interleaved; trained tokens by the loss mask.
    "slime": known(
        logs.slime,
        ReadOptions(label="metadata.level"),
        **{"sizes": [2, 2], "step": [9, 9], "reward": [0.0, 0.5, 0.25, 0.75], "tokens": [2] * 4},
        **{"statuses": ["truncated"] * 2 + ["completed"] * 2, "labels": ["hard"] * 4},
    ),
    "theta-evolve": known(logs.theta_evolve, evidence={"consecutive_prompts": TWO_OF_TWO}, sizes=[2, 2]),
    "s2s": known(
        logs.own_records,
        **{"sizes": [2, 2], "step": [1, 2], "reward": [-1.0, 1.5] * 2, "advantage": [-0.5, 0.5] * 2},
        **{"statuses": ["runtime_failure", "valid"] * 2, "admitted": [0, 1] * 2},
        **{"improvement": [NAN, 0.25] * 2, "validity": [0.0, 1.0] * 2, "responses": [1, 2, 1, 2]},
    ),
    # A candidate has the framework's fitness and is compared with its parent; a timeout scores nothing.
    "openevolve": known(
        logs.openevolve,
        **{"sizes": [1, 1], "reward": [0.75, 0.0], "improvement": [0.5, -0.25], "admitted": [-1, -1]},
        **{"statuses": ["ok", "timeout"], "responses": [1, 1]},
    ),
    # Fitness without the map's features, over the parent's; copies are left out, and counted.
    "openevolve-checkpoint": known(
        logs.openevolve_checkpoint,
        evidence={"copies": {"copies": 1, "copies in the archive": 1}},
        **{"sizes": [1] * 5, "step": [0, 1, 2, 3, 4], "reward": [0.25, 0.75, 9.0, 0.0, math.inf]},
        **{"improvement": [0.0, 0.5, 8.75, -0.75, math.inf], "admitted": [0, 1, 0, 0, 1]},
        statuses=["ok", "ok", "error", "timeout", "failed: score inf"],
    ),
    # Groups by what stands before the first trained token; the rewards that were kept.
    "nemo-rl": known(
        logs.nemo_rl,
        **{"step": [3, 3], "sizes": [2, 2], "reward": [0.0, 1.0, 1.0, 1.0], "tokens": [2, 1, 2, 3]},
        **{"advantage": [-0.5, 0.5, 0.0, 0.0], "responses": [1, 2, 1, 3]},
    ),
    # Responses to one prompt stand anywhere; the totals beside them are no rows.
    "skyrl-eval": known(
        logs.skyrl_eval,
        **{"step": [20, 20], "reward": [0.0, 0.5, 1.0, 1.0], "labels": ["aime"] * 4},
        statuses=["stop", "stop", "length", "stop"],
    ),
    "shinka": known(
        logs.shinka,
        evidence={"candidates": {"candidates": 4, "compared": 2, "improved": 1, "admitted": 1}},
        **{"admitted": [0, 1, 0, 0], "improvement": [NAN, 0.5, -0.75, NAN], "responses": [1, 2, 2, 0]},
        statuses=["correct", "correct", "incorrect", "failed: no_patch"],
    ),
    # Failures have no reward, the best file is not read twice, improvement is over the best before.
    "llm4ad": known(
        logs.llm4ad,
        **{"reward": [-0.5, NAN, -0.25, -0.25], "improvement": [NAN, NAN, 0.25, 0.0]},
        **{"statuses": ["ok", "failed", "ok", "ok"], "labels": ["e1"] * 4, "responses": [1, 2, 3, 3]},
    ),
}


def column(groups: RewardGroups, name: str) -> Any:
    """A column as plain values: an array, a metric, or texts."""
    if name in ("weights", "components"):
        return {key: np.asarray(value).tolist() for key, value in getattr(groups, name).items()}
    if name == "responses":
        known = {0: 0}
        return [known.setdefault(code, len(known)) for code in groups.response.tolist()]
    if name in ("labels", "statuses", "name"):
        return {"labels": labels, "statuses": statuses}.get(name, lambda groups: list(groups.name))(groups)
    values = groups.metrics[name] if name in groups.metrics else getattr(groups, name)
    return [None if value != value else value for value in values.tolist()]


@pytest.mark.parametrize("name", READ)
def test_a_format_is_read_as_its_writer_means_it(name: str, tmp_path: Path) -> None:
    log = READ[name]
    groups = whole(log.build(tmp_path), log.options)
    assert {name: column(groups, name) for name in log.columns} == log.columns
    assert {key: counts(groups, key) for key in log.evidence} == log.evidence


def test_the_last_checkpoint_and_every_step_in_its_order(tmp_path: Path) -> None:
    for iteration in (9, 10):
        logs.openevolve_checkpoint(tmp_path, iteration)
    assert whole(tmp_path).source.endswith("checkpoint_10")
    # Step 9 stands before step 100000, which a sort by name would put first.
    for step in (100000, 9, 10):
        logs.trl(tmp_path / "1", step)
    assert [int(batch.step[0]) for batch in read(tmp_path / "1")] == [9, 10, 100000]


@pytest.mark.parametrize("name", READ)
def test_a_log_is_recognized_by_its_columns_and_in_its_directory(name: str, tmp_path: Path) -> None:
    path, name = READ[name].build(tmp_path), name.split()[0]
    assert find(path)[0].name == name
    assert (find(tmp_path)[0].name, find(tmp_path)[1]) == (name, [path])
    assert name in [one.name for one in FORMATS if one.score(sniff(path))]


def test_trl_groups_are_runs_and_the_evidence_shows_it(tmp_path: Path) -> None:
    prompts = ["a", "a", "b", "b", "b", "b", "a", "a"]
    path = logs.trl(tmp_path, prompts=prompts, advantage=[0.5, 0.25] * 4)
    assert counts(whole(path), "consecutive_prompts") == {"groups": 3, "groups of 2": 2, "groups of 4": 1}
    assert any("look like one without --group-size" in one.says for one in whole(path).assumptions)
    assert whole(path, ReadOptions(group_size=2)).sizes.tolist() == [2, 2, 2, 2]
    # As where a prompt comes twice in a row in NeMo-RL or ThetaEvolve; the last may be incomplete.
    rows = [{"step": 5, **logs.sample(at) | {"prompt": name}} for at, name in enumerate("aabbccccddeef")]
    groups = whole(logs.jsonl(tmp_path / "5.jsonl", rows))
    assert groups.sizes.tolist() == [2, 2, 2, 2, 2, 2, 1]
    assert any("several groups" in one.says for one in groups.assumptions)


def test_trl_components_can_be_named(tmp_path: Path) -> None:
    groups = whole(logs.trl(tmp_path), ReadOptions(components=("length",)))
    assert groups.reward.tolist() == [0.0, 1.0, 2.0, 3.0]
    # TRL sums what is there, so nothing else tells that a reward function returned no number.
    assert counts(whole(logs.trl(tmp_path)), "missing_parts") == {"rows": 2}
    named = whole(logs.trl(tmp_path), ReadOptions(components=("length",)))
    assert "missing_parts" not in {one.key for one in named.assumptions}


def test_prime_rl_groups_interleaved_episodes_and_keeps_failures(tmp_path: Path) -> None:
    logs.prime_traces(tmp_path)
    groups = whole(tmp_path / "rollouts" / "step_4" / "train" / "all" / "traces.jsonl")
    assert groups.sizes.tolist() == [2, 2]
    assert groups.reward[:3].tolist() == [0.5, 2.5, 2.5]
    assert math.isnan(groups.reward[3])
    assert statuses(groups)[3] == "SandboxError"
    assert counts(groups, "unscored")["NaN"] == 1
    # Components and weights always give the reward, whatever each row's weights were.
    light = logs.prime_episode("g", 1.0)
    light["traces"][0]["rewards"]["correct"]["weight"] = 4.0
    groups = whole(logs.jsonl(tmp_path / "traces.jsonl", [logs.prime_episode("g", 1.0), light]))
    total = sum(groups.components[name] * weight for name, weight in groups.weights.items())
    assert np.asarray(total).tolist() == groups.reward.tolist() == [2.5, 4.5]


@pytest.mark.parametrize("name", ["advantages", "token_ids", "is_masked_low", "entropy"])
@pytest.mark.parametrize("values", [[1.0], [1.0] * 5, 3])
def test_prime_rl_tokens_of_unequal_lists(tmp_path: Path, name: str, values: Any) -> None:
    file = logs.prime_tokens(tmp_path)
    file.write_text(json.dumps({**json.loads(file.read_text()), name: values}))
    with pytest.raises(RecordError, match=r"rank_0.jsonl:1: a value does not fit"):
        whole(file)


def test_evaluations_say_that_they_are(tmp_path: Path) -> None:
    """Nothing of them was trained, whatever their groups look like."""
    path = logs.tinker(tmp_path)
    given = path.read_text(encoding="utf-8").replace('"train"', '"eval/math"')
    path = path.with_name("eval_math_rollout_summaries.jsonl")
    path.write_text(given, encoding="utf-8")
    assert counts(whole(path), "evaluation") == {"groups": 2}
    path = logs.skyrl_eval(tmp_path / "1")
    path.parent.rename(tmp_path / "1" / "dumped_evals" / "eval_only")
    assert whole(tmp_path / "1").sizes.tolist() == [2, 2]
    for rollout in (10, 9):
        logs.slime(tmp_path / "2", rollout)
    (tmp_path / "2" / "9.jsonl").rename(tmp_path / "2" / "eval_9.jsonl")
    logs.slime(tmp_path / "2", 9)
    assert [path.name for path in find(tmp_path / "2")[1]] == ["9.jsonl", "10.jsonl"]
    assert counts(whole(tmp_path / "2" / "eval_9.jsonl"), "evaluation") == {"groups": 2}


class _Mkdir:
    """What is called when its pickle is read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.directory),)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("whole_directory", [False, True])
def test_a_pickle_is_never_read(packed: bool, whole_directory: bool, tmp_path: Path) -> None:
    pickled, path = pickle.dumps({"samples": [_Mkdir(tmp_path / "made")]}), tmp_path / "9.pt"
    path.write_bytes(pickled)
    if packed:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", pickled)
    with pytest.raises(RecordError) as caught:
        list(read(tmp_path if whole_directory else path))
    assert not (tmp_path / "made").exists()
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.slow  # a shell starts Python
def test_the_refused_dump_says_how_to_convert_it(tmp_path: Path, printed: Printed) -> None:
    torch = pytest.importorskip("torch")
    rows = [json.loads(line) for line in logs.slime(tmp_path).read_text(encoding="utf-8").splitlines()]
    rows[0]["rollout_routed_experts"] = torch.arange(6).reshape(2, 3)
    torch.save({"rollout_id": rows[0].pop("step"), "samples": rows}, tmp_path / "9.pt")
    before = whole(tmp_path / "9.jsonl")
    (tmp_path / "9.jsonl").unlink()
    command = printed(tmp_path, code=5).strip().partition("convert it with python ")[2]
    subprocess.run(f"{sys.executable} {command}", shell=True, cwd=tmp_path, check=True)
    after = whole(tmp_path)
    assert (after.reward.tolist(), after.step.tolist()) == (before.reward.tolist(), before.step.tolist())
    assert after.tokens.tolist() == before.tokens.tolist()


def test_skyrl_steps_of_one_trajectory_are_one_sample(tmp_path: Path) -> None:
    """Step-wise evaluations dump every step: SkyRL counts the last, and steps made groups of their own."""
    path = logs.skyrl_eval(tmp_path)
    row = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    turns = [("q:", "look", 0.0), ("q:look: no", "try", 0.0), ("q:look: notry: done", "4", 1.0)]
    given = [*turns, ("q:", "4", 1.0), ("p1", "4", 0.0), ("p10", "4", 0.0)]
    fields = ("input_prompt", "output_response", "score")
    groups = whole(logs.jsonl(path, [{**row, **dict(zip(fields, one, strict=True))} for one in given]))
    assert groups.sizes.tolist() == [2, 1, 1]
    assert groups.reward.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert counts(groups, "sessions") == {"trajectories": 1, "steps": 3}


@pytest.mark.parametrize("given", [0, 0.0, False, [0.0], "0"])
def test_nemo_rl_masks_samples_that_are_left_out_of_the_loss(tmp_path: Path, given: Any) -> None:
    """Case h01: overlong samples count in their group, and taught in the audit though their loss is 0."""
    path = logs.nemo_rl(tmp_path)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows[1]["sample_loss_mask"] = given
    groups = whole(logs.jsonl(path, rows))
    assert groups.masked.tolist() == [False, True, False, False]
    assert groups.in_loss.tolist() == [True, False, True, True]


def test_nemo_rl_says_what_dynamic_sampling_dropped(tmp_path: Path) -> None:
    """``rewards`` are the first that were sampled: groups of equal ones are not among the rows."""
    path = logs.nemo_rl(tmp_path)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row, sampled in zip(rows, (1.0, 1.0, 0.0, 1.0), strict=True):
        row["rewards"] = [sampled]
    assert counts(whole(logs.jsonl(path, rows)), "filtered_groups") == {"groups": 2, "dropped": 1}
    path = logs.nemo_rl(tmp_path / "1")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    logs.jsonl(path, [{key: value for key, value in row.items() if key != "token_ids"} for row in rows])
    assert whole(path).sizes.tolist() == [2, 2]


@pytest.mark.parametrize("removed", [True, 1, "true"])
def test_slime_removes_what_its_truth_says(tmp_path: Path, removed: Any) -> None:
    """slime asks ``if sample.remove_sample``: whatever is true takes the sample out of the loss."""
    groups = whole(logs.slime(tmp_path, remove_sample=removed))
    assert groups.masked.all()
    assert not whole(logs.slime(tmp_path, remove_sample=0)).masked.any()


def test_slime_samples_cut_from_one_rollout_are_told(tmp_path: Path) -> None:
    """slime counts each of them, and takes the whole step as one group: the page would not show it."""
    assert counts(whole(logs.slime(tmp_path, rollout_id=7)), "cut_rollouts") == {"rollouts": 1, "samples": 4}
    assert "cut_rollouts" not in {one.key for one in whole(logs.slime(tmp_path)).assumptions}
    logs.llm4ad(tmp_path / "1")
    for start, score in ((201, -0.125), (2001, -0.25)):
        record = {"sample_order": start, "function": "k", "score": score, "operator": "e1", "program": ""}
        path = tmp_path / "1" / "samples" / f"samples_{start}~{start + 199}.json"
        path.write_text(json.dumps([record]), encoding="utf-8")
    assert [batch.improvement[-1] for batch in read(tmp_path / "1")] == [0.0, 0.125, -0.125]


def test_a_sequence_that_the_trust_region_masks_whole_is_masked(tmp_path: Path) -> None:
    """prime-rl's loss leaves every token of it out; one masked token is no reason."""
    path = logs.prime_tokens(tmp_path)
    row = json.loads(path.read_text(encoding="utf-8"))
    rows = [row, {**row, "is_masked": [None, True, True, True]}, {**row, "rl_weights": [None, 0.0, 0.0, 0.0]}]
    idle = {**row, "loss_mask": [False] * 4}
    groups = whole(logs.jsonl(path, [*rows, idle]))
    assert groups.masked.tolist() == [False, True, True, False]
    assert groups.in_loss.tolist() == [True, False, False, False]
    assert not groups.has_advantage[3]


@pytest.mark.parametrize(("build", "option"), [(logs.tinker, "constant"), (logs.ttt, "constant")])
def test_groups_that_never_tie_may_have_been_filtered(build: Any, option: str, tmp_path: Path) -> None:
    path = build(tmp_path)
    row = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    place = "group_idx" if "group_idx" in row else "step"
    member = "traj_idx" if "group_idx" in row else "trajectory_index"
    rows = [
        {**row, place: group, member: at, "total_reward": reward}
        for group in range(8)
        for at, reward in enumerate((0.0, 1.0, 1.0))
    ]
    groups = whole(logs.jsonl(path, rows))
    (said,) = [one for one in groups.assumptions if one.key == "no_ties"]
    assert option in said.says
    tied = [{**row, "total_reward": 1.0} if row[place] == 3 else row for row in rows]
    assert "no_ties" not in {one.key for one in whole(logs.jsonl(path, tied)).assumptions}


def test_shinka_changes_nothing(tmp_path: Path) -> None:
    path = logs.shinka(tmp_path)
    before = path.read_bytes()
    whole(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_neutral(kind: str, tmp_path: Path) -> None:
    rows, path = logs.neutral_rows(), tmp_path / f"mine.{kind}"
    if kind == "jsonl":
        logs.jsonl(path, rows)
    else:
        logs.parquet(
            path, {name: [row.get(name) for row in rows] for name in rollouts.COLUMNS if name != "status"}
        )
    groups = whole(path)
    assert groups.sizes.tolist() == [2, 1]
    assert groups.advantage[:2].tolist() == [-1.0, 1.0]
    assert groups.tokens.tolist() == [5, 9, -1]
    assert labels(groups) == ["wrong", "right", ""]
    assert groups.components["format"][2] == 0.5
    assert dict(groups.weights) == {"format": 2.0}


def test_neutral_schema_is_what_is_read() -> None:
    schema = msgspec.json.schema(rollouts.Rollout)
    definition = schema["$defs"]["Rollout"]
    definition["description"] = inspect.cleandoc(definition["description"])
    assert json.loads(rollouts.SCHEMA.read_text(encoding="utf-8")) == schema


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_batches_are_bounded_and_lose_nothing(rows: int, tmp_path: Path) -> None:
    path = logs.ttt(tmp_path)
    batches = list(read(path, options=ReadOptions(rows=rows)))
    assert all(len(batch.reward) <= max(rows, 2) for batch in batches)
    assert [size for batch in batches for size in batch.sizes] == [2, 1, 2]
    assert [r for batch in batches for r in batch.reward] == whole(path).reward.tolist()


@pytest.mark.slow
def test_reading_loads_neither_torch_nor_pyarrow() -> None:
    code = (
        "import sys, search_to_signal.audit.importers; print(sorted({'torch', 'pyarrow'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"

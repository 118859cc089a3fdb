"""Small logs of every format, built as the frameworks' writers build them."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.importers import read
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.records.schema import ArchiveEvent, CompletionRecord, Outcome
from search_to_signal.search.hosts.calm.prompts import CROSSOVER

Printed = Callable[..., str]


def whole(path: Path, options: ReadOptions | None = None, format: str | None = None) -> RewardGroups:
    """A log that is one batch."""
    (batch,) = read(path, format, options)
    return batch


def counts(groups: RewardGroups, key: str) -> dict[str, int]:
    (assumption,) = [one for one in groups.assumptions if one.key == key]
    return dict(assumption.counts)


def labels(groups: RewardGroups) -> list[str]:
    return [groups.label.names[code] for code in groups.label.code]


def statuses(groups: RewardGroups) -> list[str]:
    return [groups.status.names[code] for code in groups.status.code]


def jsonl(path: Path, records: Sequence[object]) -> Path:
    """Records as Python's JSON writer puts them, NaN included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def parquet(path: Path, columns: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def trl(
    directory: Path, step: int = 10, prompts: Sequence[str] = ("a", "a", "b", "b"), **columns_of: Any
) -> Path:
    """One completions file: two reward functions, a text that one of them logged, the advantage."""
    rows = len(prompts)
    columns = {
        "step": [step] * rows,
        "prompt": list(prompts),
        "completion": [f"answer {row % 3} of {step}" for row in range(rows)],
        "length": [float(row) for row in range(rows)],
        "format": [1.0, float("nan")] * (rows // 2),
        "note": ["easy", "hard"] * (rows // 2),
        "advantage": [0.5, -0.5] * (rows // 2),
        **columns_of,
    }
    return parquet(directory / "completions" / f"completions_{step:05d}.parquet", columns)


def trl_table(directory: Path) -> Path:
    """The table that TRL 0.15.1 sends: the step as a text, one reward, no advantage."""
    rows = [["10", prompt, f"answer {row}", row / 4] for row, prompt in enumerate("aabb")]
    table = {"columns": ["step", "prompt", "completion", "reward"], "data": rows}
    path = directory / "media" / "table" / "completions_10_0a1b.table.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(table), encoding="utf-8")
    return path


def verl_v1(directory: Path, step: int = 7) -> Path:
    """Prompt aa with two sessions, prompt b_b with two, of which the second has two outputs."""
    keys = ["aa_0_0", "aa_1_0", "b_b_0_0", "b_b_1_0", "b_b_1_1"]
    scores = [0.0, 1.0, 0.25, 0.5, 0.5]
    rows = [
        {"input": key[:2], "output": key, "gts": None, "score": score, "step": step, "uid": key}
        for key, score in zip(keys, scores, strict=True)
    ]
    return jsonl(directory / f"{step}.jsonl", rows)


def verl_v0(directory: Path, step: int = 3) -> Path:
    """Rows of two prompts, interleaved as balancing leaves them, with what the reward function returned."""
    rows = [{"input": f"q{at % 2}", "output": str(at), "gts": "g", "score": float(at)} for at in range(4)]
    more = [{"step": step, "acc": at % 2} for at in range(4)]
    return jsonl(directory / f"{step}.jsonl", [row | other for row, other in zip(rows, more, strict=True)])


def prime_episode(group: str, score: float, advantage: float | None = None) -> dict[str, Any]:
    """One episode with one trace: a weighted reward and two trained tokens."""
    answer = {"role": "assistant", "content": f"{score}"}
    trace = {
        "task": {"type": "Math"},
        "nodes": [
            {"message": {"role": "user", "content": "?"}, "mask": [False, False]},
            {"message": answer, "sampled": True, "mask": [False, True, True]},
        ],
        "rewards": {"correct": {"score": score, "weight": 2.0}, "style": {"score": 1.0, "weight": 0.5}},
        "metrics": {"turns": 1.0},
        "info": {} if advantage is None else {"advantage": advantage},
        "ok": True,
        "stop_condition": "agent_completed",
    }
    episode = {"id": f"{group}-{score}", "env": {"id": "math"}, "task": {"type": "Math"}}
    return episode | {"group": {"id": group}, "ok": True, "errors": [], "traces": [trace]}


def prime_failure(group: str) -> dict[str, Any]:
    """An episode that ended before its first trace."""
    errors = [{"type": "SandboxError", "message": "gone"}]
    return prime_episode(group, 0.0) | {"id": "x", "task": {}, "ok": False, "errors": errors, "traces": []}


def prime_traces(directory: Path) -> Path:
    """A step with all episodes, interleaved and without advantages, and with those that were trained."""
    step = directory / "rollouts" / "step_4" / "train"
    scored = [prime_episode("g", 0.0), prime_episode("h", 1.0), prime_episode("g", 1.0)]
    jsonl(step / "all" / "traces.jsonl", [*scored, prime_failure("h")])
    trained = [prime_episode("g", 0.0, -1.0), prime_episode("g", 1.0, 1.0)]
    return jsonl(step / "effective" / "traces.jsonl", trained)


def prime_tokens(directory: Path) -> Path:
    """A sequence of three trained tokens: one without credit, one masked by the trust region."""
    record = {
        "schema_version": 1,
        "step": 4,
        "env_name": "math",
        "token_ids": [5, 6, 7, 8],
        "loss_mask": [False, True, True, True],
        "advantages": [9.0, 0.5, 0.0, 1.5],
        "importance_ratio": [None, 1.0, 2.0, 3.0],
        "is_masked": [None, True, False, False],
        "is_masked_high": [None, True, False, False],
        "is_masked_low": [None, False, False, False],
        "entropy": [0.0, 1.0, 1.0, 1.0],
        "rl_weights": [None, None, None, None],
    }
    return jsonl(directory / "token_exports" / "step_4" / "rank_0.jsonl", [record])


def tinker(directory: Path) -> Path:
    """Group 0 of two trajectories and group 1 of one."""
    rows = [
        {
            **{"schema_version": 1, "split": "train", "iteration": 2, "group_idx": group, "traj_idx": index},
            **{"tags": ["math"], "total_reward": reward + 0.25, "final_reward": 0.25},
            "trajectory_metrics": {"correct": reward},
            "steps": [
                {"step_idx": at, "ac_len": 3 + at, "reward": given} for at, given in enumerate((reward, 0.0))
            ],
        }
        for group, index, reward in ((0, 0, 0.0), (0, 1, 1.0), (1, 0, 1.0))
    ]
    return jsonl(directory / "iteration_000002" / "train_rollout_summaries.jsonl", rows)


def ttt(directory: Path) -> Path:
    """Groups of two and one in update 0, one of two in update 1."""
    rows = [
        {
            **{"tags": ["circles"], "trajectory_index": index, "final_reward": 0.0},
            **{"total_reward": float(index), "step_rewards": [float(index)]},
            "steps": [{"step": 0, "ac_text": f"code {index}", "reward": float(index)}],
            "train_step": step,
        }
        for step, index in ((0, 0), (0, 1), (0, 0), (1, 0), (1, 1))
    ]
    return jsonl(directory / "trajectories.jsonl", rows)


def sample(index: int, **more: Any) -> dict[str, Any]:
    """What slime's and ThetaEvolve's samples have in common."""
    return {
        **{"index": index, "prompt": [{"role": "user", "content": f"prompt {index // 2}"}]},
        **{"tokens": [1, 2, 3], "response": f"response {index % 2}", "response_length": 3},
        **{"reward": index / 4, "loss_mask": [1, 1, 0], "rollout_log_probs": [-0.5, -0.5, -0.5]},
        **{"status": "completed" if index % 2 else "truncated", "metadata": {"level": "hard"}},
        **more,
    }


def slime(directory: Path, rollout: int = 9, **more: Any) -> Path:
    """Two groups of two, interleaved, as the command that a dump is refused with makes them lines."""
    own = [{"group_index": i % 2, "rollout_id": i, "remove_sample": False, **more} for i in range(4)]
    rows = [{"step": rollout, **sample(i, **fields)} for i, fields in enumerate(own)]
    return jsonl(directory / f"{rollout}.jsonl", rows)


def theta_evolve(directory: Path) -> Path:
    """Two prompts of two copies each, and no group_index."""
    return jsonl(directory / "5.jsonl", [{"step": 5, **sample(i)} for i in range(4)])


def openevolve(directory: Path) -> Path:
    """A child that improved, and one whose evaluation timed out."""
    rows = [
        {
            **{"iteration": number, "timestamp": 0.0, "parent_id": "a", "child_id": f"b{number}"},
            **{"parent_metrics": {"combined_score": 0.25}, "child_metrics": metrics},
            **{"child_code": "x = 1", "island_id": 0},
        }
        for number, metrics in (
            (1, {"combined_score": 0.75, "speed": 3.0}),
            (2, {"error": 0.0, "timeout": True}),
        )
    ]
    return jsonl(directory / "evolution_trace.jsonl", rows)


def openevolve_checkpoint(directory: Path, iteration: int = 10) -> Path:
    """A checkpoint as ProgramDatabase.save writes it: a start, a gain, a text error, a timeout, infinity, and
    a copy on another island."""
    path = directory / "checkpoints" / f"checkpoint_{iteration}"
    (path / "programs").mkdir(parents=True)
    metrics: dict[str, dict[str, Any]] = {
        "a": {"combined_score": 0.25},
        "b": {"combined_score": 0.75, "speed": 3.0},
        "c": {"error": "ZeroDivisionError: division by zero", "score": float("nan"), "complexity": 9.0},
        "d": {"error": 0.0, "timeout": True},
        "e": {"combined_score": float("inf")},
        "copy": {"combined_score": 0.75},
    }
    parents = {"b": "a", "c": "gone", "d": "b", "e": "b", "copy": "b"}
    for number, (name, found) in enumerate(metrics.items()):
        program = {
            "id": name,
            "code": "x = 1" if name in ("b", "copy") else name,
            "parent_id": parents.get(name),
            "timestamp": float(number),
            "iteration_found": 0 if name == "copy" else number,
            "metrics": found,
            "metadata": {"migrant": True} if name == "copy" else {"parent_metrics": {"combined_score": 0.25}},
        }
        (path / "programs" / f"{name}.json").write_text(json.dumps(program), encoding="utf-8")
    metadata = {
        "island_feature_maps": [],
        "islands": [["a", "b", "c", "d", "e"], ["copy"]],
        "archive": ["b", "e", "copy"],
        "best_program_id": "e",
        "island_generations": [0, 0],
        "last_iteration": iteration,
        "feature_stats": {"complexity": {"min": 1.0, "max": 9.0, "values": [1.0, 9.0]}},
    }
    (path / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    return path / "metadata.json"


def nemo_rl(directory: Path, step: int = 3) -> Path:
    """Two prompts of two sequences in lists of one; padded tokens, of which those after the prompt train."""
    tokens = [[5, 6, 7, 8, 0], [5, 6, 9, 0, 0], [4, 7, 8, 0, 0], [4, 9, 9, 9, 0]]
    masks = [[0, 0, 1, 1, 0], [0, 0, 1, 0, 0], [0, 1, 1, 0, 0], [0, 1, 1, 1, 0]]
    rows = [
        {
            "content": [["p" if at < 2 else "q", f"answer {at}"]],
            "rewards": [9.0],
            "filtered_rewards": [reward],
            "input_lengths": [int(sum(one > 0 for one in tokens[at]))],
            "token_ids": [tokens[at]],
            "token_loss_mask": [masks[at]],
            "sample_loss_mask": [1.0],
            "advantages": [[advantage] * 5],
            "idx": at,
        }
        for at, (reward, advantage) in enumerate(((0.0, -0.5), (1.0, 0.5), (1.0, 0.0), (1.0, 0.0)))
    ]
    return jsonl(directory / "exp_001" / f"train_data_step{step}.jsonl", rows)


def skyrl_eval(directory: Path) -> Path:
    """Two prompts of two responses, interleaved; a score per token is added up."""
    path = directory / "dumped_evals" / "global_step_20_evals"
    rows = [
        {
            **{"input_prompt": f"q{at % 2}", "output_response": f"answer {at}", "score": score},
            **{"stop_reason": "length" if at == 1 else "stop", "env_class": "gsm8k"},
            **{"env_extras": {"split": "test"}, "data_source": "aime"},
        }
        for at, score in enumerate((0.0, 1.0, [0.0, 0.5], 1.0))
    ]
    jsonl(path / "aggregated_results.jsonl", [{"eval/all/avg_score": 0.5}])
    return jsonl(path / "aime.jsonl", rows)


def shinka(directory: Path) -> Path:
    """Three programs, two of the same code, one in the archive; and a proposal that failed."""
    path = directory / "programs.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(
        "CREATE TABLE programs (id TEXT PRIMARY KEY, code TEXT, language TEXT, parent_id TEXT, "
        "generation INTEGER, timestamp REAL, combined_score REAL, correct BOOLEAN, island_idx INTEGER)"
    )
    connection.execute("CREATE TABLE archive (program_id TEXT PRIMARY KEY)")
    connection.execute(
        "CREATE TABLE attempt_log "
        "(id INTEGER PRIMARY KEY, generation INTEGER, stage TEXT, status TEXT, details TEXT)"
    )
    rows = [("p0", "x", None, 0, 0.25, 1), ("p1", "y", "p0", 1, 0.75, 1), ("p2", "y", "p1", 2, 0.0, 0)]
    for identity, code, parent, generation, score, correct in rows:
        values = (identity, code, "python", parent, generation, float(generation), score, correct, 1)
        connection.execute(f"INSERT INTO programs VALUES ({', '.join('?' * 9)})", values)
    connection.execute("INSERT INTO archive VALUES ('p1')")
    details = json.dumps({"failure_class": "no_patch"})
    connection.execute("INSERT INTO attempt_log VALUES (1, 3, 'patch', 'failed', ?)", (details,))
    connection.commit()
    connection.close()
    return path


def llm4ad(directory: Path) -> Path:
    """Four samples: a first score, a failure, a better one, the same function again; and the best."""
    rows = [
        {"sample_order": order, "function": function, "score": score, "operator": "e1", "program": ""}
        for order, function, score in ((1, "f", -0.5), (2, "g", None), (3, "h", -0.25), (4, "h", -0.25))
    ]
    samples = directory / "samples"
    samples.mkdir(parents=True)
    (samples / "samples_best.json").write_text(json.dumps(rows[:1]), encoding="utf-8")
    path = samples / "samples_1~200.json"
    path.write_text(json.dumps(rows, indent=4), encoding="utf-8")
    return path


def ms_swift(directory: Path) -> Path:
    """A logged step of ms-swift: a list of completions under each column."""
    line = {"step": ["1"] * 4, "prompt": list("aabb"), "completion": list("wxyz")}
    line |= {"MathAccuracy": [0.0, 1.0, 1.0, 1.0], "advantages": [-0.7, 0.7, 0.0, 0.0]}
    return jsonl(directory / "completions.jsonl", [line])


def ms_swift_ray(directory: Path) -> Path:
    """Rows of ms-swift under Ray, without advantages."""
    rows = [
        {"gen_step": 1, "prompt": name, "completion": name * 2, "reward": float(at)}
        for at, name in enumerate("aabb")
    ]
    return jsonl(directory / "completions.jsonl", rows)


def roll(directory: Path) -> Path:
    """A dump of ROLL: one line for the step."""
    line = {
        "global_step": [9] * 4,
        "prompt": list("aabb"),
        "responses": list("wxyz"),
        "scores": [0.0, 1.0, 1.0, 1.0],
    }
    return jsonl(directory / "rollout_dump_data.step_9.jsonl", [line])


def areal(directory: Path, versions: Sequence[int] = (3,), tasks: Sequence[int] = (2,)) -> Path:
    """Tasks of four samples in each version, the last of which older weights finished; task 0 fails."""
    for version in versions:
        for task in tasks:
            rows = [
                {
                    "task_id": 100 * version + task,
                    "sample_idx": at,
                    "seqlen": 40 + at,
                    "prompt_len": 12,
                    "head_version": version - 1,
                    "tail_version": version - at // 2,
                    "version_rle": [[version - 1, 20], [version, 8 + at]],
                    "reward": float(at % 2 if task else 0),
                    "prompt": f"task {task}",
                    "completion": f"c{at}",
                }
                for at in range(4)
            ]
            path = directory / "rollout" / str(version) / f"{100 * version + task}.jsonl"
            jsonl(path, rows)
    return path


def prime_rollouts(directory: Path) -> Path:
    """Two groups of two of a batch of prime-rl in May 2026: one that differs, and one that is filtered."""
    rows = [
        {
            **{"example_id": group, "env_name": "math", "group_id": f"uuid {group}"},
            "prompt": [{"role": "user", "content": f"q{group}"}],
            "completion": [{"role": "assistant", "content": f"a{at}"}],
            **{"reward": float(at or group), "metrics": {"turns": 1.0}, "is_truncated": bool(at)},
            **{"stop_condition": "stop", "advantage": 0.0 if group else at - 0.5},
            **{"is_filtered": bool(group), "filters": {"zero_advantage": bool(group)}},
        }
        for at in range(2)
        for group in range(2)
    ]
    step = directory / "rollouts" / "step_4"
    jsonl(step / "eval_rollouts_math.jsonl", rows[:1])
    return jsonl(step / "train_rollouts.jsonl", rows)


def own_records(directory: Path) -> Path:
    """Two steps of two completions: each time one that failed and one that was admitted."""
    path = directory / "completions.jsonl"
    records = [own_record(step, index, score) for step in (1, 2) for index, score in ((0, None), (1, 0.5))]
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    return path


def own_record(step: int, index: int, score: float | None) -> CompletionRecord:
    """A completion of a trained run; a failure where there is no score."""
    return CompletionRecord(
        step=step,
        index=index,
        problem="tsp",
        operator=CROSSOVER,
        prompt_sha256="0" * 64,
        parents=(),
        base_scores=(0.25, 0.125),
        frontier=0.25,
        archive_size=2,
        outcome=Outcome.RUNTIME_FAILURE if score is None else Outcome.VALID,
        detail="",
        score=score,
        evaluation="exception" if score is None else "ok",
        response_sha256=f"{index + 1:064x}" if score is None else f"{index + 1:x}" * 64,
        program_sha256=None,
        matches_base_code=False,
        archive_gap=None,
        exposure=None,
        prompt_tokens=2,
        completion_tokens=3,
        truncated=False,
        archive_event=ArchiveEvent.INVALID if score is None else ArchiveEvent.ADMITTED,
        components={"validity": 0.0 if score is None else 1.0},
        reward=-1.0 if score is None else 1.5,
        advantage=-0.5 if score is None else 0.5,
    )


def neutral_rows() -> list[dict[str, Any]]:
    """Groups of two and of one."""
    first = {"group": "a", "reward": 0.0, "step": 1, "advantage": -1.0, "tokens": 5, "response": "x"}
    second = {"group": "a", "reward": 1.0, "step": 1, "advantage": 1.0, "tokens": 9, "response": "y"}
    parts = {"components": {"format": 0.5}, "weights": {"format": 2.0}}
    return [
        first | {"label": "wrong"},
        second | {"label": "right"},
        {"group": "b", "reward": 1.0, "step": 1} | parts,
    ]

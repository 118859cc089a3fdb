"""Logs of trainers that have one small reader each: NeMo-RL, SkyRL, slime, ThetaEvolve, Tinker, TTT-Discover,
AReaL, and prime-rl before July 2026.

What each was read in is in its ``Format``; above it stands what its files hold and what they leave out.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import UNKNOWN, Assumption
from search_to_signal.audit.importers.base import (
    Format,
    ReadOptions,
    gathered,
    read_json,
    sampled_apart,
    value_at,
)
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.rows import (
    Group,
    RolloutRow,
    advantage,
    assumed,
    consecutive,
    count,
    digest,
    digest_of,
    evaluated,
    no_ties,
    number,
    numbers,
    score,
)
from search_to_signal.base.errors import RecordError

# NeMo-RL: ``train_data_step{N}.jsonl`` in the log directory, one row per sequence. Every value is a list of
# one, since the writer goes through batches of one: rewards, advantages and token_loss_mask (per token,
# padded), input_lengths, sample_loss_mask (0 where overlong filtering or a filter of the environment took the
# sample out of the loss; it counts in its group), token_ids and content where they were kept, idx. There is
# no group: rows of a prompt stand together, and the prompt is what stands before the first trained token.
# With dynamic sampling ``filtered_rewards`` are those of the rows, and ``rewards`` the first of all that were
# sampled, as many as there are rows: groups that tie there were dropped. Missing: how many more were sampled.
# A run that logs NeMo Gym responses writes no such file.

_DROPPED = (
    "dynamic sampling drops groups of equal rewards before training: so many of the groups that were sampled "
    "first tie, and are no waste here"
)


def _step_in(pattern: str, name: str) -> int:
    named = re.search(pattern, name)
    return int(named[1]) if named else UNKNOWN


def _dropped(groups: Sequence[Group]) -> tuple[Assumption, ...]:
    sampled = [one.metrics["sampled"] for group in groups for one in group if "sampled" in one.metrics]
    size = len(groups[0])
    if not sampled or any(len(group) != size for group in groups):
        return ()
    drawn = [sampled[start : start + size] for start in range(0, len(sampled), size)]
    counts = {"groups": len(drawn), "dropped": sum(len(set(rewards)) == 1 for rewards in drawn)}
    return (Assumption("filtered_groups", _DROPPED, counts),)


def _nemo_row(path: Path, options: ReadOptions, record: Mapping[str, Any], position: int) -> RolloutRow:
    given = {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in record.items()
    }
    mask = [bool(counts) for counts in given["token_loss_mask"]]
    tokens, content = given.get("token_ids"), given.get("content")
    first = mask.index(True) if True in mask else len(mask)
    end = count(given["input_lengths"])
    asked = content[0] if isinstance(content, list) and content else content
    return RolloutRow(
        group=digest(repr(tokens[:first] if tokens else asked)),
        position=position,
        step=_step_in(r"step_?(\d+)", path.name),
        reward=score(given.get("filtered_rewards", given["rewards"])),
        advantage=_credit(given["advantages"], mask),
        tokens=sum(mask),
        response=digest(repr(tokens[first:end] if tokens else content)),
        label=value_at(given, options.label),
        masked=score(given.get("sample_loss_mask")) == 0.0,
        metrics={"sampled": score(given["rewards"])} if "filtered_rewards" in given else {},
    )


def _credit(given: Any, mask: list[bool]) -> float | None:
    """The advantage of a sequence: that of its trained tokens, where they have one; else their mean."""
    if not isinstance(given, list):
        return score(given)
    trained = [score(value) for value, counts in zip(given, mask, strict=True) if counts]
    if not trained:
        return None
    return trained[0] if len(set(trained)) == 1 else sum(trained) / len(trained)


NEMO_RL = Format(
    name="nemo-rl",
    container=JSONL,
    needs=("rewards", "input_lengths", "token_loss_mask", "sample_loss_mask", "advantages", "idx"),
    patterns=("train_data_step*.jsonl", "exp_*/train_data_step*.jsonl", "*/exp_*/train_data_step*.jsonl"),
    read=partial(read_json, row=_nemo_row, evidence=_dropped, by_prompt=True),
    takes=("group_size",),
    usual="nemo-grpo",
    writer="NVIDIA-NeMo/RL nemo_rl/algorithms/grpo.py, nemo_rl/utils/logger.py "
    "7ea279abfbeb698b092856d0dab61e7cf39bc909 2026-08-22",
    met="real writer: log_batched_dict_as_jsonl with its BatchedDataDict, called with given rows",
)


# SkyRL's evaluations: ``dumped_evals/global_step_N_evals/{data source}.jsonl``, one row per response:
# input_prompt, output_response, score (a number, or one per token, which are added), stop_reason, env_class,
# env_extras, data_source. Of step-wise trajectories every step is a row (``evaluate_step_wise``), and SkyRL
# counts the last: rows whose prompt goes on from the row before are one sample. Missing: training. It is
# dumped by ``dump_data_batch``, after rewards and prompt ids were taken out, so no audit can be made of that:
# ``audit.live`` records it from within. ``aggregated_results.jsonl`` in the same directory holds no rows.

# Characters of an answer that the next prompt repeats; more of it may be left out there, thoughts for one.
_ANSWER = 16
_STEPS = "rows whose prompt goes on from the row before are steps of one trajectory, and the last one counts"
_PROMPTS = assumed(
    "equal_prompts", "a group is the responses to one prompt of an evaluation, of which none is trained"
)


@dataclass
class _Trajectory:
    """The trajectory that is being read: its first prompt, how its next must begin, and its steps so far."""

    prompt: str = ""
    begins: str = ""
    steps: int = 0

    def add(self, prompt: str, response: str) -> None:
        """The next row, which goes on where its prompt holds the prompt before and the answer to it."""
        goes_on = self.steps and len(prompt) > len(self.begins) and prompt.startswith(self.begins)
        self.prompt, self.steps = (self.prompt, self.steps + 1) if goes_on else (prompt, 1)
        self.begins = prompt + response[:_ANSWER]


def _last_steps(rows: Iterable[RolloutRow]) -> Iterator[RolloutRow]:
    last: RolloutRow | None = None
    for row in rows:
        if last is not None and row.metrics["steps"] == 1:
            yield last
        last = row
    if last is not None:
        yield last


def _skyrl_evidence(groups: Sequence[Group]) -> tuple[Assumption, ...]:
    steps = [int(one.metrics["steps"]) for group in groups for one in group if one.metrics["steps"] > 1]
    counts = {"trajectories": len(steps), "steps": sum(steps)}
    return (*_PROMPTS(groups), *((Assumption("sessions", _STEPS, counts),) if steps else ()))


def _skyrl_row(
    trajectory: _Trajectory, path: Path, options: ReadOptions, record: dict[str, Any], position: int
) -> RolloutRow:
    given = record["score"]
    trajectory.add(str(record["input_prompt"]), str(record["output_response"]))
    return RolloutRow(
        group=trajectory.prompt,
        prompt=options.prompts.add(trajectory.prompt),
        position=position,
        step=_step_in(r"global_step_(\d+)", path.parent.name),
        reward=sum(map(score, given)) if isinstance(given, list) else score(given),
        response=digest(record["output_response"]),
        label=value_at(record, options.label or "data_source"),
        status=value_at(record, "stop_reason"),
        metrics={"steps": float(trajectory.steps)},
    )


SKYRL_EVAL = Format(
    name="skyrl-eval",
    container=JSONL,
    needs=("input_prompt", "output_response", "score", "stop_reason", "env_class", "data_source"),
    patterns=(
        "*.jsonl",
        *(
            f"{below}{folder}/*.jsonl"
            for below in ("", "dumped_evals/")
            for folder in ("global_step_*_evals", "eval_only")
        ),
    ),
    beside=("aggregated_results.jsonl",),
    read=lambda path, options: read_json(
        path,
        options,
        partial(_skyrl_row, _Trajectory()),
        lambda rows: gathered(_last_steps(rows)),
        _skyrl_evidence,
    ),
    usual="skyrl-grpo",
    writer="NovaSky-AI/SkyRL skyrl/train/utils/trainer_utils.py "
    "a9564572eb8e91076be43c1bd5e4615e3de17265 2026-08-21",
    met="real writer: dump_per_dataset_eval_results, called with given responses",
)


# slime: one ``torch.save`` file per rollout, by ``--save-debug-rollout-data``, made into lines of JSON by the
# command with which the file itself is refused. A sample (slime/utils/types.py, ``Sample.to_dict``) has
# group_index, index, reward (a number, or several by name), status, response, response_length, loss_mask,
# remove_sample; step is the rollout_id of the file. What ``remove_sample`` is true of counts in its group and
# not in the loss; a status takes nothing out. The reward is raw: advantages are computed later
# (slime/ray/rollout.py, ``_post_process_rewards``) and not dumped. Samples cut from one rollout share
# rollout_id and count one by one. Missing: groups that a dynamic sampling filter dropped. Files of
# evaluations start with ``eval_``.

_CUT = (
    "samples that were cut from one rollout count one by one, and slime then compares every sample with the "
    "whole step, whatever its group"
)


def _slime_row(path: Path, options: ReadOptions, sample: dict[str, Any], position: int) -> RolloutRow:
    group = sample.get("group_index")
    own = group if isinstance(group, int | str) else ("alone", position)
    return _sample_row(path, options, own, sample, position)


def _slime_evidence(path: Path, groups: Sequence[Group]) -> tuple[Assumption, ...]:
    if path.name.startswith("eval_"):
        return evaluated(len(groups))
    rows = (one.metrics for group in groups for one in group)
    known = Counter(metrics["rollout_id"] for metrics in rows if "rollout_id" in metrics)
    several = [number for number in known.values() if number > 1]
    counts = {"rollouts": len(several), "samples": sum(several)}
    cut = (Assumption("cut_rollouts", _CUT, counts),) if several else ()
    return (*cut, *no_ties("--dynamic-sampling-filter-path", groups))


def _sample_row(
    path: Path, options: ReadOptions, group: Hashable, sample: dict[str, Any], position: int
) -> RolloutRow:
    reward, components = _named_reward(path, position, sample.get("reward"), options)
    mask = sample.get("loss_mask")
    return RolloutRow(
        group=group,
        name=value_at(sample, "group_index"),
        prompt=options.prompts.add(sample.get("prompt")),
        position=position,
        step=count(sample.get("step")),
        reward=reward,
        tokens=sum(map(bool, mask)) if isinstance(mask, list) else count(sample.get("response_length")),
        response=digest_of(sample.get("response")),
        label=value_at(sample, options.label),
        status=value_at(sample, "status"),
        masked=bool(sample.get("remove_sample")),
        metrics={**components, **numbers({k: sample.get(k) for k in ("rollout_id", "remove_sample")})},
    )


def _named_reward(
    path: Path, position: int, reward: Any, options: ReadOptions
) -> tuple[float, dict[str, float]]:
    if not isinstance(reward, Mapping):
        if options.reward is not None:
            raise RecordError(f"{path}:{position}: one reward without a name: leave `reward` out")
        return score(reward), {}
    if options.reward not in reward:
        raise RecordError(
            f"{path}:{position}: several rewards ({', '.join(map(str, reward))}): "
            "name the one that was trained as `reward`"
        )
    return score(reward[options.reward]), numbers(reward, without=[str(options.reward)])


SLIME = Format(
    name="slime",
    container=JSONL,
    needs=("group_index", "index", "reward", "status", "response"),
    patterns=("rollout_data/[0-9]*.jsonl", "[0-9]*.jsonl", "rollout_[0-9]*.jsonl"),
    read=lambda path, options: read_json(path, options, _slime_row, gathered, partial(_slime_evidence, path)),
    takes=("reward",),
    usual="slime-grpo",
    writer="THUDM/slime slime/observability/rollout_data_utils.py "
    "624b824a898ab0ec1fcb4d373004c7f3852bf515 2026-08-21",
    met="real writer: save_debug_rollout_data, called with given samples, as lines of JSON",
)


# ThetaEvolve, and slime before samples had a group: as slime's, without group_index, rollout_id and
# remove_sample. Every prompt is copied n_samples_per_prompt times and the copies stand together. The list was
# cut to a multiple of the batch size before it was saved, so the last group may be incomplete.


def _theta_row(path: Path, options: ReadOptions, sample: dict[str, Any], position: int) -> RolloutRow:
    prompt = sample.get("prompt")
    messages: Sequence[Any] = prompt if isinstance(prompt, list) else [{"content": prompt}]
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    own = tuple(content for content in contents if isinstance(content, str))
    return _sample_row(path, options, own, sample, position)


THETA_EVOLVE = replace(
    SLIME,
    name="theta-evolve",
    needs=("index", "prompt", "reward", "status"),
    read=partial(read_json, row=_theta_row, by_prompt=True),
    takes=("reward", "group_size"),
    usual="thetaevolve-grpo",
    writer="ypwang61/ThetaEvolve slime/ray/rollout.py efcbe00ba3272bfff9b5b26b30fc64e631f2f488 2025-12-29",
    met="real writer: _save_debug_rollout_data, called with given samples, as lines of JSON",
)


# Tinker cookbook: ``train_rollout_summaries.jsonl``, one trajectory per line. total_reward is the sum of the
# steps' rewards plus final_reward, which the group as a whole decides. A trajectory is one sample, whatever
# its steps. Missing: text and advantage; groups that failed, and, where rollouts stream into the trainer,
# those that ``remove_constant_reward_groups`` dropped (rl/rollouts.py): both are left out before they are
# counted, so group_idx has no gaps.


def _tinker_key(record: dict[str, Any], _: int = 0) -> tuple[int, tuple[str, ...]]:
    names = ("split", "iteration", "group_idx")
    return count(record.get("iteration")), tuple(value_at(record, name) for name in names)


def _tinker_evidence(groups: Sequence[Group]) -> tuple[Assumption, ...]:
    """Groups that a resumed run wrote twice, evaluations, and that some may have been dropped before."""
    known = Counter(group[0].group for group in groups)
    again = sum(times - 1 for times in known.values())
    says = "a group whose traj_idx comes again was sampled again: each sampling is a group"
    twice = (Assumption("sampled_again", says, {"groups": again}),) if again else ()
    tests = evaluated(sum(group[0].name.startswith("eval") for group in groups))
    return (*twice, *(tests or no_ties("remove_constant_reward_groups", groups)))


def _tinker_row(_: Path, options: ReadOptions, record: dict[str, Any], position: int) -> RolloutRow:
    step, names = key = _tinker_key(record)
    steps = _steps_of(record)
    lengths = [length for one in steps if (length := count(one.get("ac_len"))) >= 0]
    rewards = sum(number(one.get("reward")) for one in steps)
    return RolloutRow(
        group=key,
        name="/".join(names),
        member=value_at(record, "traj_idx") or None,
        position=position,
        step=step,
        tokens=count(sum(lengths)) if lengths else UNKNOWN,
        **_trajectory(record, rewards, options),
    )


def _steps_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [step for step in record.get("steps") or () if isinstance(step, dict)]


def _trajectory(record: Mapping[str, Any], steps: float, options: ReadOptions) -> dict[str, Any]:
    """Columns of a trajectory whose steps were given that reward together."""
    tags = "/".join(map(str, record.get("tags") or ())) if not options.label else ""
    return {
        "reward": score(record.get(options.reward or "total_reward")),
        "label": value_at(record, options.label) if options.label else tags,
        "components": {"steps": steps, "final_reward": number(record.get("final_reward"))},
        "weights": {"steps": 1.0, "final_reward": 1.0},
        "metrics": numbers(record.get("trajectory_metrics")),
    }


TINKER = Format(
    name="tinker",
    container=JSONL,
    needs=("iteration", "group_idx", "traj_idx", "total_reward"),
    patterns=(
        "iteration_*/train_rollout_summaries.jsonl",
        "train_rollout_summaries.jsonl",
        "*_rollout_summaries.jsonl",
    ),
    read=partial(read_json, row=_tinker_row, evidence=_tinker_evidence, key=_tinker_key, rewards=dict),
    takes=("reward",),
    usual="tinker-group",
    writer="thinking-machines-lab/tinker-cookbook tinker_cookbook/rl/rollout_logging.py "
    "9dfcc3a2cf44432d621a01005073dc6d76a1e87a 2026-08-19",
    met="real writer: serialize_rollout_summaries, called with given trajectories",
)


# TTT-Discover: ``trajectories.jsonl``, one trajectory per line, appended update after update. No group id:
# trajectory_index counts within a group and starts again with the next. train_step is absent outside
# training. Missing: advantage and token counts, and groups that ``remove_constant_reward_groups`` dropped.

_ONE_INDEX = assumed(
    "restarting_index", "a group goes from one trajectory_index 0 to the next: the log names no group"
)


def _ttt_row(_: Path, options: ReadOptions, record: dict[str, Any], position: int) -> RolloutRow:
    steps = _steps_of(record)
    rewards = sum(number(value) for value in record.get("step_rewards") or ())
    return RolloutRow(
        group=record.get("trajectory_index"),
        position=position,
        step=count(record.get("train_step")),
        response=digest("\x1e".join(str(step.get("ac_text")) for step in steps)) if steps else 0,
        **_trajectory(record, rewards, options),
    )


def _counted(rows: Iterable[RolloutRow]) -> Iterator[Group]:
    """A new group starts where the index does not go on."""
    group: list[RolloutRow] = []
    for row in rows:
        before = group[-1].group if group else None
        if group and not (isinstance(before, int) and row.group == before + 1):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


TTT_DISCOVER = Format(
    name="ttt-discover",
    container=JSONL,
    needs=("trajectory_index", "total_reward", "steps"),
    patterns=("trajectories.jsonl",),
    read=partial(
        read_json,
        row=_ttt_row,
        grouped=_counted,
        evidence=lambda groups: (*_ONE_INDEX(groups), *no_ties("remove_constant_reward_groups", groups)),
        rewards=dict,
    ),
    takes=("reward",),
    usual="discover-entropic-adaptive",
    writer="test-time-training/discover tinker_cookbook/rl/train.py "
    "96df74ffa7c4de04fb0be1c2ac332c7455fb4010 2026-01-23",
    met="real writer: _write_trajectory_logs, called with given trajectories",
)


# AReaL: ``rollout/{version}/{task_id}.jsonl`` in the log directory, one row per sample, appended; evaluations
# are in ``eval-rollout``. A task is a group. The version is the newest weights that any token of the task was
# sampled with: each sample has its own head_version and tail_version. Missing: advantages, which tasks
# ``should_accept`` rejected, and samples whose last token is not trained.


def _areal_row(path: Path, options: ReadOptions, record: dict[str, Any], position: int) -> RolloutRow:
    return RolloutRow(
        group=record["task_id"],
        member=record["sample_idx"],
        prompt=options.prompts.add(record["prompt"]),
        position=position,
        step=_step_in(r"^(\d+)$", path.absolute().parent.name),
        reward=score(record["reward"]),
        tokens=sum(length for _, length in record["version_rle"]),
        response=digest_of(record["completion"]),
        label=value_at(record, options.label),
        metrics=numbers({name: record.get(name) for name in _VERSIONS}),
    )


_VERSIONS = ("head_version", "tail_version", "original_reward")
AREAL = Format(
    name="areal",
    container=JSONL,
    needs=("task_id", "sample_idx", "version_rle", "reward", "prompt", "completion"),
    patterns=("[0-9]*.jsonl", "[0-9]*/[0-9]*.jsonl", "rollout/[0-9]*/[0-9]*.jsonl"),
    read=partial(
        read_json,
        row=_areal_row,
        grouped=lambda rows: sampled_apart(consecutive(rows)),
        evidence=assumed(
            "tasks", "a group is one task, and its step is the version of the weights in its directory"
        ),
    ),
    writer="areal-project/AReaL areal/infra/workflow_executor.py "
    "cbff54d645d2cd8ee1f1c358a82f3f473588433d 2026-08-22",
    met="reconstruction: by its _dump_trajectory",
)


# prime-rl from April to June 2026 (b194a6ed2 to 1caebf8a1): ``rollouts/step_N/train_rollouts.jsonl``, one row
# per rollout of a batch: what verifiers returned, with advantage, is_filtered and, later, group_id. What was
# filtered before the batch is in none. ``eval_rollouts*.jsonl`` beside it are evaluations.


def _prime_row(path: Path, options: ReadOptions, record: dict[str, Any], position: int) -> RolloutRow:
    step = _step_in(r"^step_(\d+)$", path.absolute().parent.name)
    name = value_at(record, "group_id") or f"{record.get('env_name')}/{record['example_id']}"
    return RolloutRow(
        group=(step, name),
        name=name,
        prompt=options.prompts.add(record.get("prompt")),
        position=position,
        step=step,
        reward=score(record["reward"]),
        advantage=advantage(record["advantage"]),
        masked=bool(record["is_filtered"]),
        response=digest(repr(record.get("completion"))),
        label=value_at(record, options.label or "env_name"),
        status="truncated" if record.get("is_truncated") else value_at(record, "stop_condition"),
        metrics=numbers(record.get("metrics")),
    )


PRIME_RL_ROLLOUTS = Format(
    name="prime-rl-rollouts",
    container=JSONL,
    needs=("example_id", "reward", "advantage", "is_filtered", "filters"),
    patterns=tuple(
        f"{below}train_rollouts.jsonl" for below in ("", "step_*/", "rollouts/step_*/", "*/rollouts/step_*/")
    ),
    run=r".*(?=/rollouts/step_)",
    read=partial(read_json, row=_prime_row, grouped=gathered),
    usual="prime-rl-grpo",
    writer="PrimeIntellect-ai/prime-rl src/prime_rl/orchestrator/orchestrator.py, utils.py "
    "ea2f390045885105483cc568e2976b8d547b379a 2026-05-21",
    met="reconstruction: by its save_rollouts",
)

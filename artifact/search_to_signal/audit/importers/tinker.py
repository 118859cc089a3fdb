"""Tinker cookbook's rollout summaries: ``train_rollout_summaries.jsonl``, one trajectory per line.

Read: thinking-machines-lab/tinker-cookbook, tinker_cookbook/rl/rollout_logging.py and
stores/training_store.py, 9dfcc3a2cf44432d621a01005073dc6d76a1e87a, 2026-08-19.

total_reward is the sum of the steps' rewards plus final_reward, which the group as a whole decides. A
trajectory is one sample, whatever its steps. Missing: text and advantage; groups that failed, and, where
rollouts stream into the trainer, those that ``remove_constant_reward_groups`` dropped (rl/rollouts.py): both
are left out before they are counted, so group_idx has no gaps.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import UNKNOWN, Assumption, RewardGroups
from search_to_signal.audit.importers.base import (
    Format,
    ReadOptions,
    read_json,
    refuse_unknown_reward,
    value_at,
)
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.gathering import Key
from search_to_signal.audit.importers.rows import (
    Group,
    RolloutRow,
    count,
    evaluated,
    no_ties,
    number,
    numbers,
    score,
)


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one file; raises RecordError for a line that cannot be read."""
    refuse_unknown_reward(path, options.reward, dict)
    made = partial(_row, options=options)
    return read_json(path, options, made, evidence=_evidence, key=_key)


def _key(record: dict[str, Any], _: int) -> Key:
    return count(record.get("iteration")), _group(record)


def _group(record: dict[str, Any]) -> tuple[str, ...]:
    return tuple(value_at(record, name) for name in ("split", "iteration", "group_idx"))


def _evidence(groups: Sequence[Group]) -> tuple[Assumption, ...]:
    """Groups that a resumed run wrote twice, evaluations, and that some may have been dropped before."""
    known = Counter(group[0].group for group in groups)
    again = sum(times - 1 for times in known.values())
    says = "a group whose traj_idx comes again was sampled again: each sampling is a group"
    twice = (Assumption("sampled_again", says, {"groups": again}),) if again else ()
    tests = evaluated(sum(group[0].name.startswith("eval") for group in groups))
    return (*twice, *(tests or no_ties("remove_constant_reward_groups", groups)))


def _row(record: dict[str, Any], position: int, options: ReadOptions) -> RolloutRow:
    iteration = record.get("iteration")
    steps = [step for step in record.get("steps") or () if isinstance(step, dict)]
    final = number(record.get("final_reward"))
    lengths = [length for step in steps if (length := count(step.get("ac_len"))) >= 0]
    return RolloutRow(
        group=(count(iteration), _group(record)),
        name="/".join(_group(record)),
        member=value_at(record, "traj_idx") or None,
        position=position,
        step=count(iteration),
        reward=score(record.get(options.reward or "total_reward")),
        tokens=count(sum(lengths)) if lengths else UNKNOWN,
        label=value_at(record, options.label)
        if options.label
        else "/".join(map(str, record.get("tags") or ())),
        components={"steps": sum(number(step.get("reward")) for step in steps), "final_reward": final},
        weights={"steps": 1.0, "final_reward": 1.0},
        metrics=numbers(record.get("trajectory_metrics")),
    )


FORMAT = Format(
    name="tinker",
    container=JSONL,
    needs=("iteration", "group_idx", "traj_idx", "total_reward"),
    patterns=(
        "iteration_*/train_rollout_summaries.jsonl",
        "train_rollout_summaries.jsonl",
        "*_rollout_summaries.jsonl",
    ),
    read=read,
    several=True,
    writer="thinking-machines-lab/tinker-cookbook tinker_cookbook/rl/rollout_logging.py "
    "9dfcc3a2cf44432d621a01005073dc6d76a1e87a 2026-08-19",
    met="real writer: serialize_rollout_summaries, called with given trajectories",
)

"""TTT-Discover's ``trajectories.jsonl``: one trajectory per line, appended update after update.

Read: test-time-training/discover, tinker_cookbook/rl/train.py (``_write_trajectory_logs``),
96df74ffa7c4de04fb0be1c2ac332c7455fb4010, 2026-01-23.

No group id: trajectory_index counts within a group and starts again with the next. train_step is absent
outside training. A trajectory is one sample, whatever its steps. Missing: advantage and token counts, and
groups that ``remove_constant_reward_groups`` dropped before.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import Assumption, RewardGroups
from search_to_signal.audit.importers.base import (
    Format,
    ReadOptions,
    read_json,
    refuse_unknown_reward,
    value_at,
)
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.rows import (
    Group,
    RolloutRow,
    assumed,
    count,
    digest,
    no_ties,
    number,
    numbers,
    score,
)

_ONE_INDEX = assumed(
    "restarting_index", "a group goes from one trajectory_index 0 to the next: the log names no group"
)


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one file; raises RecordError for a line that cannot be read."""
    refuse_unknown_reward(path, options.reward, dict)
    return read_json(path, options, lambda record, at: _row(record, at, options), _counted, _evidence)


def _evidence(groups: Sequence[Group]) -> tuple[Assumption, ...]:
    return (*_ONE_INDEX(groups), *no_ties("remove_constant_reward_groups", groups))


def _row(record: dict[str, Any], position: int, options: ReadOptions) -> RolloutRow:
    steps = [step for step in record.get("steps") or () if isinstance(step, dict)]
    rewards = [number(value) for value in record.get("step_rewards") or ()]
    return RolloutRow(
        group=record.get("trajectory_index"),
        position=position,
        step=count(record.get("train_step")),
        reward=score(record.get(options.reward or "total_reward")),
        response=digest("\x1e".join(str(step.get("ac_text")) for step in steps)) if steps else 0,
        label=value_at(record, options.label)
        if options.label
        else "/".join(map(str, record.get("tags") or ())),
        components={"steps": sum(rewards), "final_reward": number(record.get("final_reward"))},
        weights={"steps": 1.0, "final_reward": 1.0},
        metrics=numbers(record.get("trajectory_metrics")),
    )


def _counted(rows: Iterable[RolloutRow]) -> Iterator[Group]:
    """A new group starts where the index does not go on."""
    group: list[RolloutRow] = []
    for row in rows:
        if group and not _continues(group[-1], row):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _continues(before: RolloutRow, row: RolloutRow) -> bool:
    return isinstance(before.group, int) and row.group == before.group + 1


FORMAT = Format(
    name="ttt-discover",
    container=JSONL,
    needs=("trajectory_index", "total_reward", "steps"),
    patterns=("trajectories.jsonl",),
    read=read,
    several=True,
    writer="test-time-training/discover tinker_cookbook/rl/train.py "
    "96df74ffa7c4de04fb0be1c2ac332c7455fb4010 2026-01-23",
    met="real writer: _write_trajectory_logs, called with given trajectories",
)

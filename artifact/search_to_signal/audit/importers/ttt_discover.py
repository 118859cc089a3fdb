"""TTT-Discover's ``trajectories.jsonl``: one trajectory per line, appended update after update.

Read: test-time-training/discover, tinker_cookbook/rl/train.py (``_write_trajectory_logs``),
96df74ffa7c4de04fb0be1c2ac332c7455fb4010, 2026-01-23.

No group id: trajectory_index counts within a group and starts again with the next. train_step is absent
outside training. No advantage and no token counts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import Assumption, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, refuse_unknown_label, value_at
from search_to_signal.audit.importers.lines import first_record, read_lines
from search_to_signal.audit.importers.rows import (
    Group,
    Row,
    batches,
    consecutive,
    count,
    digest,
    number,
    numbers,
    rows_of,
    sizes,
)
from search_to_signal.audit.importers.sniffing import JSONL


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one file; raises RecordError for a line that cannot be read."""
    refuse_unknown_label(path, first_record(path) or {}, options.label)
    rows = rows_of(path, read_lines(path), lambda record, at: _row(record, at, options))
    yield from batches(str(path), consecutive(_counted(rows)), options.rows, _evidence)


def _row(record: dict[str, Any], position: int, options: ReadOptions) -> Row:
    step = record.get("train_step")
    steps = [one for one in record.get("steps") or () if isinstance(one, dict)]
    rewards = [number(value) for value in record.get("step_rewards") or ()]
    return Row(
        group=record.get("trajectory_index"),
        position=position,
        step=count(step),
        reward=number(record.get(options.reward or "total_reward")),
        response=digest("\x1e".join(str(one.get("ac_text")) for one in steps)) if steps else 0,
        label=value_at(record, options.label)
        if options.label
        else "/".join(map(str, record.get("tags") or ())),
        components={"steps": sum(rewards), "final_reward": number(record.get("final_reward"))},
        weights={"steps": 1.0, "final_reward": 1.0},
        metrics=numbers(record.get("trajectory_metrics")),
    )


def _counted(rows: Iterable[Row]) -> Iterator[Row]:
    """Number the groups: a new one starts where the index does not go on."""
    group, before = 0, None
    for row in rows:
        if before is not None and not _continues(before, row):
            group += 1
        before = row
        yield replace(row, group=group)


def _continues(before: Row, row: Row) -> bool:
    return isinstance(before.group, int) and row.group == before.group + 1


def _evidence(groups: Sequence[Group]) -> tuple[Assumption, ...]:
    says = "a group goes from one trajectory_index 0 to the next: the log names no group"
    return (Assumption("restarting_index", says, sizes(groups)),)


FORMAT = Format(
    name="ttt-discover",
    container=JSONL,
    needs=("trajectory_index", "total_reward", "steps"),
    patterns=("trajectories.jsonl",),
    read=read,
    writer="test-time-training/discover tinker_cookbook/rl/train.py "
    "96df74ffa7c4de04fb0be1c2ac332c7455fb4010 2026-01-23",
    met="real writer: _write_trajectory_logs, called with given trajectories",
)

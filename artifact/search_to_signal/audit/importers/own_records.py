"""The completion records that ``s2s run`` writes: ``completions.jsonl`` of a run directory.

Read: ``records.reader``, which writes and checks them. A step is a group. A frozen run has no rewards, which
is said.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from search_to_signal.audit.groups import UNTRAINED, Assumption, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, refuse_unknown_label, value_at
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.lines import first_record
from search_to_signal.audit.importers.rows import NAN, Group, RolloutRow, batches, count, digest, number
from search_to_signal.records.reader import read_groups
from search_to_signal.records.schema import ArchiveEvent, CompletionRecord


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one file; raises RecordError for a line that is unreadable, missing or reordered."""
    refuse_unknown_label(path, first_record(path), options.label)
    lines = itertools.count(1)
    groups = ([_row(record, next(lines), options) for record in group] for group in read_groups(path))
    yield from batches(str(path), groups, options.rows, _untrained)


def _untrained(groups: Sequence[Group]) -> tuple[Assumption, ...]:
    """Completions without any reward, as those of a frozen run are."""
    rewards = [row.reward for group in groups for row in group]
    if not all(map(math.isnan, rewards)):
        return ()
    says = "a run that trains nothing, as a frozen one, records scores and no reward"
    return (Assumption(UNTRAINED, says, {"completions": len(rewards)}),)


def _row(record: CompletionRecord, position: int, options: ReadOptions) -> RolloutRow:
    return RolloutRow(
        group=record.step,
        position=position,
        step=count(record.step),
        reward=number(record.reward),
        advantage=record.advantage,
        tokens=count(record.completion_tokens),
        response=digest(record.response_sha256),
        label=value_at(msgspec.to_builtins(record), options.label or "operator"),
        status=record.outcome.value,
        improvement=_improvement(record),
        admitted=int(record.archive_event is ArchiveEvent.ADMITTED),
        metrics={**(record.components or {}), "score": number(record.score)},
    )


def _improvement(record: CompletionRecord) -> float:
    """The score over the best base heuristic of the prompt."""
    if record.score is None or not record.base_scores:
        return NAN
    return record.score - max(record.base_scores)


FORMAT = Format(
    name="s2s",
    container=JSONL,
    needs=("step", "index", "outcome", "reward", "advantage", "archive_event"),
    patterns=("completions.jsonl",),
    read=read,
    writer="this project, records/schema.py",
    met="real writer: runs of this project",
)

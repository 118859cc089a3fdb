"""The neutral log: one rollout per line of JSON Lines or row of Parquet, by ``rollouts.schema.json``.

The rows of one group stand together. Columns beyond the schema are left alone; ``label`` may name one of
them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.audit.groups import UNKNOWN, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, refuse_unknown_label, value_at
from search_to_signal.audit.importers.lines import first_record, read_lines
from search_to_signal.audit.importers.rows import NAN, Row, batches, consecutive, digest, number, rows_of
from search_to_signal.audit.importers.sniffing import JSONL, PARQUET
from search_to_signal.audit.importers.tables import parquet_columns, read_table
from search_to_signal.errors import RecordError

SCHEMA = Path(__file__).with_name("rollouts.schema.json")


class Rollout(msgspec.Struct, frozen=True):
    """One rollout. Rows of one ``group`` stand together; a higher ``reward`` is better, null means none.

    ``tokens`` counts the response tokens that are trained. ``components`` are named parts of the reward
    before their ``weights``. Equal ``response`` texts, or ids, mean equal responses. ``label`` is a class
    of your choice, ``status`` how the rollout ended.
    """

    group: int | str
    reward: float | None
    step: int = UNKNOWN
    advantage: float | None = None
    tokens: int = UNKNOWN
    response: str | None = None
    label: str | None = None
    status: str | None = None
    components: dict[str, float | None] | None = None
    weights: dict[str, float | None] | None = None


COLUMNS = tuple(Rollout.__struct_fields__)


def read_jsonl(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of a JSON Lines file; raises RecordError, naming the line, for one that breaks the schema."""
    refuse_unknown_label(path, first_record(path) or {}, options.label)
    rows = rows_of(path, read_lines(path), lambda record, at: _row(path, at, record, options))
    yield from batches(str(path), consecutive(rows), options.rows)


def read_parquet(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of a Parquet file; raises RecordError, naming the row, for one that breaks the schema."""
    columns = parquet_columns(path)
    refuse_unknown_label(path, dict.fromkeys(columns), options.label)
    wanted = [name for name in columns if name in COLUMNS or name == (options.label or "").split(".")[0]]
    rows = rows_of(path, read_table(path, wanted), lambda record, at: _row(path, at, record, options))
    yield from batches(str(path), consecutive(rows), options.rows)


def _row(path: Path, position: int, record: dict[str, Any], options: ReadOptions) -> Row:
    known = {name: _bounded(value) for name, value in record.items() if name in COLUMNS}
    given = {name: value for name, value in known.items() if value is not None or name == "reward"}
    try:
        rollout = msgspec.convert(given, Rollout)
    except msgspec.ValidationError as error:
        raise RecordError(f"{path}:{position}: not a rollout ({error}); see {SCHEMA.name}") from error
    components = {name: number(value) for name, value in (rollout.components or {}).items()}
    weights = {name: number(value) for name, value in (rollout.weights or {}).items() if name in components}
    return Row(
        group=(rollout.step, rollout.group),
        position=position,
        step=rollout.step,
        reward=number(rollout.reward),
        advantage=NAN if rollout.advantage is None else rollout.advantage,
        tokens=rollout.tokens,
        response=digest(rollout.response),
        label=value_at(record, options.label or "label"),
        status=rollout.status or "",
        components=components,
        weights={name: weights.get(name, 1.0) for name in components},
    )


def _bounded(value: Any) -> Any:
    """A whole number beyond 64 bits as a float: it is a reward, or wrong."""
    return number(value) if isinstance(value, int) and abs(value) >= 2**63 else value


def _format(name: str, container: str, suffix: str, met: str) -> Format:
    return Format(
        name=name,
        container=container,
        needs=("group", "reward"),
        patterns=(f"*.{suffix}",),
        read=read_jsonl if container == JSONL else read_parquet,
        writer="anybody, by rollouts.schema.json",
        met=met,
    )


JSONL_FORMAT = _format("neutral-jsonl", JSONL, "jsonl", "real writer: GroupRecorder in TRL 0.15.1 and 1.16.0")
PARQUET_FORMAT = _format(
    "neutral-parquet", PARQUET, "parquet", "reconstruction: files that its schema allows"
)

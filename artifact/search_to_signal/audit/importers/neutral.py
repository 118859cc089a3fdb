"""The neutral log: one rollout per line of JSON Lines or row of Parquet, by ``rollouts.schema.json``.

Rows of one ``step`` and ``group`` are one group, wherever they stand. Columns beyond the schema are left
alone; ``label`` may name one of them.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.audit.groups import UNKNOWN, RewardGroups
from search_to_signal.audit.importers.base import (
    Format,
    ReadOptions,
    read_json,
    refuse_unknown_label,
    value_at,
)
from search_to_signal.audit.importers.gathering import Key, by_id, until_damaged
from search_to_signal.audit.importers.rows import NAN, Row, batches, digest, number, rows_of
from search_to_signal.audit.importers.sniffing import JSONL, PARQUET
from search_to_signal.audit.importers.tables import parquet_columns, read_table
from search_to_signal.errors import RecordError

SCHEMA = Path(__file__).with_name("rollouts.schema.json")


class Rollout(msgspec.Struct, frozen=True):
    """One rollout. Rows of one ``step`` and ``group`` are one group, in any order; a higher ``reward`` is
    better, null means none.

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
    return read_json(path, options, lambda record, at: _row(path, at, record, options), key=_key)


def read_parquet(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of a Parquet file; raises RecordError, naming the row, for one that breaks the schema."""
    columns = parquet_columns(path)
    refuse_unknown_label(path, dict.fromkeys(columns), options.label)
    wanted = [name for name in columns if name in COLUMNS or name == (options.label or "").split(".")[0]]
    rows = rows_of(path, read_table(path, wanted), lambda record, at: _row(path, at, record, options))
    named = [name for name in columns if name in ("step", "group")]
    keys = rows_of(path, read_table(path, named), _key)
    yield from batches(str(path), by_id(until_damaged(keys), rows), options.rows)


def _key(record: dict[str, Any], _: int) -> Key:
    """Step and group, as ``_row`` has them; what breaks the schema is left for it to name."""
    step, group = (_whole(record.get(name)) for name in ("step", "group"))
    return UNKNOWN if step is None else step, group


def _whole(value: Any) -> Any:
    """A whole number that was written as 3.0, as a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


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


JSONL_FORMAT = Format(
    name="neutral-jsonl",
    container=JSONL,
    needs=("group", "reward"),
    patterns=("*.jsonl",),
    read=read_jsonl,
    writer="anybody, by rollouts.schema.json",
    met="real writer: GroupRecorder in TRL 0.15.1 and 1.16.0",
)
PARQUET_FORMAT = replace(
    JSONL_FORMAT,
    name="neutral-parquet",
    container=PARQUET,
    patterns=("*.parquet",),
    read=read_parquet,
    met="reconstruction: files that its schema allows",
)

"""TRL's completions as a Weights & Biases table: ``media/table/completions_10_0a1b.table.json`` of a run.

Read: TRL 0.15.1 (trl/trainer/grpo_trainer.py, ``_prepare_inputs``, as installed), which writes no file of
its own; wandb/wandb, wandb/sdk/data_types/table.py (``bind_to_run``),
00dca15b8e07f9ef8fd971303bc697b5976f1103.

One JSON object with columns and data. 0.15.1 has step (a text), prompt, completion and reward, the weighted
sum; later versions have the columns of their Parquet files. A table holds one generation batch of a logged
step, at most 10,000 rows of it. The last batch is stored a second time when training ends.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.lines import first_record
from search_to_signal.audit.importers.trl import contents_of, read_rows
from search_to_signal.errors import RecordError


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one table; raises RecordError for one that is damaged or has not TRL's columns."""
    columns, data = _table(path)
    missing = [name for name in ("step", "prompt", "completion") if name not in columns]
    if missing:
        raise RecordError(
            f"{path} has the columns {', '.join(map(str, columns))}; to be read as TRL's table it misses "
            f"{', '.join(missing)}: give the table of completions"
        )
    numeric = [name for at, name in enumerate(columns) if all(_is_number(row[at]) for row in data)]
    return read_rows(path, columns, numeric, lambda names: _records(columns, data), options)


def _table(path: Path) -> tuple[list[Any], list[list[Any]]]:
    table = first_record(path)
    columns, data = table.get("columns"), table.get("data")
    if (
        not isinstance(columns, list)
        or not all(isinstance(name, str) for name in columns)
        or not isinstance(data, list)
        or not all(map(_is_row(columns), data))
    ):
        raise RecordError(
            f"{path}: not a table: names of columns and rows of their number are due; export it again"
        )
    return columns, data


def _contents(path: Path) -> bytes:
    return contents_of(record for _, record in _records(*_table(path)))


def _is_row(columns: Sequence[Any]) -> Any:
    return lambda row: isinstance(row, list) and len(row) == len(columns)


def _is_number(value: object) -> bool:
    return value is None or value in ("NaN", "Infinity", "-Infinity") or isinstance(value, int | float)


def _records(columns: Sequence[Any], data: Sequence[Sequence[Any]]) -> Iterable[tuple[int, dict[str, Any]]]:
    return ((at, dict(zip(columns, row, strict=True))) for at, row in enumerate(data))


FORMAT = Format(
    name="trl-wandb",
    container=JSONL,
    needs=("columns", "data"),
    patterns=(
        "media/table/completions_*.table.json",
        "completions_*.table.json",
        "files/media/table/completions_*.table.json",
        "*run-*/files/media/table/completions_*.table.json",
        "wandb/*run-*/files/media/table/completions_*.table.json",
    ),
    # The link latest-run is no run of its own.
    run=r"(?:offline-)?run-\d+_\d+-\w+",
    read=read,
    splits=True,
    writer="huggingface/trl 0.15.1 trl/trainer/grpo_trainer.py; wandb/wandb wandb/sdk/data_types/table.py "
    "00dca15b8e07f9ef8fd971303bc697b5976f1103",
    met="real writer: GRPOTrainer of 0.15.1, training, and wandb 0.19.11 (tests/proofs/trl_logs.py)",
    sums=True,
    contents=_contents,
)

"""TRL's completions as a Weights & Biases table: ``media/table/completions_10_0a1b.table.json`` of a run.

Read: TRL 0.15.1 (trl/trainer/grpo_trainer.py, ``_prepare_inputs``, as installed), which writes no file of
its own; wandb/wandb, wandb/sdk/data_types/table.py (``bind_to_run``),
00dca15b8e07f9ef8fd971303bc697b5976f1103.

huggingface/trl, trl/trainer/grpo_trainer.py and rloo_trainer.py (``log``),
f2cd57710ae345ea6428ae95363267fcf38a3dc8, 2026-07-24.

One JSON object with columns and data. 0.15.1 has step (a text), prompt, completion and reward, the weighted
sum; later versions have the columns of the Parquet files. A table holds one generation batch of a logged
step, at most 10,000 rows of it; with ``log_unique_prompts`` the first completion of each prompt, which is
refused. The last batch is stored a second time when training ends.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.importers.base import Format, Read, ReadOptions
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.lines import first_record
from search_to_signal.audit.importers.trl import Table, contents_of, read_of
from search_to_signal.errors import RecordError


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one table; raises RecordError for one that is damaged or has not TRL's columns."""
    return reader([path], options)(path, options)


def reader(files: Sequence[Path], options: ReadOptions) -> Read:
    """Reads the tables of a run, after a look at some of them."""
    return read_of(files, options, _opened)


def _opened(path: Path) -> Table:
    columns, data = _table(path)
    missing = [name for name in ("step", "prompt", "completion") if name not in columns]
    if missing:
        raise RecordError(
            f"{path} has the columns {', '.join(map(str, columns))}; to be read as TRL's table it misses "
            f"{', '.join(missing)}: give the table of completions"
        )
    numeric = [name for at, name in enumerate(columns) if all(_is_number(row[at]) for row in data)]
    return Table(path, columns, numeric, lambda names: _records(columns, data))


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
    """What a reward function may have given: no truth value, which is an extra."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or value in ("NaN", "Infinity", "-Infinity") or plain


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
    of_run=reader,
    splits=True,
    writer="huggingface/trl 0.15.1 and f2cd57710ae345ea6428ae95363267fcf38a3dc8 2026-07-24 "
    "trl/trainer/grpo_trainer.py, rloo_trainer.py; wandb/wandb wandb/sdk/data_types/table.py "
    "00dca15b8e07f9ef8fd971303bc697b5976f1103",
    met="real writer: GRPOTrainer of 0.15.1, training, and wandb 0.19.11 (tests/proofs/trl_logs.py)",
    sums=True,
    contents=_contents,
)

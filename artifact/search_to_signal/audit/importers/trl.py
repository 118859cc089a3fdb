"""TRL's completions log: ``completions/completions_00010.parquet``, one file per logged step.

Read: huggingface/trl, trl/trainer/grpo_trainer.py (``GRPOTrainer.log`` and
``_generate_and_score_completions``), f2cd57710ae345ea6428ae95363267fcf38a3dc8, 2026-07-24. Written since
v0.28.0 (commit 035c3ff15, 2026-01-29); earlier versions, 0.15.1 among them, write no file (see trl_tables),
and RLOOTrainer of 1.16.0 writes none either. Texts, or lists of messages.

Columns: step, prompt, completion, one per reward function, then those that reward functions logged
themselves, then advantage. Rewards and logged extras look alike in the file, weights stand in the
trainer's configuration, and there is no group id: the rows of one group stand together. A file holds the
last generation batch before its step: steps may be missing, a batch that trains two updates stands in two
files, of which the first is read, and an evaluation at the same step overwrites training. v0.28.0 and
v1.0.0 count a completion that no reward function scored as 0; here it has no reward, as in v1.6.0.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import ASSUMED_REWARD, Assumption, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, refuse_unknown_label, value_at
from search_to_signal.audit.importers.containers import PARQUET
from search_to_signal.audit.importers.groups_by_prompt import groups_by_prompt, prompt_evidence
from search_to_signal.audit.importers.rows import (
    NAN,
    Evidence,
    Group,
    RolloutRow,
    advantage,
    batches,
    count,
    digest,
    rows_of,
    score,
)
from search_to_signal.audit.importers.tables import number_columns, parquet_columns, read_table
from search_to_signal.errors import RecordError

Records = Callable[[Sequence[str]], Iterable[tuple[int, dict[str, Any]]]]
FIXED = ("step", "prompt", "completion", "advantage")
_MISSING = "a reward function that gave nothing, or NaN, adds nothing, as in TRL"


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one file; raises RecordError for a damaged file or one without a reward column."""
    columns = parquet_columns(path)
    return read_rows(path, columns, number_columns(path), lambda names: read_table(path, names), options)


def contents_of(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """A digest of rows without their step: a batch that trains twice is written twice, under two steps."""
    hashed = hashlib.blake2b(digest_size=16)
    for row in rows:
        hashed.update(
            repr([value for name, value in row.items() if name != "step"]).encode("utf-8", "replace")
        )
    return hashed.digest()


def _contents(path: Path) -> bytes:
    return contents_of(record for _, record in read_table(path, parquet_columns(path)))


def read_rows(
    path: Path, columns: Sequence[str], numeric: Sequence[str], records: Records, options: ReadOptions
) -> Iterator[RewardGroups]:
    """Groups of a table with TRL's columns; ``numeric`` ones hold numbers, ``records`` reads those named."""
    refuse_unknown_label(path, dict.fromkeys(columns), options.label)
    components = _components(path, columns, numeric, options)
    optional = ["advantage", *([options.label.split(".")[0]] if options.label else [])]
    wanted = dict.fromkeys([*FIXED[:3], *components, *(name for name in optional if name in columns)])
    rows = rows_of(path, records(list(wanted)), lambda record, at: _row(record, at, components, options))
    evidence = _evidence(components, options)
    groups = groups_by_prompt(path, rows, options)
    yield from batches(str(path), groups, options.rows, evidence, options.prompts)


def _components(
    path: Path, columns: Sequence[str], numeric: Sequence[str], options: ReadOptions
) -> tuple[str, ...]:
    """The reward columns: those that were named, or every column of numbers that TRL does not fix."""
    names = options.components or tuple(name for name in numeric if name not in FIXED)
    if not names:
        raise RecordError(
            f"{path} has no column of rewards, none of numbers beside {', '.join(FIXED)}: give a log "
            "that has a column of each reward function"
        )
    unknown = sorted({*names, *options.weights} - {*names} | {*names} - {*columns})
    if unknown:
        raise RecordError(
            f"{path} has no rewards {', '.join(unknown)}: as components, name columns that it has "
            f"({', '.join(columns)})"
        )
    return names


def _row(
    record: dict[str, Any], position: int, components: Sequence[str], options: ReadOptions
) -> RolloutRow:
    values = {name: score(record[name]) for name in components}
    weights = {name: options.weights.get(name, 1.0) for name in components}
    scored = [weights[name] * value for name, value in values.items() if not math.isnan(value)]
    return RolloutRow(
        group=record["prompt"],
        prompt=options.prompts.add(record["prompt"]),
        position=position,
        step=count(record["step"]),
        reward=sum(scored) if scored else NAN,
        advantage=advantage(record.get("advantage")),
        response=digest(_text(record["completion"])),
        label=value_at(record, options.label),
        components=values,
        weights=weights,
    )


def _text(completion: Any) -> str | None:
    """A completion as one text: of a conversation, its messages."""
    if completion is None or isinstance(completion, str):
        return completion
    return json.dumps(completion, default=str)


def _evidence(components: Sequence[str], options: ReadOptions) -> Evidence:
    chosen = (
        "as named by the caller" if options.components else "all columns of numbers that TRL does not fix"
    )
    weighing = (
        "the caller's weights" if options.weights else "weights of 1, since TRL keeps its weights elsewhere"
    )
    key = "named_reward" if options.components and options.weights else ASSUMED_REWARD
    says = f"the reward is the sum of {', '.join(components)} ({chosen}) with {weighing}"

    runs = prompt_evidence(options)

    def evidence(groups: Sequence[Group]) -> tuple[Assumption, ...]:
        rows = [row for group in groups for row in group]
        reward = Assumption(key, says, {"rows": len(rows)})
        scored = [row for row in rows if not math.isnan(row.reward)]
        lacking = sum(any(map(math.isnan, row.components.values())) for row in scored)
        missing = (Assumption("missing_parts", _MISSING, {"rows": lacking}),) if lacking else ()
        return (*runs(groups), reward, *missing)

    return evidence


FORMAT = Format(
    name="trl",
    container=PARQUET,
    needs=("step", "prompt", "completion"),
    patterns=("completions_*.parquet", "completions/completions_*.parquet"),
    read=read,
    splits=True,
    writer="huggingface/trl trl/trainer/grpo_trainer.py f2cd57710ae345ea6428ae95363267fcf38a3dc8 2026-07-24",
    met="real writer: GRPOTrainer of 1.16.0, training (tests/proofs/trl_logs.py)",
    sums=True,
    contents=_contents,
)

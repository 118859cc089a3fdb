"""TRL's completions log: ``completions/completions_00010.parquet``, one file per logged step.

Read: huggingface/trl, trl/trainer/grpo_trainer.py (``GRPOTrainer.log`` and
``_generate_and_score_completions``), f2cd57710ae345ea6428ae95363267fcf38a3dc8, 2026-07-24. Written since
v0.28.0 (commit 035c3ff15, 2026-01-29); earlier versions, 0.15.1 among them, write no file (see trl_tables),
and RLOOTrainer of 1.16.0 writes none either. Texts, or lists of messages.

Columns: step, prompt, completion, one per reward function, then those that reward functions logged
themselves (``log_extra``), then advantage. Rewards and logged extras look alike in the file, weights stand in
the trainer's configuration, and there is no group id: the rows of one group stand together. What the logged
advantages say of both is read in trl_evidence. A file holds the last generation batch before its step: steps
may be missing, a batch that trains two updates stands in two files, of which the first is read, and an
evaluation at the same step overwrites training, without a word of it in the file. pandas writes NaN as null:
a null advantage is one that the trainer computed as NaN (before 1c7c7f988, 2026-06-02; 0 since). Until then a
completion that no reward function scored counted as 0, which its advantage shows; it has no reward since.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from search_to_signal.audit.groups import ASSUMED_REWARD, Assumption, RewardGroups
from search_to_signal.audit.importers.base import (
    Format,
    Read,
    ReadOptions,
    refuse_unknown_label,
    value_at,
)
from search_to_signal.audit.importers.containers import PARQUET
from search_to_signal.audit.importers.groups_by_prompt import RUNS, groups_by_prompt, prompt_evidence
from search_to_signal.audit.importers.rows import (
    NAN,
    Evidence,
    Group,
    RolloutRow,
    batches,
    count,
    digest,
    float32,
    rows_of,
    score,
)
from search_to_signal.audit.importers.tables import number_columns, parquet_columns, read_table
from search_to_signal.audit.importers.trl_evidence import ZERO, Sample, Told, sample_of, size_of, told
from search_to_signal.errors import RecordError

Records = Callable[[Sequence[str]], Iterable[tuple[int, dict[str, Any]]]]
FIXED = ("step", "prompt", "completion", "advantage")
# Files of a run that are looked at before it is read.
_LOOKS = 16
_MISSING = "a reward function that gave nothing, or NaN, adds nothing, as in TRL"


@dataclass(frozen=True)
class Table:
    """One file with TRL's columns; ``numeric`` ones hold numbers, ``records`` reads those that are named."""

    path: Path
    columns: Sequence[str]
    numeric: Sequence[str]
    records: Records

    def named(self, options: ReadOptions) -> tuple[str, ...]:
        """Columns that may be the reward: named by the caller, or all numbers that TRL does not fix."""
        return options.components or tuple(name for name in self.numeric if name not in FIXED)

    def sample(self, names: Sequence[str]) -> Sample:
        """Its first rows with these columns; none where they cannot be read, which is said later."""
        known = [name for name in names if name in self.columns]
        logged = [name for name in ("advantage",) if name in self.columns]
        with suppress(RecordError, ValueError, TypeError, KeyError, OverflowError):
            return sample_of(self.records(["prompt", *known, *logged]), known)
        return sample_of((), known)


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one file; raises RecordError for a damaged file or one without a reward column."""
    return reader([path], options)(path, options)


def reader(files: Sequence[Path], options: ReadOptions) -> Read:
    """Reads the files of a run, after a look at some of them."""
    return read_of(files, options, _table)


def read_of(files: Sequence[Path], options: ReadOptions, opened: Callable[[Path], Table]) -> Read:
    """As ``reader``, for files that ``opened`` opens."""
    tables = []
    for path in files[:: -(-len(files) // _LOOKS)]:
        # What cannot be read is reported when it is its turn.
        with suppress(RecordError):
            tables.append(opened(path))
    samples = [table.sample(table.named(options)) for table in tables]
    known = told(samples, options.weights, bool(options.components or options.weights))
    return lambda path, given: _groups(opened(path), given, known)


def _table(path: Path) -> Table:
    return Table(path, parquet_columns(path), number_columns(path), lambda names: read_table(path, names))


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


def _groups(table: Table, options: ReadOptions, known: Told) -> Iterator[RewardGroups]:
    path, columns = table.path, table.columns
    refuse_unknown_label(path, dict.fromkeys(columns), options.label)
    components = _components(table, options, known)
    optional = ["advantage", *([options.label.split(".")[0]] if options.label else [])]
    wanted = dict.fromkeys([*FIXED[:3], *components, *(name for name in optional if name in columns)])
    sample = table.sample(components)
    _refuse_unique_prompts(path, sample)
    size, proved = size_of(sample, components, options.weights, known.size)
    records = table.records(list(wanted))
    rows = rows_of(path, records, lambda record, at: _row(record, at, components, options))
    groups = groups_by_prompt(path, rows, options, size)
    evidence = _evidence(
        _rewards(components, options, known),
        () if options.group_size else tuple(_evaluation(sample, size, known)),
        prompt_evidence(options, _how(sample, size, proved or size == known.size)),
    )
    yield from batches(str(path), groups, options.rows, evidence, options.prompts)


def _components(table: Table, options: ReadOptions, known: Told) -> tuple[str, ...]:
    """The reward columns: those that were named, or of the columns of numbers those that may be."""
    names = tuple(name for name in table.named(options) if name not in known.extras)
    if not names:
        raise RecordError(
            f"{table.path} has no column of rewards, none of numbers beside "
            f"{', '.join((*FIXED, *sorted(known.extras)))}: give a log with a column of each reward function"
        )
    unknown = sorted({*names, *options.weights} - {*names} | {*names} - {*table.columns})
    if unknown:
        raise RecordError(
            f"{table.path} has no rewards {', '.join(unknown)}: as components, name columns that it has "
            f"({', '.join(table.columns)})"
        )
    return names


def _refuse_unique_prompts(path: Path, sample: Sample) -> None:
    """Raise RecordError for a table without the rest of its groups: TRL trains none of one completion."""
    credited = sample.advantage is None or (np.abs(sample.advantage) > ZERO).any()
    if len(sample.runs) and sample.distinct and credited:
        raise RecordError(
            f"{path} holds one completion of each prompt, which cannot be audited: the table lacks the rest "
            "of each group; switch log_unique_prompts (wandb_log_unique_prompts) off, or give the Parquet "
            "files in completions/"
        )


def _how(sample: Sample, size: int | None, shown: bool) -> str:
    """How groups were found, in a sentence."""
    if size is None or not (shown or (sample.runs != size).any()):
        return RUNS
    tried = "which the logged advantages fit" if shown else "--group-size names another"
    return f"a group is {size} rows in a row with the same prompt, of which every run is a multiple: {tried}"


def _evaluation(sample: Sample, size: int | None, known: Told) -> Iterator[Assumption]:
    """Groups of another size than the run's: an evaluation overwrites the file of its step."""
    own = size or (sample.common if (sample.runs == sample.common).all() else 0)
    other = own not in (0, known.size) or bool((sample.runs % known.size).any()) if known.size else False
    if other or (sample.advantage is not None and (sample.runs == 1).any()):
        says = (
            "groups of another size than the run trains are an evaluation (num_generations_eval), which TRL "
            "writes over the file of its step, or what a table kept of a group: they say nothing of training"
        )
        yield Assumption("evaluation", says, {"files": 1})


def _row(
    record: dict[str, Any], position: int, components: Sequence[str], options: ReadOptions
) -> RolloutRow:
    values = {name: score(record[name]) for name in components}
    weights = {name: options.weights.get(name, 1.0) for name in components}
    credit = score(record["advantage"]) if "advantage" in record else None
    reward = _sum([(weights[name], value) for name, value in values.items() if not math.isnan(value)])
    if math.isnan(reward) and credit is not None and abs(credit) > ZERO:
        # What nothing scored was 0 in older versions.
        reward = 0.0
    return RolloutRow(
        group=record["prompt"],
        prompt=options.prompts.add(record["prompt"]),
        position=position,
        step=count(record["step"]),
        reward=reward,
        advantage=credit,
        response=digest(_text(record["completion"])),
        label=value_at(record, options.label),
        components=values,
        weights=weights,
    )


def _sum(parts: Sequence[tuple[float, float]]) -> float:
    """Weighted and added up in float32, one after the other, as TRL does."""
    total = 0.0
    for weight, value in parts:
        total = float32(total + float32(float32(weight) * float32(value)))
    return total if parts else NAN


def _text(completion: Any) -> str | None:
    """A completion as one text: of a conversation, its messages."""
    if completion is None or isinstance(completion, str):
        return completion
    return json.dumps(completion, default=str)


def _rewards(components: Sequence[str], options: ReadOptions, known: Told) -> Assumption:
    """Which columns the reward was made from, and why."""
    chosen = "all columns of numbers that TRL does not fix"
    if options.components:
        chosen = "as named by the caller"
    elif known.extras:
        chosen = f"what explains the logged advantages; no part of it: {', '.join(sorted(known.extras))}"
    weighing = (
        "the caller's weights" if options.weights else "weights of 1, since TRL keeps its weights elsewhere"
    )
    key = "named_reward" if options.components and options.weights else ASSUMED_REWARD
    return Assumption(key, f"the reward is the sum of {', '.join(components)} ({chosen}) with {weighing}", {})


def _evidence(reward: Assumption, others: Sequence[Assumption], runs: Evidence) -> Evidence:
    def evidence(groups: Sequence[Group]) -> tuple[Assumption, ...]:
        rows = [row for group in groups for row in group]
        scored = [row for row in rows if not math.isnan(row.reward)]
        lacking = sum(any(map(math.isnan, row.components.values())) for row in scored)
        missing = (Assumption("missing_parts", _MISSING, {"rows": lacking}),) if lacking else ()
        return (*runs(groups), replace(reward, counts={"rows": len(rows)}), *missing, *others)

    return evidence


FORMAT = Format(
    name="trl",
    container=PARQUET,
    needs=("step", "prompt", "completion"),
    patterns=("completions_*.parquet", "completions/completions_*.parquet"),
    read=read,
    of_run=reader,
    splits=True,
    writer="huggingface/trl trl/trainer/grpo_trainer.py f2cd57710ae345ea6428ae95363267fcf38a3dc8 2026-07-24",
    met="real writer: GRPOTrainer of 1.16.0, training (tests/proofs/trl_logs.py)",
    sums=True,
    contents=_contents,
)

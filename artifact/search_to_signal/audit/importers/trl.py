"""TRL's completions log, as Parquet files and as Weights & Biases tables, and logs of its columns by others.

``completions/completions_00010.parquet``, one file per logged step, is written by GRPOTrainer (``log``,
``_generate_and_score_completions``) since v0.28.0 (commit 035c3ff15, 2026-01-29); earlier versions, 0.15.1
among them, write no file, and RLOOTrainer of 1.16.0 writes none either. Texts, or lists of messages.

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
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from search_to_signal.audit.groups import ASSUMED_REWARD, UNKNOWN, Assumption, RewardGroups
from search_to_signal.audit.importers import base, containers
from search_to_signal.audit.importers.rows import (
    NAN,
    Evidence,
    Group,
    RolloutRow,
    batches,
    digest,
    float32,
    rows_of,
    score,
    told_by,
)
from search_to_signal.audit.importers.rows import count as rows_count
from search_to_signal.audit.importers.streams import first_record, read_lines
from search_to_signal.audit.importers.trl_evidence import ZERO, Sample, Told, sample_of, size_of, told
from search_to_signal.base.errors import RecordError

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

    def named(self, options: base.ReadOptions) -> tuple[str, ...]:
        """Columns that may be the reward: named by the caller, or all numbers that TRL does not fix."""
        return options.components or tuple(name for name in self.numeric if name not in FIXED)

    def sample(self, names: Sequence[str]) -> Sample:
        """Its first rows with these columns; none where they cannot be read, which is said later."""
        known = [name for name in names if name in self.columns]
        logged = [name for name in ("advantage",) if name in self.columns]
        with suppress(RecordError, ValueError, TypeError, KeyError, OverflowError):
            return sample_of(self.records(["prompt", *known, *logged]), known)
        return sample_of((), known)


def _reader(opened: Callable[[Path], Table], files: Sequence[Path], options: base.ReadOptions) -> base.Read:
    """Reads the files of a run, each as ``opened``, after a look at some of them."""
    tables = []
    for path in files[:: -(-len(files) // _LOOKS)]:
        # What cannot be read is reported when it is its turn.
        with suppress(RecordError):
            tables.append(opened(path))
    samples = [table.sample(table.named(options)) for table in tables]
    known = told(samples, options.weights, bool(options.components or options.weights))
    return lambda path, given: _groups(opened(path), given, known)


def _parquet(path: Path) -> Table:
    return Table(
        path,
        containers.parquet_columns(path),
        containers.number_columns(path),
        lambda names: containers.read_table(path, names),
    )


def _read(opened: Callable[[Path], Table], path: Path, options: base.ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one file; raises RecordError for a damaged file or one without a reward column."""
    return _reader(opened, [path], options)(path, options)


def _digest_of(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """A digest of rows without their step: a batch that trains twice is written twice, under two steps."""
    hashed = hashlib.blake2b(digest_size=16)
    for row in rows:
        hashed.update(
            repr([value for name, value in row.items() if name != "step"]).encode("utf-8", "replace")
        )
    return hashed.digest()


def _contents(opened: Callable[[Path], Table], path: Path) -> bytes:
    table = opened(path)
    return _digest_of(record for _, record in table.records(table.columns))


def _groups(table: Table, options: base.ReadOptions, known: Told) -> Iterator[RewardGroups]:
    path, columns = table.path, table.columns
    base.refuse_unknown_label(path, dict.fromkeys(columns), options.label)
    components = _components(table, options, known)
    optional = ["advantage", *([options.label.split(".")[0]] if options.label else [])]
    wanted = dict.fromkeys([*FIXED[:3], *components, *(name for name in optional if name in columns)])
    sample = table.sample(components)
    credited = sample.advantage is None or (np.abs(sample.advantage) > ZERO).any()
    if len(sample.runs) and sample.distinct and credited:
        # TRL trains no group of one completion.
        raise RecordError(
            f"{path} holds one completion of each prompt, which cannot be audited: the table lacks the rest "
            "of each group; switch log_unique_prompts (wandb_log_unique_prompts) off, or give the Parquet "
            "files in completions/"
        )
    weights = {name: (options.weights or known.weights).get(name, 1.0) for name in components}
    size, proved = size_of(sample, components, weights, known.size)
    records = table.records(list(wanted))
    rows = rows_of(path, records, lambda record, at: _row(record, at, weights, options))
    groups = base.groups_by_prompt(path, rows, options, size or 0)
    evidence = _evidence(
        _rewards(components, options, known),
        () if options.group_size else tuple(_evaluation(sample, size, known)),
        base.prompt_evidence(options, _how(sample, size, proved or size == known.size)),
    )
    yield from batches(str(path), groups, options.rows, evidence, options.prompts)


def _components(table: Table, options: base.ReadOptions, known: Told) -> tuple[str, ...]:
    names = tuple(name for name in table.named(options) if name not in known.extras)
    if not names:
        raise RecordError(
            f"{table.path} has no column of rewards: its only columns of numbers are "
            f"among {', '.join((*FIXED, *sorted(known.extras)))}; give a log with a column of each "
            "reward function"
        )
    unknown = sorted({*names, *options.weights} - {*names} | {*names} - {*table.columns})
    if unknown:
        raise RecordError(
            f"{table.path} has no rewards {', '.join(unknown)}: as components, name columns that it has "
            f"({', '.join(table.columns)})"
        )
    return names


def _how(sample: Sample, size: int | None, shown: bool) -> str:
    if size is None or not (shown or (sample.runs != size).any()):
        return base.RUNS
    tried = "which the logged advantages fit" if shown else "--group-size names another"
    return f"a group is {size} rows in a row with the same prompt, of which every run is a multiple: {tried}"


def _evaluation(sample: Sample, size: int | None, known: Told) -> Iterator[Assumption]:
    own = size or (sample.common if (sample.runs == sample.common).all() else 0)
    other = own not in (0, known.size) or bool((sample.runs % known.size).any()) if known.size else False
    if other or (sample.advantage is not None and (sample.runs == 1).any()):
        says = (
            "groups of another size than the run trains are an evaluation (num_generations_eval), which TRL "
            "writes over the file of its step, or what a table kept of a group: they say nothing of training"
        )
        yield Assumption("evaluation", says, {"files": 1})


def _row(
    record: dict[str, Any], position: int, weights: Mapping[str, float], options: base.ReadOptions
) -> RolloutRow:
    values = {name: score(record[name]) for name in weights}
    credit = score(record["advantage"]) if "advantage" in record else None
    reward = _sum([(weights[name], value) for name, value in values.items() if not math.isnan(value)])
    completion = record["completion"]
    if completion is not None and not isinstance(completion, str):
        completion = json.dumps(completion, default=str)
    if math.isnan(reward) and credit is not None and abs(credit) > ZERO:
        # What nothing scored was 0 in older versions.
        reward = 0.0
    return RolloutRow(
        group=record["prompt"],
        prompt=options.prompts.add(record["prompt"]),
        position=position,
        step=rows_count(record["step"]),
        reward=reward,
        advantage=credit,
        response=digest(completion),
        label=base.value_at(record, options.label),
        components=values,
        weights=weights,
        metrics=told_by(completion),
    )


def _sum(parts: Sequence[tuple[float, float]]) -> float:
    """Weighted and added up in float32, one after the other, as TRL does."""
    total = 0.0
    for weight, value in parts:
        total = float32(total + float32(float32(weight) * float32(value)))
    return total if parts else NAN


def _rewards(components: Sequence[str], options: base.ReadOptions, known: Told) -> Assumption:
    chosen = "all columns of numbers that TRL does not fix"
    if options.components:
        chosen = "as named by the caller"
    elif known.extras:
        chosen = f"what explains the logged advantages; no part of it: {', '.join(sorted(known.extras))}"
    weighing = "weights of 1, since TRL keeps its weights elsewhere"
    if options.weights:
        weighing = "the caller's weights"
    elif known.weights:
        shown = ", ".join(f"{name}={weight:g}" for name, weight in known.weights.items())
        weighing = f"the weights {shown}, which TRL's formula needs to give these advantages"
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


TRL = base.Format(
    name="trl",
    container=containers.PARQUET,
    needs=("step", "prompt", "completion"),
    patterns=("completions_*.parquet", "completions/completions_*.parquet"),
    read=partial(_read, _parquet),
    of_run=partial(_reader, _parquet),
    usual="trl-grpo",
    writer="huggingface/trl trl/trainer/grpo_trainer.py f2cd57710ae345ea6428ae95363267fcf38a3dc8 2026-07-24",
    met="real writer: GRPOTrainer of 1.16.0, training (tests/proofs/trl_logs.py)",
    takes=("components", "group_size"),
    contents=partial(_contents, _parquet),
)


# The table, ``media/table/completions_10_0a1b.table.json`` of a run (wandb's Table, ``bind_to_run``), is one
# JSON object with columns and data. 0.15.1 (``_prepare_inputs``) has step (a text), prompt, completion and
# reward, the weighted sum; later versions have the columns of the Parquet files. A table holds one generation
# batch of a logged step, at most 10,000 rows of it; with ``log_unique_prompts`` the first completion of each
# prompt, which is refused. The last batch is stored a second time when training ends.


def _wandb(path: Path) -> Table:
    table = first_record(path)
    columns, data = table.get("columns"), table.get("data")
    if (
        not isinstance(columns, list)
        or not all(isinstance(name, str) for name in columns)
        or not isinstance(data, list)
        or not all(isinstance(row, list) and len(row) == len(columns) for row in data)
    ):
        raise RecordError(
            f"{path}: not a table: names of columns and rows of their number are due; export it again"
        )
    missing = [name for name in ("step", "prompt", "completion") if name not in columns]
    if missing:
        raise RecordError(
            f"{path} has the columns {', '.join(map(str, columns))}; TRL's table also needs "
            f"{', '.join(missing)}: give the table of completions"
        )

    def is_number(value: object) -> bool:
        # No truth value, which is an extra.
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        return value is None or value in ("NaN", "Infinity", "-Infinity") or plain

    numeric = [name for at, name in enumerate(columns) if all(is_number(row[at]) for row in data)]
    return Table(
        path, columns, numeric, lambda names: enumerate(dict(zip(columns, row, strict=True)) for row in data)
    )


TRL_WANDB = base.Format(
    name="trl-wandb",
    container=containers.JSONL,
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
    read=partial(_read, _wandb),
    of_run=partial(_reader, _wandb),
    usual="trl-0.15.1-grpo",
    writer="huggingface/trl 0.15.1 and f2cd57710ae345ea6428ae95363267fcf38a3dc8 2026-07-24 "
    "trl/trainer/grpo_trainer.py, rloo_trainer.py; wandb/wandb wandb/sdk/data_types/table.py "
    "00dca15b8e07f9ef8fd971303bc697b5976f1103",
    met="real writer: GRPOTrainer of 0.15.1, training, and wandb 0.19.11 (tests/proofs/trl_logs.py)",
    takes=("components", "group_size"),
    contents=partial(_contents, _wandb),
)


# Logs of which a line is a whole batch, a list of completions under each column, or a row of one. ms-swift
# (with swift/megatron/trainers/grpo_trainer.py, ``_build_log_table``; swift/ray/megatron/base_trainer.py,
# ``_maybe_log_completions``, rows; swift/utils/io_utils.py, ``JsonlWriter``, which appends): step (a text;
# gen_step under Megatron and Ray), prompt, completion, a column for each reward function, advantages, then
# solution, num_turns and entropy. What was logged before is logged again where nothing was sampled since.
# ROLL (``dump_rollout_to_specific_path``): one line a file, with global_step, prompt, responses and scores.
# It has no advantages. Neither has weights or a group id: rows of a group stand together, as in TRL.

# What columns are called in the form of TRL's, which reads them.
_NAMES = {
    "gen_step": "step",
    "global_step": "step",
    "advantages": "advantage",
    "responses": "completion",
    "messages": "prompt",
}
_EXTRA = ("solution", "num_turns", "entropy", "difficulty", "image", "images")
_AGAIN = "a line with the rows of the one before it is the same batch logged again, and is left out"


def _read_lists(path: Path, options: base.ReadOptions) -> Iterator[RewardGroups]:
    table = _Lines(path)
    rows = _rows_of_line(path, 1, first_record(path))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    numeric = [
        name
        for name in columns
        if name not in (*FIXED, *_EXTRA)
        and all(row.get(name) is None or isinstance(row[name], int | float) for row in rows)
    ]
    last: RewardGroups | None = None
    opened = Table(path, columns, numeric, table.records)
    for batch in _read(lambda _: opened, path, options):
        if last is not None:
            yield last
        last = batch
    if last is not None:
        # What is seen of the lines is complete with the last batch.
        yield replace(last, assumptions=(*last.assumptions, *table.notes()))


@dataclass
class _Lines:
    """The lines of a file, how many were logged again, and the steps to which a run went back."""

    path: Path
    again: int = 0
    restarts: list[int] = field(default_factory=list)

    def records(self, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Line and row of each completion; what is seen of the lines is counted anew."""
        self.again, self.restarts = 0, []
        before, step = b"", UNKNOWN
        for number, record in read_lines(self.path):
            if not (rows := _rows_of_line(self.path, number, record)):
                continue
            contents = _digest_of(rows)
            if contents == before and len(rows) > 1:
                self.again += 1
                continue
            if rows_count(rows[0].get("step")) < step:
                self.restarts.append(rows_count(rows[0]["step"]))
            before, step = contents, rows_count(rows[0].get("step"))
            yield from ((number, row) for row in rows)

    def notes(self) -> Iterator[Assumption]:
        """What was seen of the lines."""
        if self.again:
            yield Assumption("repeated_lines", _AGAIN, {"lines": self.again})
        if self.restarts:
            yield base.sampled_again(
                f"step {self.restarts[0]} comes again after later ones", len(self.restarts)
            )


def _rows_of_line(path: Path, number: int, record: dict[str, Any]) -> list[dict[str, Any]]:
    """A row with TRL's names for each entry of the lists of a line, or the line itself where it has none."""
    kept = ((name, value) for name, value in record.items() if _NAMES.get(name) not in record)
    named = {_NAMES.get(name, name): value for name, value in kept}
    if not isinstance(named.get("step"), list):
        return [named]
    size = len(named["step"])
    lists = {name: values for name, values in named.items() if isinstance(values, list)}
    odd = [name for name, values in lists.items() if len(values) != size]
    if set(odd) - set(_EXTRA):
        raise RecordError(
            f"{path}:{number}: {', '.join(odd)} has not the {size} entries of step; leave the line out"
        )
    return [
        named | {name: values[at] for name, values in lists.items() if name not in odd} for at in range(size)
    ]


MS_SWIFT = base.Format(
    name="ms-swift",
    container=containers.JSONL,
    needs=("prompt", "completion", "advantages"),
    patterns=("completions.jsonl",),
    read=_read_lists,
    usual="trl-grpo",
    writer="modelscope/ms-swift swift/rlhf_trainers/grpo_trainer.py "
    "3602360a562313afbf2ef6065fdf61f271a2c5b9 2026-08-22",
    met="reconstruction: by its JsonlWriter",
    takes=("components", "group_size"),
)
MS_SWIFT_RAY = replace(MS_SWIFT, name="ms-swift-ray", needs=("gen_step", "prompt", "completion", "reward"))
ROLL = replace(
    MS_SWIFT,
    name="roll",
    needs=("global_step", "responses", "scores"),
    patterns=("rollout_dump_data.step_*.jsonl",),
    usual=None,
    writer="alibaba/ROLL roll/pipeline/rlvr/utils.py 8eb27cc2dc34c4d1310b169d9b86d339004d811a 2026-08-19",
    met="reconstruction: by its write_to_json_process",
)

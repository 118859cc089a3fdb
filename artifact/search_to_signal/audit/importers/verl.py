"""verl's rollout log: ``{trainer.rollout_data_dir}/{step}.jsonl``, one row per training sequence.

Read: verl-project/verl, verl/trainer/ppo/v1/trainer_base.py (``_log_rollout_data``,
``_write_generations``), verl/trainer/ppo/v1/agent_loop_tq.py (the keys) and verl/trainer/ppo/ray_trainer.py
(the deprecated trainer, v0), 1dda039b9c6311889a9c9a26040677e1254814f9, 2026-08-22; volcengine/verl, the
same trainer before the move, b178a3cd56f58b2d502255daba591e92833930a7, 2026-01-29.

Columns: input, output, gts, score, step. v1 (the default) adds uid, ``{prompt}_{session}_{output}``, and
sorts by it. v0 adds what the reward function returned and request_id, and no group: its rows are reordered to
balance devices, so equal inputs need not stand together; a key "score" that the function returned overwrites
what was trained. A validation (``trainer.validation_data_dir``) has the same form and a column reward.
Neither logs advantages. verl_samples says which rows are one sample, and what its reward is.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.importers.base import (
    Format,
    ReadOptions,
    read_json,
    refuse_unknown_reward,
    value_at,
)
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.lines import first_record
from search_to_signal.audit.importers.rows import RolloutRow, count, digest, float32, numbers, score
from search_to_signal.audit.importers.verl_samples import Samples

_BASE = ("input", "output", "gts", "score", "step", "uid", "request_id")


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one step's file; raises RecordError for a line that cannot be read."""
    refuse_unknown_reward(path, options.reward, dict)
    named = isinstance(first_record(path).get("uid"), str)
    samples = Samples(named, raw=options.reward is not None, validates="val" in path.parent.name.lower())

    def row(record: dict[str, Any], position: int) -> RolloutRow:
        made = _row(record, position, options, named)
        samples.keep(position, record)
        return made

    return read_json(path, options, row, samples.grouped, samples.evidence)


def _row(record: dict[str, Any], position: int, options: ReadOptions, named: bool) -> RolloutRow:
    step = count(record.get("step"))
    name = "uid" if named else "input"
    if record.get(name) is None:
        # Rows without one would be a group that nobody sampled.
        raise ValueError(f"no {name}, by which the rows before are grouped")
    output = record.get("output")
    return RolloutRow(
        group=(step, digest(str(record[name]))),
        name=str(record[name]) if named else "",
        prompt=options.prompts.add(record.get("input")),
        position=position,
        step=step,
        reward=float32(score(record.get(options.reward or "score"))),
        response=digest(None if output is None else str(output)),
        label=value_at(record, options.label),
        metrics=numbers(record, without=_BASE),
    )


FORMAT = Format(
    name="verl",
    container=JSONL,
    needs=("input", "output", "score", "step"),
    patterns=("[0-9]*.jsonl",),
    read=read,
    several=True,
    writer="verl-project/verl verl/trainer/ppo/v1/trainer_base.py, ray_trainer.py "
    "1dda039b9c6311889a9c9a26040677e1254814f9 2026-08-22",
    met="real writer: both _write_generations, called with given rows",
)

"""verl's rollout log: ``{trainer.rollout_data_dir}/{step}.jsonl``, one row per training sequence.

Read: verl-project/verl, verl/trainer/ppo/v1/trainer_base.py (``_log_rollout_data``,
``_write_generations``), verl/trainer/ppo/v1/agent_loop_tq.py (the keys) and verl/trainer/ppo/ray_trainer.py
(the deprecated trainer, v0), 1dda039b9c6311889a9c9a26040677e1254814f9, 2026-08-22; volcengine/verl, the
same trainer before the move, b178a3cd56f58b2d502255daba591e92833930a7, 2026-01-29.

Columns: input, output, gts, score, step. v1 (the default) adds uid, ``{prompt}_{session}_{output}``, and
sorts by it; a session with several outputs has one score, repeated for each. v0 adds what the reward
function returned and request_id, and no group: its rows are reordered to balance devices, so equal inputs
need not stand together. Neither logs advantages.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import Assumption, RewardGroups
from search_to_signal.audit.importers.base import (
    Format,
    ReadOptions,
    read_json,
    refuse_unknown_reward,
    value_at,
)
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.gathering import gathered
from search_to_signal.audit.importers.lines import first_record
from search_to_signal.audit.importers.rows import (
    Group,
    RolloutRow,
    assumed,
    count,
    digest,
    numbers,
    score,
    sizes,
)

_INPUTS = assumed(
    "equal_inputs",
    "a group is the rows of one step with the same input: the log names no group and reorders its rows",
)
_BASE = ("input", "output", "gts", "score", "step", "uid", "request_id")


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one step's file; raises RecordError for a line that cannot be read."""
    refuse_unknown_reward(path, options.reward, dict)
    named = isinstance(first_record(path).get("uid"), str)
    evidence = _sessions if named else _INPUTS
    return read_json(path, options, lambda record, at: _row(record, at, options, named), gathered, evidence)


def _row(record: dict[str, Any], position: int, options: ReadOptions, named: bool) -> RolloutRow:
    step = count(record.get("step"))
    name = "uid" if named else "input"
    if record.get(name) is None:
        # Rows without one would be a group that nobody sampled.
        raise ValueError(f"no {name}, by which the rows before are grouped")
    prompt, session = _key(record["uid"]) if named else (digest(str(record["input"])), "")
    metrics = numbers(record, without=_BASE)
    return RolloutRow(
        group=(step, prompt),
        name=str(prompt) if named else "",
        prompt=options.prompts.add(record.get("input")),
        position=position,
        step=step,
        reward=score(record.get(options.reward or "score")),
        response=digest(record.get("output")),
        label=value_at(record, options.label),
        metrics={**metrics, "session": float(session)} if session else metrics,
    )


def _key(uid: str) -> tuple[str, str]:
    """Prompt and session of a uid, which is the prompt alone where nothing was counted."""
    parts = uid.rsplit("_", 2)
    return (parts[0], parts[1]) if len(parts) == 3 and parts[1].isdecimal() else (uid, "")


def _sessions(groups: Sequence[Group]) -> tuple[Assumption, ...]:
    """Rows of one session repeat its score: a normalizer over rows counts them all."""
    rows = sum(len(group) for group in groups)
    sessions = sum(len({row.metrics.get("session", row.position) for row in group}) for group in groups)
    says = "a group is what shares the first part of uid; each output of a session is a row with its score"
    return (Assumption("outputs_of_sessions", says, {"rows": rows, "sessions": sessions, **sizes(groups)}),)


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

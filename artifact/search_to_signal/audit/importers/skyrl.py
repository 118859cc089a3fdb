"""SkyRL's evaluations: ``dumped_evals/global_step_N_evals/{data source}.jsonl``, one row per response.

Read: NovaSky-AI/SkyRL, skyrl/train/utils/trainer_utils.py (``dump_per_dataset_eval_results``) and
skyrl/train/trainer.py (``dump_data``), a9564572eb8e91076be43c1bd5e4615e3de17265, 2026-08-21.

Columns: input_prompt, output_response, score (a number, or one per token, which are added), stop_reason,
env_class, env_extras, data_source. Of step-wise trajectories every step is a row (``evaluate_step_wise``),
and SkyRL counts the last: rows whose prompt goes on from the row before are one sample. They are evaluations:
nothing of them was trained. Missing: training. It is dumped by ``dump_data_batch``, after rewards and prompt
ids were taken out, so no audit can be made of that: ``audit.live`` records it from within.
``aggregated_results.jsonl`` in the same directory holds no rows.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import UNKNOWN, Assumption, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, read_json, value_at
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.gathering import gathered
from search_to_signal.audit.importers.rows import Group, RolloutRow, assumed, digest, score

_STEP = re.compile(r"global_step_(\d+)")
# Characters of an answer that the next prompt repeats; more of it may be left out there, thoughts for one.
_ANSWER = 16
_STEPS = "rows whose prompt goes on from the row before are steps of one trajectory, and the last one counts"
_PROMPTS = assumed(
    "equal_prompts", "a group is the responses to one prompt of an evaluation, of which none is trained"
)


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one data source; raises RecordError for a line that cannot be read."""
    named = _STEP.search(path.parent.name)
    made = partial(_row, _Trajectory(), int(named[1]) if named else UNKNOWN, options)
    return read_json(path, options, made, lambda rows: gathered(_last_steps(rows)), _evidence)


@dataclass
class _Trajectory:
    """The trajectory that is being read: its first prompt, how its next must begin, and its steps so far."""

    prompt: str = ""
    begins: str = ""
    steps: int = 0

    def add(self, prompt: str, response: str) -> None:
        """The next row, which goes on where its prompt holds the prompt before and the answer to it."""
        goes_on = self.steps and len(prompt) > len(self.begins) and prompt.startswith(self.begins)
        self.prompt, self.steps = (self.prompt, self.steps + 1) if goes_on else (prompt, 1)
        self.begins = prompt + response[:_ANSWER]


def _last_steps(rows: Iterable[RolloutRow]) -> Iterator[RolloutRow]:
    last: RolloutRow | None = None
    for row in rows:
        if last is not None and row.metrics["steps"] == 1:
            yield last
        last = row
    if last is not None:
        yield last


def _evidence(groups: Sequence[Group]) -> tuple[Assumption, ...]:
    steps = [int(one.metrics["steps"]) for group in groups for one in group if one.metrics["steps"] > 1]
    counts = {"trajectories": len(steps), "steps": sum(steps)}
    return (*_PROMPTS(groups), *((Assumption("sessions", _STEPS, counts),) if steps else ()))


def _row(
    trajectory: _Trajectory, step: int, options: ReadOptions, record: dict[str, Any], position: int
) -> RolloutRow:
    given = record["score"]
    trajectory.add(str(record["input_prompt"]), str(record["output_response"]))
    return RolloutRow(
        group=trajectory.prompt,
        prompt=options.prompts.add(trajectory.prompt),
        position=position,
        step=step,
        reward=sum(map(score, given)) if isinstance(given, list) else score(given),
        response=digest(record["output_response"]),
        label=value_at(record, options.label or "data_source"),
        status=value_at(record, "stop_reason"),
        metrics={"steps": float(trajectory.steps)},
    )


FORMAT = Format(
    name="skyrl-eval",
    container=JSONL,
    needs=("input_prompt", "output_response", "score", "stop_reason", "env_class", "data_source"),
    patterns=(
        "*.jsonl",
        *(
            f"{below}{folder}/*.jsonl"
            for below in ("", "dumped_evals/")
            for folder in ("global_step_*_evals", "eval_only")
        ),
    ),
    beside=("aggregated_results.jsonl",),
    read=read,
    writer="NovaSky-AI/SkyRL skyrl/train/utils/trainer_utils.py "
    "a9564572eb8e91076be43c1bd5e4615e3de17265 2026-08-21",
    met="real writer: dump_per_dataset_eval_results, called with given responses",
)

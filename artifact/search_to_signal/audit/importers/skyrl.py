"""SkyRL's evaluations: ``dumped_evals/global_step_N_evals/{data source}.jsonl``, one row per response.

Read: NovaSky-AI/SkyRL, skyrl/train/utils/trainer_utils.py (``dump_per_dataset_eval_results``) and
skyrl/train/trainer.py (``dump_data``), a9564572eb8e91076be43c1bd5e4615e3de17265, 2026-08-21.

Columns: input_prompt, output_response, score (a number, or one per token, which are added), stop_reason,
env_class, env_extras, data_source. They are evaluations: nothing of them was trained. What is trained is
dumped by ``dump_data_batch``, after rewards and prompt ids were taken out, so no audit can be made of that:
``audit.live`` records it from within. ``aggregated_results.jsonl`` in the same directory holds no rows.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import UNKNOWN, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, read_json, value_at
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.gathering import gathered
from search_to_signal.audit.importers.rows import RolloutRow, assumed, digest, score

_STEP = re.compile(r"global_step_(\d+)")
_EVIDENCE = assumed(
    "equal_prompts", "a group is the responses to one prompt of an evaluation, of which none is trained"
)


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one data source; raises RecordError for a line that cannot be read."""
    named = _STEP.search(path.parent.name)
    step = int(named[1]) if named else UNKNOWN
    return read_json(path, options, lambda record, at: _row(record, at, step, options), gathered, _EVIDENCE)


def _row(record: dict[str, Any], position: int, step: int, options: ReadOptions) -> RolloutRow:
    given = record["score"]
    return RolloutRow(
        group=str(record["input_prompt"]),
        prompt=options.prompts.add(record["input_prompt"]),
        position=position,
        step=step,
        reward=sum(map(score, given)) if isinstance(given, list) else score(given),
        response=digest(record["output_response"]),
        label=value_at(record, options.label or "data_source"),
        status=value_at(record, "stop_reason"),
    )


FORMAT = Format(
    name="skyrl-eval",
    container=JSONL,
    needs=("input_prompt", "output_response", "score", "stop_reason", "env_class", "data_source"),
    patterns=("*.jsonl", "global_step_*_evals/*.jsonl", "dumped_evals/global_step_*_evals/*.jsonl"),
    beside=("aggregated_results.jsonl",),
    read=read,
    writer="NovaSky-AI/SkyRL skyrl/train/utils/trainer_utils.py "
    "a9564572eb8e91076be43c1bd5e4615e3de17265 2026-08-21",
    met="real writer: dump_per_dataset_eval_results, called with given responses",
)

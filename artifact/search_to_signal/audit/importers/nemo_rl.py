"""NeMo-RL's training data: ``train_data_step{N}.jsonl`` in the log directory, one row per sequence.

Read: NVIDIA-NeMo/RL, nemo_rl/algorithms/grpo.py and grpo_sync.py (the keys), nemo_rl/utils/logger.py
(``log_batched_dict_as_jsonl``), nemo_rl/distributed/batched_data_dict.py (``make_microbatch_iterator``),
7ea279abfbeb698b092856d0dab61e7cf39bc909, 2026-08-22.

Every value is a list of one, since the writer goes through batches of one: rewards, advantages and
token_loss_mask (per token, padded), input_lengths, sample_loss_mask (0 where overlong filtering or a filter
of the environment took the sample out of the loss; it counts in its group), token_ids and content where they
were kept, idx. There is no group: rows of a prompt stand together, and the prompt is what stands before the
first trained token. With dynamic sampling ``filtered_rewards`` are those of the rows, and ``rewards`` the
first of all that were sampled, as many as there are rows: groups that tie there were dropped. Missing: how
many more were sampled. A run that logs NeMo Gym responses writes no such file.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import UNKNOWN, Assumption, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, read_json, value_at
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.groups_by_prompt import groups_by_prompt, prompt_evidence
from search_to_signal.audit.importers.rows import Group, RolloutRow, count, digest, score

_DROPPED = (
    "dynamic sampling drops groups of equal rewards before training: so many of the groups that were sampled "
    "first tie, and are no waste here"
)
_STEP = re.compile(r"step_?(\d+)")


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one step's file; raises RecordError for a line that cannot be read."""
    named = _STEP.search(path.name)
    step = int(named[1]) if named else UNKNOWN
    return read_json(
        path,
        options,
        lambda record, at: _row(record, at, step, options),
        lambda rows: groups_by_prompt(path, rows, options),
        lambda groups: (*prompt_evidence(options)(groups), *_dropped(groups)),
    )


def _dropped(groups: Sequence[Group]) -> tuple[Assumption, ...]:
    """Of what was sampled for a step, what dynamic sampling dropped: groups of equal rewards."""
    sampled = [one.metrics["sampled"] for group in groups for one in group if "sampled" in one.metrics]
    size = len(groups[0])
    if not sampled or any(len(group) != size for group in groups):
        return ()
    drawn = [sampled[start : start + size] for start in range(0, len(sampled), size)]
    counts = {"groups": len(drawn), "dropped": sum(len(set(rewards)) == 1 for rewards in drawn)}
    return (Assumption("filtered_groups", _DROPPED, counts),)


def _row(record: Mapping[str, Any], position: int, step: int, options: ReadOptions) -> RolloutRow:
    given = {name: _only(value) for name, value in record.items()}
    mask = [bool(counts) for counts in given["token_loss_mask"]]
    tokens = given.get("token_ids")
    first = mask.index(True) if True in mask else len(mask)
    end = count(given["input_lengths"])
    return RolloutRow(
        group=digest(repr(tokens[:first] if tokens else _first_text(given.get("content")))),
        position=position,
        step=step,
        reward=score(given.get("filtered_rewards", given["rewards"])),
        advantage=_credit(given["advantages"], mask),
        tokens=sum(mask),
        response=digest(repr(tokens[first:end])) if tokens else digest(repr(given.get("content"))),
        label=value_at(given, options.label),
        masked=score(given.get("sample_loss_mask")) == 0.0,
        metrics={"sampled": score(given["rewards"])} if "filtered_rewards" in given else {},
    )


def _only(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _first_text(content: Any) -> Any:
    return content[0] if isinstance(content, list) and content else content


def _credit(given: Any, mask: list[bool]) -> float | None:
    """The advantage of a sequence: that of its trained tokens, where they have one; else their mean."""
    if not isinstance(given, list):
        return score(given)
    trained = [score(value) for value, counts in zip(given, mask, strict=True) if counts]
    if not trained:
        return None
    return trained[0] if len(set(trained)) == 1 else sum(trained) / len(trained)


FORMAT = Format(
    name="nemo-rl",
    container=JSONL,
    needs=("rewards", "input_lengths", "token_loss_mask", "sample_loss_mask", "advantages", "idx"),
    patterns=("train_data_step*.jsonl", "exp_*/train_data_step*.jsonl", "*/exp_*/train_data_step*.jsonl"),
    read=read,
    splits=True,
    writer="NVIDIA-NeMo/RL nemo_rl/algorithms/grpo.py, nemo_rl/utils/logger.py "
    "7ea279abfbeb698b092856d0dab61e7cf39bc909 2026-08-22",
    met="real writer: log_batched_dict_as_jsonl with its BatchedDataDict, called with given rows",
)

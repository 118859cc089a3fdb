"""ThetaEvolve's rollout dumps, and those of slime before samples had a group: ``torch.save`` files.

Read: ypwang61/ThetaEvolve, slime/ray/rollout.py (``_save_debug_rollout_data``),
slime/ray/rollout_data_source.py and slime/utils/types.py, efcbe00ba3272bfff9b5b26b30fc64e631f2f488,
2025-12-29.

As slime's, without group_index, rollout_id and remove_sample: every prompt is copied n_samples_per_prompt
times and the copies stand together. The list was cut to a multiple of the batch size before it was saved,
so the last group may be incomplete. Missing: advantages, and groups that a dynamic sampling filter dropped.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions
from search_to_signal.audit.importers.containers import TORCH
from search_to_signal.audit.importers.groups_by_prompt import groups_by_prompt, prompt_evidence
from search_to_signal.audit.importers.rows import batches
from search_to_signal.audit.importers.slime import dump_rows


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one dump; raises RecordError for a file that is damaged or holds more than plain data."""
    runs = groups_by_prompt(path, dump_rows(path, options, _prompt), options)
    yield from batches(str(path), runs, options.rows, prompt_evidence(options), options.prompts)


def _prompt(sample: Mapping[str, Any]) -> tuple[str, ...]:
    """The prompt: a text, or the contents of its messages."""
    prompt = sample.get("prompt")
    messages: Sequence[Any] = prompt if isinstance(prompt, list) else [{"content": prompt}]
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    return tuple(content for content in contents if isinstance(content, str))


FORMAT = Format(
    name="theta-evolve",
    container=TORCH,
    needs=("index", "prompt", "reward", "status"),
    patterns=("rollout_data/[0-9]*.pt", "[0-9]*.pt", "rollout_[0-9]*.pt"),
    read=read,
    several=True,
    splits=True,
    writer="ypwang61/ThetaEvolve slime/ray/rollout.py efcbe00ba3272bfff9b5b26b30fc64e631f2f488 2025-12-29",
    met="real writer: _save_debug_rollout_data, called with given samples",
)

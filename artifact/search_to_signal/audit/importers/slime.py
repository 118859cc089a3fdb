"""slime's rollout dumps: one ``torch.save`` file per rollout, by ``--save-debug-rollout-data``.

Read: THUDM/slime, slime/observability/rollout_data_utils.py (``save_debug_rollout_data``) and
slime/utils/types.py (``Sample.to_dict``), 624b824a898ab0ec1fcb4d373004c7f3852bf515, 2026-08-21.

``{"rollout_id", "samples"}``; a sample has group_index, index, reward (a number, or several by name),
status, response, response_length, loss_mask, remove_sample. What ``remove_sample`` is true of counts in its
group and not in the loss; a status takes nothing out. The reward is raw: advantages are computed later
(slime/ray/rollout.py, ``_post_process_rewards``) and not dumped. Samples cut from one rollout share
rollout_id and count one by one: slime then compares every sample with the whole step. Missing: groups that a
dynamic sampling filter dropped. Files of evaluations start with ``eval_``.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from search_to_signal.audit.groups import Assumption, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, refuse_unknown_label, value_at
from search_to_signal.audit.importers.containers import TORCH, samples_in
from search_to_signal.audit.importers.gathering import gathered
from search_to_signal.audit.importers.plain_pickle import load_plain
from search_to_signal.audit.importers.rows import (
    Group,
    RolloutRow,
    batches,
    count,
    digest,
    evaluated,
    no_ties,
    numbers,
    rows_of,
    score,
)
from search_to_signal.errors import RecordError

_CUT = (
    "samples that were cut from one rollout count one by one, and slime then compares every sample with the "
    "whole step, whatever its group"
)
GroupKey = Callable[[Mapping[str, Any]], Hashable]


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one dump; raises RecordError for a file that is damaged or holds more than plain data."""
    groups = gathered(dump_rows(path, options, _group_index))
    yield from batches(str(path), groups, options.rows, partial(_evidence, path), options.prompts)


def _evidence(path: Path, groups: Sequence[Group]) -> tuple[Assumption, ...]:
    """Samples of one rollout, groups that were dropped before, and evaluations."""
    if path.name.startswith("eval_"):
        return evaluated(len(groups))
    rows = (one.metrics for group in groups for one in group)
    known = Counter(metrics["rollout_id"] for metrics in rows if "rollout_id" in metrics)
    several = [number for number in known.values() if number > 1]
    counts = {"rollouts": len(several), "samples": sum(several)}
    cut = (Assumption("cut_rollouts", _CUT, counts),) if several else ()
    return (*cut, *no_ties("--dynamic-sampling-filter-path", groups))


def _group_index(sample: Mapping[str, Any]) -> Hashable:
    """The group a sample says it is of; a sample that says none is a group of its own."""
    group = sample.get("group_index")
    return group if isinstance(group, int | str) else ("alone", id(sample))


def dump_rows(path: Path, options: ReadOptions, group: GroupKey) -> Iterator[RolloutRow]:
    """The samples of a dump as rows; ``group`` says which samples belong together."""
    dump = load_plain(path)
    samples = samples_in(path, dump)
    refuse_unknown_label(path, next(iter(samples), {}), options.label)
    step = count(dump.get("rollout_id"))
    return rows_of(
        path, enumerate(samples), lambda sample, at: _row(path, sample, at, step, group(sample), options)
    )


def _row(
    path: Path, sample: dict[str, Any], position: int, step: int, group: Hashable, options: ReadOptions
) -> RolloutRow:
    reward, components = _reward(path, position, sample.get("reward"), options)
    return RolloutRow(
        group=group,
        name=value_at(sample, "group_index"),
        prompt=options.prompts.add(sample.get("prompt")),
        position=position,
        step=step,
        reward=reward,
        tokens=_trained_tokens(sample),
        response=digest(_text(sample.get("response"))),
        label=value_at(sample, options.label),
        status=value_at(sample, "status"),
        masked=bool(sample.get("remove_sample")),
        metrics={**components, **numbers({k: sample.get(k) for k in ("rollout_id", "remove_sample")})},
    )


def _reward(path: Path, position: int, reward: Any, options: ReadOptions) -> tuple[float, dict[str, float]]:
    """The reward of a sample, and what came with it; of several, the one that the caller names."""
    if not isinstance(reward, Mapping):
        if options.reward is not None:
            raise RecordError(f"{path}: sample {position} has one reward without a name: leave `reward` out")
        return score(reward), {}
    if options.reward not in reward:
        raise RecordError(
            f"{path}: sample {position} has several rewards ({', '.join(map(str, reward))}): "
            "name the one that was trained as `reward`"
        )
    return score(reward[options.reward]), numbers(reward, without=[str(options.reward)])


def _trained_tokens(sample: Mapping[str, Any]) -> int:
    mask = sample.get("loss_mask")
    if isinstance(mask, list | tuple | np.ndarray):
        return sum(map(bool, mask))
    return count(sample.get("response_length"))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


FORMAT = Format(
    name="slime",
    container=TORCH,
    needs=("group_index", "index", "reward", "status", "response"),
    patterns=("rollout_data/[0-9]*.pt", "[0-9]*.pt", "rollout_[0-9]*.pt"),
    read=read,
    several=True,
    writer="THUDM/slime slime/observability/rollout_data_utils.py "
    "624b824a898ab0ec1fcb4d373004c7f3852bf515 2026-08-21",
    met="real writer: save_debug_rollout_data, called with given samples",
)

"""Groups that wait for the others of their step, and what a learner stores of itself with them."""

import msgspec
import numpy as np

from search_to_signal.base.errors import LearnerError
from search_to_signal.learner.base import TrainingGroup

Ids = tuple[int, ...]


class WaitingGroup(msgspec.Struct, frozen=True):
    """A group without its records, as ``TrainingGroup`` has it."""

    prompt_ids: Ids
    completion_ids: tuple[Ids, ...]
    advantages: tuple[float, ...]
    truncated: tuple[bool, ...] = ()
    credited: tuple[tuple[bool, ...], ...] = ()


class LearnerDump(msgspec.Struct, frozen=True):
    """Adapter and optimizer as one file's bytes, the groups of the step in progress, and draws (GRPO)."""

    state: bytes
    waiting: tuple[WaitingGroup, ...]
    redrawn: int = 0


def waiting_group(group: TrainingGroup) -> WaitingGroup:
    """The group as it waits; raises LearnerError for advantages that are not finite, or not one each."""
    advantages, completions = group.advantages, len(group.completion_ids)
    if not np.isfinite(advantages).all():
        raise LearnerError(f"advantages {advantages.tolist()} are not finite: check the reward mapping")
    if advantages.shape != (completions,):
        raise LearnerError(
            f"advantages of shape {advantages.shape} for {completions} completions: give one each"
        )
    return WaitingGroup(
        tuple(group.prompt_ids),
        tuple(map(tuple, group.completion_ids)),
        tuple(advantages.tolist()),
        tuple(group.truncated),
        tuple(map(tuple, group.credited)),
    )


def read_dump(data: bytes) -> LearnerDump:
    """What a learner stored; raises LearnerError for the bytes of another kind of learner."""
    try:
        return msgspec.msgpack.decode(data, type=LearnerDump)
    except msgspec.MsgspecError as error:
        raise LearnerError(f"the checkpoint is of another learning rule ({error})") from error

"""What a learning rule is: it makes a learner, which takes a group and says what it did to the adapter.

Groups may wait for the others of their step; a learner stores them with itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.errors import ConfigError, LearnerError
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.records.schema import CompletionRecord, Dropped, PreferenceRecord, RuleFacts


@dataclass(frozen=True)
class TrainingGroup:
    """One evaluated group of G completions, as sampled and as credited.

    ``advantages`` (G,) come from the run's mapping and normalizer. ``truncated`` says which completions were
    cut at the limit. ``records`` are the group's records, with outcomes, scores and rewards. ``credited``
    says of every token whether it carries the gradient, one row per completion; without it all do (D43).
    """

    prompt_ids: Sequence[int]
    completion_ids: Sequence[Sequence[int]]
    advantages: NDArray[np.float64]
    truncated: Sequence[bool] = ()
    records: Sequence[CompletionRecord] = ()
    credited: Sequence[Sequence[bool]] = ()


@dataclass(frozen=True)
class StepResult:
    """What one optimizer opportunity did; ``grad_norm`` is the norm before clipping.

    A skipped opportunity has no loss, KL or norm, and no training tokens; ``not_finite`` says that its
    gradient was the reason. ``pairs`` are those of a rule that learns from pairs. ``sampler_difference`` is
    for the run to say, not for a rule (``StepRecord``). ``dropped`` says why this group is never trained on,
    and another is drawn in its place.
    """

    loss: float | None
    kl: float | None
    grad_norm: float | None
    training_tokens: int
    adapter_sha256: str
    pairs: PreferenceRecord | None = None
    not_finite: bool = False
    sampler_difference: float | None = None
    dropped: Dropped | None = None


class LearnerSetup(NamedTuple):
    """What a learner begins with: a PEFT model with a fresh adapter, and two tables of the profile.

    ``learner`` has LoRA, the optimizer and GRPO's knobs; ``settings`` is ``[rule_settings]``. Whatever a rule
    draws, it draws from streams of ``seed``.
    """

    model: Any
    learner: LearnerSettings
    pad_id: int
    settings: Mapping[str, Any]
    seed: int = 0


class Learner(Protocol):
    """A rule at work on one model. Equal groups in equal order give equal bits on one machine."""

    @property
    def model(self) -> Any:
        """The adapted model; its adapter is published to the generator after every step, and stored."""

    def step(self, group: TrainingGroup) -> StepResult:
        """Learn from one group.

        Args:
            group: Tokens, and one advantage per completion; a higher one makes its tokens more likely.

        Returns:
            What the optimizer did. A gradient that is not finite is a skipped opportunity, and reaches no
            weight.

        Raises:
            LearnerError: The group is too long or empty, or its advantages are not finite.
        """

    def dump(self) -> bytes:
        """Store the learner.

        Returns:
            Everything that steps change, as the bytes of a file.
        """

    def load(self, data: bytes) -> None:
        """Restore the learner; the next step does the same bits as if nothing had been between.

        Args:
            data: What ``dump`` returned.

        Raises:
            LearnerError: These are not the bytes of such a learner.
        """


@runtime_checkable
class RoundLearner(Protocol):
    """A learner whose every round begins anew: earlier rounds leave nothing in its adapter."""

    def collect(self, group: TrainingGroup) -> None:
        """Take a group as ``step`` does, without the round that may be due.

        Args:
            group: As for ``step``.

        Raises:
            LearnerError: As ``step`` does.
        """


class LearningRule(Protocol):
    """What a profile names as ``learning_rule``.

    With an attribute ``reads_records`` that is false it leaves ``TrainingGroup.records`` alone, and
    need not wait until what its group admitted has been replayed.
    """

    def check(self, settings: Mapping[str, Any]) -> None:
        """Check settings before a run begins.

        Args:
            settings: The table ``[rule_settings]`` of a profile.

        Raises:
            ConfigError: A setting is unknown or cannot work.
        """

    def learner(self, setup: LearnerSetup) -> Learner:
        """Begin to learn.

        Args:
            setup: The model with its fresh adapter, settings and the run's seed.

        Returns:
            The learner of one run.
        """


@runtime_checkable
class HasFacts(Protocol):
    """A rule that says what its steps are like, so that a check of records can hold them to it."""

    def facts(self, settings: Mapping[str, Any]) -> RuleFacts:
        """Describe the steps of a run.

        Args:
            settings: The table ``[rule_settings]`` of a profile.

        Returns:
            How many groups a step trains on, whether its loss is always finite, whether it learns from pairs.
        """


def rule_facts(rule: LearningRule, settings: Mapping[str, Any]) -> RuleFacts:
    """What a rule says of its steps; nothing where it does not. Raises ConfigError for anything else."""
    facts = rule.facts(settings) if isinstance(rule, HasFacts) else RuleFacts()
    if not isinstance(facts, RuleFacts):
        raise ConfigError(f"the learning rule's facts are {type(facts).__name__}: give records.RuleFacts")
    return facts


def reads_records(rule: LearningRule) -> bool:
    """Whether a rule may read the records of a group."""
    return bool(getattr(rule, "reads_records", True))


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

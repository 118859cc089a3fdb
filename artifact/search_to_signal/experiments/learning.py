"""The learner's side of a run: rewards from records, one optimizer opportunity per group."""

import copy
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from search_to_signal.experiments.configuration import FROZEN, RunConfig
from search_to_signal.generators.base import Generation
from search_to_signal.learner.adapter import adapter_sha256, attach_adapter, publish
from search_to_signal.learner.grpo import Learner, StepResult
from search_to_signal.normalizer import group_advantages
from search_to_signal.records.groups import batch_of
from search_to_signal.records.schema import CompletionRecord
from search_to_signal.rewards import RewardMapping, get_mapping
from search_to_signal.seeding import derive_seed


def credited(records: list[CompletionRecord], mapping: RewardMapping) -> list[CompletionRecord]:
    """The records of one group with reward components, rewards and advantages."""
    rewards = mapping(batch_of([records]))
    advantages = group_advantages(rewards.reward)
    return [
        msgspec.structs.replace(
            record,
            components={name: float(values[0, i]) for name, values in rewards.components.items()},
            reward=float(rewards.reward[0, i]),
            advantage=float(advantages[0, i]),
        )
        for i, record in enumerate(records)
    ]


@dataclass(frozen=True)
class Training:
    """A mapping and a learner; a frozen run has none."""

    mapping: RewardMapping
    learner: Learner
    initial_sha256: str

    def update(self, generation: Generation, records: list[CompletionRecord], sampler: Any) -> StepResult:
        """One optimizer opportunity, after which ``sampler`` speaks with the new adapter."""
        advantages = np.array([record.advantage for record in records], dtype=np.float64)
        completions = [completion.ids for completion in generation.completions]
        result = self.learner.step(generation.prompt_ids, completions, advantages)
        publish(self.learner.model, sampler)
        return result


def begin_training(config: RunConfig, sampler: Any, pad_id: int) -> Training | None:
    """The training of a run's condition, from a copy of the sampler's weights; None when frozen.

    A 4-bit sampler is not copied, since a sum of base and adapter cannot be written back into 4 bits: it
    holds the adapter itself.
    """
    if config.condition == FROZEN:
        return None
    seed = derive_seed(config.seed, "adapter")
    base = sampler if config.learner.load_in_4bit else copy.deepcopy(sampler)
    model = attach_adapter(base, config.learner, seed)
    learner = Learner(model, config.learner, pad_id)
    return Training(get_mapping(config.condition), learner, adapter_sha256(model))

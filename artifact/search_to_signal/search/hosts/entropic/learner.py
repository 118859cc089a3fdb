"""TTT-Discover's step: a policy gradient summed over tokens, with a KL penalty inside the advantage.

The advantages are the run's normalizer's: ``entropic`` for the published rule. Source: the repository
test-time-training/discover, tinker_cookbook/rl (train.py, metrics.py); D57.
"""

from typing import Any, NamedTuple

import msgspec
import torch

from search_to_signal.base.settings import settings_of
from search_to_signal.learner.adapter import adapter_sha256
from search_to_signal.learner.base import (
    LearnerDump,
    LearnerSetup,
    StepResult,
    TrainingGroup,
    WaitingGroup,
    read_dump,
    waiting_group,
)
from search_to_signal.learner.grpo_loss import TokenGroup, fitting_group, token_log_probabilities
from search_to_signal.learner.optimizer import build_optimizer, clipped_step, dump_state, load_state
from search_to_signal.learner.settings import refuse_unread
from search_to_signal.search.hosts.entropic.rule import EntropicSettings


class ScoredGroup(NamedTuple):
    """A group, the token log-ratio of policy to base (G, C), 0 where the mask is, and its credit (G,)."""

    tokens: TokenGroup
    ratio: torch.Tensor
    credit: torch.Tensor


class EntropicLearner:
    """Owns the adapted model, its optimizer and the groups of the batch in progress."""

    def __init__(self, setup: LearnerSetup) -> None:
        refuse_unread(setup.learner, "entropic", "logit_temperature")
        self.model: Any = setup.model
        self._settings = settings_of(setup.settings, EntropicSettings, "rule_settings")
        self._learner = setup.learner
        self._pad_id = setup.pad_id
        self._trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self._optimizer = build_optimizer(list(self._trained.values()), setup.learner)
        self._waiting: tuple[WaitingGroup, ...] = ()
        self.model.eval()

    def step(self, group: TrainingGroup) -> StepResult:
        """Take a group; with the last of its batch make one optimizer step.

        Raises LearnerError before anything non-finite reaches a weight.
        """
        self._waiting = (*self._waiting, waiting_group(group))
        if len(self._waiting) < self._settings.groups_per_batch:
            return StepResult(None, None, None, 0, adapter_sha256(self.model))
        batch, self._waiting = [self._scored(waiting) for waiting in self._waiting], ()
        count = sum(scored.tokens.training_tokens for scored in batch)
        mean, loss = sum(float(scored.ratio.sum()) for scored in batch) / count, 0.0
        for scored in batch:
            part = surrogate(self.model, scored, mean, self._settings.kl_penalty_coef)
            part.backward()  # type: ignore[no-untyped-call]
            loss += float(part)
        parameters = list(self._trained.values())
        norm = clipped_step(self._optimizer, parameters, self._learner.max_grad_norm, "groups")
        return StepResult(loss, mean, norm, count, adapter_sha256(self.model))

    @torch.no_grad()
    def _scored(self, group: WaitingGroup) -> ScoredGroup:
        temperature = self._learner.logit_temperature
        tokens = fitting_group(self.model, group.prompt_ids, group.completion_ids, self._pad_id, temperature)
        policy = token_log_probabilities(self.model, tokens)
        with self.model.disable_adapter():
            base = token_log_probabilities(self.model, tokens)
        credit = torch.tensor(group.advantages, dtype=torch.float32, device=self.model.device)
        return ScoredGroup(tokens, (policy - base) * tokens.completion_mask, credit)

    def dump(self) -> bytes:
        """Adapter, optimizer and waiting groups as bytes."""
        return msgspec.msgpack.encode(LearnerDump(dump_state(self._trained, self._optimizer), self._waiting))

    def load(self, data: bytes) -> None:
        """Go on from ``dump``; raises LearnerError when it belongs to another adapter."""
        dump = read_dump(data)
        load_state(dump.state, self._trained, self._optimizer)
        self._waiting = dump.waiting


def surrogate(model: Any, group: ScoredGroup, mean: float, penalty: float) -> torch.Tensor:
    """Minus the sum over tokens of policy ratio times advantage, where the ratio is 1.

    A token's advantage is its completion's plus ``penalty`` times (``mean`` - its log-ratio to the base);
    ``mean`` is that over the tokens of the batch.
    """
    logps = token_log_probabilities(model, group.tokens)
    advantage = group.credit[:, None] + penalty * (mean - group.ratio)
    weighted = torch.exp(logps - logps.detach()) * advantage * group.tokens.completion_mask
    total: torch.Tensor = -weighted.sum()
    return total

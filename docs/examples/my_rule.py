"""A learning rule: the plain policy gradient, by stochastic gradient descent, without a KL term."""

from collections.abc import Mapping
from typing import Any

import torch

from search_to_signal.base.errors import ConfigError
from search_to_signal.learner.adapter import adapter_sha256
from search_to_signal.learner.base import LearnerSetup, StepResult, TrainingGroup
from search_to_signal.learner.grpo_loss import token_group, token_log_probabilities
from search_to_signal.learner.optimizer import dump_state, load_state


class PolicyGradientLearner:
    """Steps along advantage times log-probability, summed over the tokens of a completion."""

    def __init__(self, setup: LearnerSetup) -> None:
        self.model, self._pad_id = setup.model.eval(), setup.pad_id
        self._trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        rate = float(setup.settings.get("rate", 0.01))
        self._optimizer = torch.optim.SGD(self._trained.values(), lr=rate)

    def step(self, group: TrainingGroup) -> StepResult:
        """One step on one group."""
        tokens = token_group(group.prompt_ids, group.completion_ids, self._pad_id, self.model.device)
        scores = (token_log_probabilities(self.model, tokens) * tokens.completion_mask).sum(dim=1)
        loss = -(torch.tensor(group.advantages).to(scores) * scores).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(self._trained.values()), 1.0, error_if_nonfinite=True)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return StepResult(
            loss=float(loss),
            kl=None,
            grad_norm=float(norm),
            training_tokens=tokens.training_tokens,
            adapter_sha256=adapter_sha256(self.model),
        )

    def dump(self) -> bytes:
        """Adapter and optimizer as bytes."""
        return dump_state(self._trained, self._optimizer)

    def load(self, data: bytes) -> None:
        """Go on from ``dump``."""
        load_state(data, self._trained, self._optimizer)


class PolicyGradient:
    """The rule; ``rate`` is the learning rate."""

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse everything but a rate."""
        if unknown := sorted(settings.keys() - {"rate"}):
            raise ConfigError(f"rule_settings has {', '.join(unknown)}: this rule has rate alone")

    def learner(self, setup: LearnerSetup) -> PolicyGradientLearner:
        """Begin with the fresh adapter of the setup."""
        return PolicyGradientLearner(setup)


policy_gradient = PolicyGradient()

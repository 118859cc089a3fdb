"""One GRPO step: one group, one optimizer opportunity."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from search_to_signal.errors import LearnerError
from search_to_signal.learner.adapter import adapter_sha256
from search_to_signal.learner.checkpoint import dumped, restore
from search_to_signal.learner.loss import grpo_loss, token_group, token_log_probabilities
from search_to_signal.learner.settings import LearnerSettings


@dataclass(frozen=True)
class StepResult:
    """What one optimizer opportunity did; ``grad_norm`` is the norm before clipping."""

    loss: float
    kl: float
    grad_norm: float
    training_tokens: int
    adapter_sha256: str


class Learner:
    """Owns the adapted model and its optimizer.

    A group whose advantages are all zero is still an opportunity: its loss is the KL term alone, and
    AdamW's momentum and weight decay act as in any other step.
    """

    def __init__(self, model: Any, settings: LearnerSettings, pad_id: int) -> None:
        self.model = model
        self._settings = settings
        self._pad_id = pad_id
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(
            self._parameters,
            lr=settings.learning_rate,
            betas=(settings.adam_beta1, settings.adam_beta2),
            weight_decay=settings.weight_decay,
        )

    def step(
        self,
        prompt_ids: Sequence[int],
        completion_ids: Sequence[Sequence[int]],
        advantages: NDArray[np.float64],
    ) -> StepResult:
        """Update the adapter once; raises LearnerError before anything non-finite reaches a weight."""
        if not np.isfinite(advantages).all():
            raise LearnerError(f"advantages {advantages.tolist()} are not finite: check the reward mapping")
        if advantages.shape != (len(completion_ids),):
            raise LearnerError(
                f"advantages of shape {advantages.shape} for {len(completion_ids)} completions: give one each"
            )
        group = token_group(prompt_ids, completion_ids, self._pad_id, self.model.device)
        reference = self._reference(group)
        credit = torch.tensor(advantages, dtype=torch.float32, device=self.model.device)
        loss, kl = grpo_loss(self.model, group, reference, credit, self._settings.kl)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._settings.max_grad_norm)
        if not torch.isfinite(norm):
            self._optimizer.zero_grad(set_to_none=True)
            raise LearnerError("the gradient is not finite: lower the learning rate or inspect the group")
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return StepResult(float(loss), kl, float(norm), group.training_tokens, adapter_sha256(self.model))

    def dump(self) -> bytes:
        """Everything that steps change, the adapter and the optimizer's moments, as a file's contents."""
        return dumped(self._state(), self._optimizer)

    def load(self, data: bytes) -> None:
        """Take up what ``dump`` gave; the next step does the same bits as if nothing had been between."""
        restore(data, self._state(), self._optimizer)

    def _state(self) -> dict[str, torch.Tensor]:
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def _reference(self, group: Any) -> torch.Tensor:
        with self.model.disable_adapter():
            return token_log_probabilities(self.model, group)

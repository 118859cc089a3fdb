"""TRL 0.15.1's own DPO loss on prepared pairs, so that any caller can fix their tokens.

TRL reads the prompt once for each side and asks the reference in every epoch; here the prompt is read once a
pair and the reference asked once a round. The numbers are TRL's to float32 rounding, which a test asserts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from trl import DPOTrainer

from search_to_signal.learner.grpo_loss import fitting_group, token_log_probabilities
from search_to_signal.learner.settings import DpoSettings

Ids = Sequence[int]


@dataclass(frozen=True)
class TokenPair:
    """The tokens of a pair as they were sampled; a completion that ended has its end token (D54)."""

    prompt_ids: Ids
    chosen_ids: Ids
    rejected_ids: Ids

    @property
    def tokens(self) -> int:
        """Completion tokens of both sides, which carry loss."""
        return len(self.chosen_ids) + len(self.rejected_ids)


def log_probabilities(model: Any, pair: TokenPair, pad_id: int) -> torch.Tensor:
    """Of the chosen and of the rejected completion, (2,).

    Raises LearnerError for an empty text, and for a pair beyond the model's context.
    """
    group = fitting_group(model, pair.prompt_ids, [pair.chosen_ids, pair.rejected_ids], pad_id)
    return (token_log_probabilities(model, group) * group.completion_mask).sum(dim=1)


@torch.no_grad()
def reference_log_probabilities(model: Any, pairs: Sequence[TokenPair], pad_id: int) -> list[torch.Tensor]:
    """The same of the model with its adapter off, for each pair; raises as ``log_probabilities``."""
    with model.disable_adapter():
        return [log_probabilities(model, pair, pad_id) for pair in pairs]


def dpo_loss(
    policy: torch.Tensor, reference: torch.Tensor, settings: DpoSettings
) -> tuple[torch.Tensor, float, float]:
    """Return (mean loss, accuracy, margin) of a batch from log-probabilities (N, 2) by TRL's ``dpo_loss``.

    The accuracy is how often the chosen side has the higher implicit reward, the margin the mean difference.
    """
    # dpo_loss reads these attributes of its trainer and nothing else.
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(device=policy.device),
        beta=settings.beta,
        loss_type="sigmoid",
        label_smoothing=0.0,
        reference_free=False,
        f_divergence_type=settings.f_divergence_type,
        f_divergence_params={"alpha_divergence_coef": settings.f_alpha_divergence_coef},
    )
    sides = (*policy.unbind(dim=1), *reference.unbind(dim=1))
    losses, chosen, rejected = DPOTrainer.dpo_loss(trainer, *sides)
    accuracy, margin = (chosen > rejected).float().mean(), (chosen - rejected).mean()
    return losses.mean(), float(accuracy), float(margin)

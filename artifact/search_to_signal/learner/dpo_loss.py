"""TRL 0.15.1's own DPO loss on prepared pairs, so that any caller can fix their tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from trl import DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference

from search_to_signal.errors import LearnerError
from search_to_signal.learner.dpo_settings import DpoSettings

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

    @property
    def length(self) -> int:
        """Tokens of the prompt with the longer completion."""
        return len(self.prompt_ids) + max(len(self.chosen_ids), len(self.rejected_ids))


def _trainer(settings: DpoSettings, pad_id: int, device: Any) -> Any:
    """What the methods of the loss read of their trainer, and nothing else."""
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(device=device, gather_for_metrics=lambda tensor: tensor),
        args=SimpleNamespace(rpo_alpha=None),
        beta=settings.beta,
        loss_type="sigmoid",
        label_smoothing=0.0,
        reference_free=False,
        f_divergence_type=settings.f_divergence_type,
        f_divergence_params={"alpha_divergence_coef": settings.f_alpha_divergence_coef},
        padding_value=pad_id,
        max_length=None,
        is_encoder_decoder=False,
        use_logits_to_keep=False,
        padding_free=False,
        use_weighting=False,
        aux_loss_enabled=False,
        concatenated_inputs=DPOTrainer.concatenated_inputs,
    )
    trainer.concatenated_forward = partial(DPOTrainer.concatenated_forward, trainer)
    trainer.dpo_loss = partial(DPOTrainer.dpo_loss, trainer)
    return trainer


def dpo_loss(
    model: Any, pairs: Sequence[TokenPair], settings: DpoSettings, pad_id: int
) -> tuple[torch.Tensor, dict[str, float]]:
    """Return (mean loss, TRL's metrics) of a batch; the reference is the model with its adapter off.

    Raises LearnerError for an empty text, and for a pair beyond the model's context.
    """
    _check(pairs, model.config.max_position_embeddings)
    trainer = _trainer(settings, pad_id, model.device)
    rows = [
        {
            "prompt_input_ids": list(pair.prompt_ids),
            "chosen_input_ids": list(pair.chosen_ids),
            "rejected_input_ids": list(pair.rejected_ids),
        }
        for pair in pairs
    ]
    batch = DataCollatorForPreference(pad_id)(rows)
    batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
    with torch.no_grad(), model.disable_adapter():
        reference = trainer.concatenated_forward(model, batch)
    batch["ref_chosen_logps"] = reference["chosen_logps"]
    batch["ref_rejected_logps"] = reference["rejected_logps"]
    loss, metrics = DPOTrainer.get_batch_loss_metrics(trainer, model, batch)
    return loss, metrics


def _check(pairs: Sequence[TokenPair], limit: int) -> None:
    if not all(pair.prompt_ids and pair.chosen_ids and pair.rejected_ids for pair in pairs):
        raise LearnerError("a pair has an empty prompt or completion: there is nothing to score")
    longest = max(pair.length for pair in pairs)
    if longest > limit:
        raise LearnerError(
            f"prompt and completion have {longest} tokens, the model reads {limit}: "
            "lower generation.max_prompt_tokens or max_completion_tokens"
        )

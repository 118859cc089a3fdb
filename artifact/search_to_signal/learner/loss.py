"""TRL 0.15.1's own GRPO loss on a prepared batch, so that any caller can fix its tokens.

Two facts about this version matter wherever its numbers are read. There is no clipping: the policy
ratio is exp(logp - logp.detach()), which is one, so the loss is -A on average and only its gradient
carries the credit. And log-probabilities are taken from the logits as they are, not divided by the
sampling temperature (D24).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from trl import GRPOTrainer

from search_to_signal.errors import LearnerError


@dataclass(frozen=True)
class TokenGroup:
    """One prompt with G completions, right-padded: what the loss reads of a generation.

    prompt_ids (G, P), completion_ids (G, C) and completion_mask (G, C). The mask counts tokens up to and
    including the first end token; a completion cut at the limit counts whole (D25).
    """

    prompt_ids: torch.Tensor
    completion_ids: torch.Tensor
    completion_mask: torch.Tensor

    @property
    def training_tokens(self) -> int:
        """Completion tokens that carry loss."""
        return int(self.completion_mask.sum())


def token_group(
    prompt_ids: Sequence[int], completion_ids: Sequence[Sequence[int]], pad_id: int, device: Any = "cpu"
) -> TokenGroup:
    """Pad the completions of one prompt to a common width; raises LearnerError for an empty one."""
    if not prompt_ids or not all(completion_ids):
        raise LearnerError("a group has an empty prompt or completion: there is nothing to score")
    width = max(len(ids) for ids in completion_ids)
    ids = torch.tensor([[*row, *[pad_id] * (width - len(row))] for row in completion_ids], device=device)
    lengths = torch.tensor([len(row) for row in completion_ids], device=device)
    mask = (torch.arange(width, device=device)[None, :] < lengths[:, None]).int()
    prompt = torch.tensor([list(prompt_ids)] * len(completion_ids), device=device)
    return TokenGroup(prompt, ids, mask)


def token_log_probabilities(model: Any, group: TokenGroup) -> torch.Tensor:
    """Log-probability of every completion token, (G, C)."""
    ids = torch.cat([group.prompt_ids, group.completion_ids], dim=1)
    mask = torch.cat([torch.ones_like(group.prompt_ids), group.completion_mask], dim=1)
    logps: torch.Tensor = GRPOTrainer._get_per_token_logps(
        None, model, ids, mask, group.completion_ids.size(1)
    )
    return logps


def grpo_loss(
    model: Any, group: TokenGroup, reference: torch.Tensor, advantages: torch.Tensor, kl: float
) -> tuple[torch.Tensor, float]:
    """Return (loss, mean policy-reference KL) of the group by TRL's ``compute_loss``.

    ``reference`` (G, C) are token log-probabilities of the reference policy, ``advantages`` (G,).
    """
    metrics: dict[str, list[float]] = defaultdict(list)
    # compute_loss reads four attributes of its trainer and nothing else.
    trainer = SimpleNamespace(
        beta=kl,
        accelerator=SimpleNamespace(gather_for_metrics=lambda tensor: tensor),
        _metrics=metrics,
        _get_per_token_logps=partial(GRPOTrainer._get_per_token_logps, None),
    )
    inputs = {
        "prompt_ids": group.prompt_ids,
        "prompt_mask": torch.ones_like(group.prompt_ids),
        "completion_ids": group.completion_ids,
        "completion_mask": group.completion_mask,
        "ref_per_token_logps": reference,
        "advantages": advantages,
    }
    loss = GRPOTrainer.compute_loss(trainer, model, inputs)
    return loss, metrics["kl"][0]

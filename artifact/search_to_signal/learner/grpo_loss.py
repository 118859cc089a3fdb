"""The GRPO loss of TRL 0.15.1 on a prepared batch, so that any caller can fix its tokens.

Two facts about this version matter wherever its numbers are read. It makes one step per group and clips
nothing, as our defaults do: the policy ratio is exp(logp - logp.detach()), which is one, so the loss is -A on
average and only its gradient carries the credit. And log-probabilities are taken from the logits as they are,
not divided by the sampling temperature, unless the settings ask for it (D24).

From equal log-probabilities loss, KL and gradient are TRL's to the bit. The log-probabilities are TRL's to
float32 rounding: TRL reads the prompt once per completion, here it is read once per group and its keys and
values are shared. Tests assert both.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from transformers import DynamicCache

from search_to_signal.base.errors import LearnerError
from search_to_signal.models.releases import new_cache, read


@dataclass(frozen=True)
class TokenGroup:
    """One prompt with G completions, right-padded: what the loss reads of a generation.

    prompt_ids (G, P), completion_ids (G, C) and completion_mask (G, C). The mask counts the tokens that were
    sampled and no padding, whatever its id: up to and including the end token, or whole where a completion
    was cut at the limit (D25). Log-probabilities are of the logits divided by ``temperature`` (D24).
    ``credited`` (G, C) marks the tokens whose gradient is kept, None keeps all (D43).
    """

    prompt_ids: torch.Tensor
    completion_ids: torch.Tensor
    completion_mask: torch.Tensor
    temperature: float = 1.0
    credited: torch.Tensor | None = None

    def rows(self, part: slice) -> "TokenGroup":
        """Some of the completions, as wide as they are together."""
        return replace(
            self,
            prompt_ids=self.prompt_ids[part],
            completion_ids=self.completion_ids[part],
            completion_mask=self.completion_mask[part],
            credited=None if self.credited is None else self.credited[part],
        )

    @property
    def training_tokens(self) -> int:
        """Completion tokens that carry the gradient."""
        mask = self.completion_mask if self.credited is None else self.completion_mask * self.credited
        return int(mask.sum())

    @property
    def length(self) -> int:
        """Tokens of the prompt with its longest completion."""
        return self.prompt_ids.size(1) + self.completion_ids.size(1)


def token_group(
    prompt_ids: Sequence[int],
    completion_ids: Sequence[Sequence[int]],
    pad_id: int,
    device: Any = "cpu",
    temperature: float = 1.0,
    credited: Sequence[Sequence[bool]] = (),
) -> TokenGroup:
    """Pad the completions of one prompt to a common width; raises LearnerError for an empty one."""
    if not prompt_ids or not all(completion_ids):
        raise LearnerError("a group has an empty prompt or completion: there is nothing to score")
    width = max(len(ids) for ids in completion_ids)
    ids = torch.tensor([[*row, *[pad_id] * (width - len(row))] for row in completion_ids], device=device)
    lengths = torch.tensor([len(row) for row in completion_ids], device=device)
    mask = (torch.arange(width, device=device)[None, :] < lengths[:, None]).int()
    prompt = torch.tensor([list(prompt_ids)] * len(completion_ids), device=device)
    if not credited:
        return TokenGroup(prompt, ids, mask, temperature)
    rows = [[*row, *[False] * (width - len(row))] for row in credited]
    return TokenGroup(prompt, ids, mask, temperature, torch.tensor(rows, device=device))


def fitting_group(
    model: Any,
    prompt_ids: Sequence[int],
    completion_ids: Sequence[Sequence[int]],
    pad_id: int,
    temperature: float = 1.0,
    credited: Sequence[Sequence[bool]] = (),
) -> TokenGroup:
    """``token_group`` on the model's device; raises LearnerError also for what is beyond its context."""
    group = token_group(prompt_ids, completion_ids, pad_id, model.device, temperature, credited)
    if group.length > (limit := model.config.max_position_embeddings):
        raise LearnerError(
            f"prompt and completion have {group.length} tokens, the model reads {limit}: "
            "lower generation.max_prompt_tokens or max_completion_tokens"
        )
    return group


def token_log_probabilities(model: Any, group: TokenGroup) -> torch.Tensor:
    """Log-probability of every completion token, (G, C); zero where the mask is 0.

    Of padding a trained model may think anything: where exp of its distance to the reference overflows,
    infinity times a mask of 0 would make the whole group's gradient NaN.
    """
    scored = model if group.temperature == 1.0 else _divided(model, group.temperature)
    # Checkpointing allows no cache; behind one, the forward pass of Unsloth reads a single token at a time.
    # Where the policy cannot, its reference does not either: of equal weights the KL is exactly zero.
    cached = not model.is_gradient_checkpointing and not hasattr(model.config, "unsloth_version")
    logps = _cached_prompt(scored, new_cache(model), group) if cached else _repeated_prompt(scored, group)
    return logps.masked_fill(group.completion_mask == 0, 0.0)


def _divided(model: Any, temperature: float) -> Callable[..., Any]:
    """The forward pass of a model, its logits divided by a temperature."""

    def forward(**inputs: Any) -> SimpleNamespace:
        return SimpleNamespace(logits=model(**inputs).logits / temperature)

    return forward


def _cached_prompt(model: Callable[..., Any], cache: DynamicCache, group: TokenGroup) -> torch.Tensor:
    """Read the prompt once for all completions."""
    ids = group.completion_ids
    first = read(model, group.prompt_ids[:1], cache, logits_to_keep=1)
    cache.batch_repeat_interleave(len(ids))
    # Padding stands on the right of a causal model, so no token that counts ever sees it.
    later = read(model, ids, cache)
    logits = torch.cat([first.logits.expand(len(ids), -1, -1), later.logits[:, :-1]], dim=1)
    return chosen_log_probabilities(logits, ids)


def _repeated_prompt(model: Callable[..., Any], group: TokenGroup) -> torch.Tensor:
    """Read the prompt once per completion, as TRL does.

    No mask hides the padding on the right, which no token that counts sees: with one, attention would hold a
    score for every pair of tokens at once.
    """
    ids = torch.cat([group.prompt_ids, group.completion_ids], dim=1)
    width = group.completion_ids.size(1)
    logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), logits_to_keep=width + 1).logits
    return chosen_log_probabilities(logits[:, :-1][:, -width:], group.completion_ids)


def chosen_log_probabilities(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Log-probabilities (G, C) of ids (G, C) under logits (G, C, vocabulary), row by row to save memory."""
    if logits.dtype in (torch.float32, torch.float64):
        chosen = logits.gather(-1, ids[..., None])[..., 0]
        return chosen - torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
    # A difference of two rounded numbers would lose what a shorter float has left.
    rows = zip(logits, ids, strict=True)
    return torch.stack([row.log_softmax(-1).gather(-1, tokens[:, None])[:, 0] for row, tokens in rows])


def grpo_loss(
    logps: torch.Tensor,
    group: TokenGroup,
    reference: torch.Tensor,
    advantages: torch.Tensor,
    kl: float,
    *,
    sampled: torch.Tensor | None = None,
    epsilon: float = math.inf,
) -> tuple[torch.Tensor, float]:
    """Return (loss, mean policy-reference KL) of the group: means over completions of means over tokens.

    ``logps`` (G, C) are the policy's token log-probabilities with their gradient, ``reference`` (G, C) those
    of the reference policy, ``advantages`` (G,). For a further step on one group ``sampled`` (G, C) are those
    of the policy that sampled it; the ratio to it is clipped at 1 +- ``epsilon``, as in PPO.
    """
    mask, advantages = group.completion_mask, advantages[:, None]
    if group.credited is not None:
        logps = torch.where(group.credited, logps, logps.detach())
    # Operation by operation as in TRL, so that the gradient adds up in its order.
    divergence = torch.exp(reference - logps) - (reference - logps) - 1
    ratio = torch.exp(logps - (logps.detach() if sampled is None else sampled))
    credit = ratio * advantages
    if math.isfinite(epsilon):
        credit = torch.min(credit, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)

    def mean(values: torch.Tensor) -> torch.Tensor:
        return ((values * mask).sum(dim=1) / mask.sum(dim=1)).mean()

    return mean(-(credit - kl * divergence)), float(mean(divergence.detach()))

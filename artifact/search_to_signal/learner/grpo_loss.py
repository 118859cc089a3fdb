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
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from peft.tuners.lora import LoraLayer
from torch.nn import functional
from transformers import DynamicCache

from search_to_signal.base.errors import GenerationError, LearnerError
from search_to_signal.models.base import Generation
from search_to_signal.models.cpu_decoder import KNOWN, has_fitting_layers
from search_to_signal.models.device import base_weight
from search_to_signal.models.releases import new_cache, read, unmasked


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
    def forward(**inputs: Any) -> SimpleNamespace:
        return SimpleNamespace(logits=model(**inputs).logits / temperature)

    return forward


def _cached_prompt(model: Callable[..., Any], cache: DynamicCache, group: TokenGroup) -> torch.Tensor:
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


@torch.no_grad()
def sampler_difference(model: Any, generation: Generation, step: int, limit: float) -> float | None:
    """Mean distance per token of the sampler's log-probabilities to the model's, in nats.

    None where the sampler reports none. Raises GenerationError where the mean is over ``limit``, as it is for
    other weights, another model, or log-probabilities after temperature and filters.
    """
    if not all(completion.logprobs for completion in generation.completions):
        return None
    found = []
    for completion in generation.completions:
        group = fitting_group(model, generation.prompt_ids, [completion.ids], pad_id=0)  # nothing to pad
        own = token_log_probabilities(model, group)[0].tolist()
        pairs = zip(completion.ids, completion.logprobs, own, strict=True)
        found += [(abs(told - known), token, told, known) for token, told, known in pairs]
    mean = float(np.mean([distance for distance, *_ in found]))
    if not mean <= limit:
        _, token, told, known = max(found)
        raise GenerationError(
            f"step {step}: the server has other weights than the learner: log-probabilities of {len(found)} "
            f"tokens differ by {mean:.3g} in the mean (generation.server.max_difference is {limit:g}), most "
            f"for token {token}, {told:.4f} there and {known:.4f} here; see that it serves this model and "
            "reports them raw (--logprobs-mode raw_logprobs)"
        )
    return mean


# Token log-probabilities of a group on a card, by passes that are captured once per length and replayed.
#
# An update of a small model is thousands of launches, each longer than its kernel. So forward and backward
# pass are captured as CUDA graphs, for the whole group, its lengths rounded up; what fills them up stands on
# the right of a causal model, where no token that counts sees it. Logits are the largest tensor by far: they
# exist for one completion at a time, and the backward pass computes them again.

# A projection with its LoRA adapter in fewer passes over memory than PEFT's, keeping less for backward.
#
# The numbers are PEFT's for a plain base: the base in its own precision, the adapter's two factors in
# float32, their product added and rounded once. PEFT keeps the input in float32; here it is made again. A
# base in 4 bits is computed in the same way, its weight unpacked for every product.

Tensor = torch.Tensor


class AdaptedProjection(torch.autograd.Function):
    """x (..., inputs) times weight() (outputs, inputs), plus scale * x * down * up, in x's precision."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Callable[[], Tensor],
        bias: Tensor | None,
        down: Tensor,
        up: Tensor,
        scale: float,
    ) -> Tensor:
        inner = functional.linear(x.float(), down).mul_(scale)
        ctx.save_for_backward(x, down, up, inner)
        ctx.weight, ctx.scale = weight, scale
        return _sum(functional.linear(x, weight(), bias), functional.linear(inner, up))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, Tensor, Tensor, None]:
        x, down, up, inner = ctx.saved_tensors
        (gradient,) = gradients
        wide = gradient.float().flatten(0, -2)
        of_up = wide.t() @ inner.flatten(0, -2)
        of_inner = (wide @ up).mul_(ctx.scale)
        of_down = of_inner.t() @ x.float().flatten(0, -2)
        change = (of_inner @ down).view(x.shape).to(x.dtype)
        return (gradient @ ctx.weight()).add_(change), None, None, of_down, of_up, None


def _sum(output: Tensor, change: Tensor) -> Tensor:
    return change.add_(output).to(output.dtype)


def use_fewer_passes(model: Any) -> None:
    """Have a PEFT model's adapted linear layers compute as above; switching its adapter off still works."""
    for module in model.modules():
        if isinstance(module, LoraLayer) and isinstance(module.base_layer, torch.nn.Linear):
            module.forward = partial(_forward, module)  # type: ignore[attr-defined]


def _forward(module: Any, x: Tensor) -> Tensor:
    base = module.base_layer
    if module.disable_adapters:
        return functional.linear(x, base_weight(base), base.bias)
    (name,) = module.active_adapters
    down, up = module.lora_A[name].weight, module.lora_B[name].weight
    output: Tensor = AdaptedProjection.apply(  # type: ignore[no-untyped-call]
        x, partial(base_weight, base), base.bias, down, up, module.scaling[name]
    )
    return output


# Lengths of sequences and of completions are rounded up to these: each pair is captured once, in seconds.
_LENGTH, _WIDTH = 512, 256


def can_capture(model: Any) -> bool:
    """Whether a PEFT model's passes can be captured: a base of fitting layers on a CUDA device."""
    base = model.get_base_model()
    if hasattr(base.config, "unsloth_version") or base.device.type != "cuda" or not has_fitting_layers(base):
        return False
    return type(base) in KNOWN or _has_plain_head(base)


@torch.no_grad()
def _has_plain_head(base: Any) -> bool:
    """Whether logits are the head's product with the last hidden states, which some families scale."""
    ids = torch.arange(5, device=base.device)[None]
    product = base.lm_head(base.model(input_ids=ids).last_hidden_state)
    return bool(torch.equal(product, base(input_ids=ids).logits))


def _times_head(rows: Tensor, head: Tensor) -> Tensor:
    """rows (C, width) times head (width, vocabulary) or its like, through the card's matrix units.

    Values of bfloat16 are exact in TF32, and so are their products; sums are float32. Shares, whose gradient
    is rounded to bfloat16 next, lose less than that.
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return rows @ head
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


class ChosenTokens(torch.autograd.Function):
    """Log-probabilities (G, C) of the tokens ``ids`` (G, C) under hidden states (G, C, width).

    ``head`` (vocabulary, width) is float32 and has no gradient; logits are divided by ``temperature``.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, ids: Tensor, temperature: float) -> Tensor:
        chosen, norms = [], []
        for row, tokens in zip(hidden, ids, strict=True):
            logits = _times_head(row.float(), head.t()).div_(temperature)
            norms.append(torch.logsumexp(logits, dim=-1))
            chosen.append(logits.gather(1, tokens[:, None])[:, 0] - norms[-1])
        ctx.save_for_backward(hidden, head, ids, torch.stack(norms))
        ctx.temperature = temperature
        return torch.stack(chosen)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        hidden, head, ids, norms = ctx.saved_tensors
        hidden_gradient = torch.empty_like(hidden)
        rows = zip(hidden_gradient, hidden, ids, norms, gradients[0] / ctx.temperature, strict=True)
        for target, row, tokens, norm, gradient in rows:
            shares = _times_head(row.float(), head.t()).div_(ctx.temperature)
            shares.sub_(norm[:, None]).exp_().mul_(gradient[:, None])
            target.copy_(functional.embedding(tokens, head) * gradient[:, None] - _times_head(shares, head))
        return hidden_gradient, None, None, None


class _Scores(torch.nn.Module):
    """Log-probabilities (G, C) of the tokens that follow the places which ``kept`` (C, L) marks with ones."""

    def __init__(self, base: Any, temperature: float) -> None:
        super().__init__()
        self.base, self.temperature = base, temperature

    def forward(self, ids: Tensor, kept: Tensor, chosen: Tensor) -> Tensor:
        with unmasked(self.base.config):
            hidden = self.base.model(input_ids=ids, use_cache=False).last_hidden_state
        # A product with ones and zeros picks places exactly, and its gradient adds up in one order.
        picked = kept.expand(len(ids), -1, -1) @ hidden
        log_probabilities: Tensor = ChosenTokens.apply(  # type: ignore[no-untyped-call]
            picked, self.base.lm_head.weight, chosen, self.temperature
        )
        return log_probabilities


class _Inputs(NamedTuple):
    ids: Tensor
    kept: Tensor
    chosen: Tensor

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Completions, length, and width of the completions."""
        return self.ids.size(0), self.ids.size(1), self.chosen.size(1)


class _Captured(NamedTuple):
    policy: Callable[..., Tensor]
    reference: Callable[[_Inputs], Tensor]


class CapturedPasses:
    """Scores groups by an adapted model and by its base; graphs are captured as lengths come up."""

    def __init__(self, model: Any, temperature: float) -> None:
        self._model, self._temperature = model, temperature
        self._base = model.get_base_model()
        use_fewer_passes(model)
        self._graphs: dict[tuple[int, ...], _Captured] = {}
        self._pool = torch.cuda.graph_pool_handle()  # type: ignore[no-untyped-call]

    def policy(self, group: TokenGroup) -> Tensor:
        """As ``token_log_probabilities``, with a gradient for the adapter."""
        inputs = self._inputs(group)
        return _fitting(self._captured(inputs).policy(*inputs), group)

    @torch.no_grad()
    def reference(self, group: TokenGroup) -> Tensor:
        """The same of the base model, without a gradient."""
        inputs = self._inputs(group)
        return _fitting(self._captured(inputs).reference(inputs), group)

    def _inputs(self, group: TokenGroup) -> _Inputs:
        prompt, width = group.prompt_ids.size(1), group.completion_ids.size(1)
        wide = -(-width // _WIDTH) * _WIDTH
        length = -(-(prompt + wide) // _LENGTH) * _LENGTH
        ids = torch.cat([group.prompt_ids, group.completion_ids], dim=1)
        places = torch.arange(prompt - 1, prompt - 1 + wide, device=ids.device)
        return _Inputs(
            functional.pad(ids, (0, length - ids.size(1))),
            functional.one_hot(places, length).to(self._base.dtype),
            functional.pad(group.completion_ids, (0, wide - width)),
        )

    def _captured(self, inputs: _Inputs) -> _Captured:
        # A graph reads the weights where they lay when it was captured.
        key = (*inputs.sizes, *(weight.data_ptr() for weight in self._model.parameters()))
        if key not in self._graphs:
            self._graphs[key] = _Captured(self._capture_policy(inputs), self._capture_base(inputs))
        return self._graphs[key]

    def _capture_policy(self, inputs: _Inputs) -> Callable[..., Tensor]:
        training = self._model.training
        # Checkpointing works in training mode alone, which changes nothing else: nothing here has a dropout.
        self._model.train()
        scores = _Scores(self._base, self._temperature)
        with torch.enable_grad():  # type: ignore[no-untyped-call]
            graphed: Callable[..., Tensor] = torch.cuda.make_graphed_callables(  # type: ignore[no-untyped-call]
                scores, tuple(tensor.clone() for tensor in inputs), num_warmup_iters=1, pool=self._pool
            )
        self._model.train(training)
        return graphed

    @torch.no_grad()
    def _capture_base(self, inputs: _Inputs) -> Callable[[_Inputs], Tensor]:
        fixed = _Inputs(*(tensor.clone() for tensor in inputs))
        graph = torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
        training = self._model.training
        self._model.eval()
        scores = _Scores(self._base, self._temperature)
        with self._model.disable_adapter():
            scores(*fixed)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, pool=self._pool):
                fixed_output = scores(*fixed)
        self._model.train(training)

        def replay(given: _Inputs) -> Tensor:
            for target, tensor in zip(fixed, given, strict=True):
                target.copy_(tensor)
            graph.replay()  # type: ignore[no-untyped-call]
            answer: Tensor = fixed_output.clone()
            return answer

        return replay


def _fitting(logps: Tensor, group: TokenGroup) -> Tensor:
    """Scores as wide as the group, zero where its mask is 0."""
    return logps[:, : group.completion_ids.size(1)].masked_fill(group.completion_mask == 0, 0.0)

"""Token log-probabilities of a group on a card, by passes that are captured once per length and replayed.

An update of a small model is thousands of launches, each longer than its kernel. So a forward and a backward
pass are captured as CUDA graphs, for the whole group, its lengths rounded up; what fills them up stands on
the right of a causal model, where no token that counts sees it. Logits are the largest tensor by far: they
exist for one completion at a time, and the backward pass computes them again.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from peft.tuners.lora import LoraLayer
from torch.nn import functional

from search_to_signal.learner.grpo_loss import TokenGroup
from search_to_signal.models.cpu_decoder import KNOWN, has_fitting_layers
from search_to_signal.models.device import base_weight
from search_to_signal.models.releases import unmasked

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
    """The float32 sum, rounded to the precision of ``output``."""
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

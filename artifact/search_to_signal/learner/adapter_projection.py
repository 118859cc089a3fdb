"""A projection with its LoRA adapter in fewer passes over memory than PEFT's, keeping less for backward.

The numbers are PEFT's for a plain base: the base in its own precision, the adapter's two factors in float32,
their product added and rounded once. PEFT keeps the input in float32; here it is made again. A base in 4 bits
is computed in the same way, its weight unpacked for every product.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch.nn import functional

from search_to_signal.learner.quantization import base_weight

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

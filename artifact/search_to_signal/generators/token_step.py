"""The arithmetic of one token per row in Qwen2- and Llama-like models, over a cache of fixed size.

It is that of transformers: the base in its own precision, the adapter's two factors beside it in float32, as
PEFT computes them, logits in float32. Places of the cache that are not yet written are hidden. Plain
functions of tensors on any device, that ``static_sampler`` compiles.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from search_to_signal.generators.cpu_decoder import projections

Tensor = torch.Tensor


class Matrix(NamedTuple):
    """What a layer multiplies with: (output, input), a bias, and the adapter's factors or none.

    ``down`` (ranks, input) and ``up`` (output, ranks) are float32; ``up`` holds the scale, and zeros where a
    projection that was joined with others is not adapted by a rank.
    """

    weight: Tensor
    bias: Tensor | None
    down: Tensor | None
    up: Tensor | None


class Layer(NamedTuple):
    norm: Tensor
    qkv: Matrix
    out: Matrix
    mlp_norm: Tensor
    gate_up: Matrix
    down: Matrix


def _norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    return weight * wide.to(x.dtype)


def _times(x: Tensor, matrix: Matrix) -> Tensor:
    found = functional.linear(x, matrix.weight, matrix.bias)
    if matrix.down is None or matrix.up is None:
        return found
    change = functional.linear(functional.linear(x.float(), matrix.down), matrix.up)
    return (found.float() + change).to(x.dtype)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def read_tokens(
    x: Tensor, layer: Layer, cos: Tensor, sin: Tensor, heads: int, epsilon: float
) -> tuple[Tensor, ...]:
    """Queries (rows, heads, d), keys and values (rows, K, d) of the tokens x (rows, width)."""
    width = cos.size(-1)
    qkv = _times(_norm(x, layer.norm, epsilon), layer.qkv).view(x.size(0), -1, width)
    others = (qkv.size(1) - heads) // 2
    q, k, v = torch.split(qkv, [heads, others, others], dim=1)
    return _turned(q, cos, sin), _turned(k, cos, sin), v


def layer_output(
    x: Tensor, q: Tensor, keys: Tensor, values: Tensor, seen: Tensor, layer: Layer, epsilon: float
) -> Tensor:
    """The layer's output; keys and values are (rows, K, places, d), ``seen`` (places) hides later places."""
    rows, others, places, width = keys.shape
    q = q.reshape(rows, others, -1, 1, width).float()
    scores = (q * keys[:, :, None].float()).sum(-1) * width**-0.5
    shares = torch.softmax(scores.masked_fill(~seen, -torch.inf), dim=-1).to(x.dtype)
    found = (shares[..., None].float() * values[:, :, None].float()).sum(-2).to(x.dtype)
    x = x + _times(found.reshape(rows, -1), layer.out)
    gate, up = _times(_norm(x, layer.mlp_norm, epsilon), layer.gate_up).chunk(2, dim=-1)
    return x + _times(functional.silu(gate) * up, layer.down)


def next_logits(x: Tensor, norm: Tensor, head: Tensor, epsilon: float) -> Tensor:
    """Logits (rows, vocabulary) in float32."""
    x = _norm(x, norm, epsilon).float()
    if not x.is_cuda:
        return x @ head.float().t()
    # One pass over the head for all rows, added up in float32: a product of bfloat16 would be rounded to it.
    return (head[:, None].float() * x).sum(-1).t()


@dataclass(frozen=True)
class Factor:
    """One projection's adapter, and the parts of the joined factors that it is copied to."""

    linear: Any
    down: Tensor
    up: Tensor

    def copy(self) -> None:
        """Take up the adapter as it is now."""
        for name in self.linear.active_adapters:
            self.down.copy_(self.linear.lora_A[name].weight)
            self.up.copy_(self.linear.lora_B[name].weight * self.linear.scaling[name])


def _weight(linear: Any) -> Tensor:
    """The base weight (output, input), unpacked where it is stored in 4 bits."""
    weight: Tensor = getattr(linear, "base_layer", linear).weight
    if hasattr(weight, "quant_state"):
        library = import_module("bitsandbytes.functional")
        unpacked: Tensor = library.dequantize_4bit(weight.data, weight.quant_state)
        return unpacked
    return weight.data


def _matrix(linears: Sequence[Any], factors: list[Factor]) -> Matrix:
    """Projections that read the same input as one matrix; the model's own become parts of it."""
    weights = [_weight(linear) for linear in linears]
    weight, bias = weights[0], getattr(linears[0], "base_layer", linears[0]).bias
    if len(linears) > 1:
        weight = torch.cat(weights)
        for linear, part in zip(linears, torch.split(weight, [len(one) for one in weights]), strict=True):
            base = getattr(linear, "base_layer", linear)
            if not hasattr(base.weight, "quant_state"):
                base.weight.data = part
        if bias is not None:
            bias = torch.cat([getattr(linear, "base_layer", linear).bias for linear in linears])
    adapted = [linear for linear in linears if hasattr(linear, "lora_A")]
    if not adapted:
        return Matrix(weight, bias, None, None)
    ranks = [linear.r[linear.active_adapters[0]] for linear in adapted]
    down = torch.zeros(sum(ranks), weight.size(1), device=weight.device)
    up = torch.zeros(weight.size(0), sum(ranks), device=weight.device)
    row = column = 0
    for linear, rank in zip(adapted, ranks, strict=True):
        outputs = linear.out_features
        part = up[row : row + outputs, column : column + rank]
        factors.append(Factor(linear, down[column : column + rank], part))
        row, column = row + outputs, column + rank
    return Matrix(weight, bias, down, up)


def joined_layer(layer: Any, factors: list[Factor]) -> Layer:
    """A layer of a model as ``layer_output`` reads it; its adapter's factors are added to ``factors``."""
    q, k, v, out, gate, up, down = projections(layer)
    return Layer(
        layer.input_layernorm.weight,
        _matrix([q, k, v], factors),
        _matrix([out], factors),
        layer.post_attention_layernorm.weight,
        _matrix([gate, up], factors),
        _matrix([down], factors),
    )

"""One token per row through Qwen- and Llama-like models, over a cache of fixed size, with plain tensors.

The arithmetic is that of transformers: the base in its own precision, the adapter's two factors in
float32, as PEFT computes them, logits in float32. ``card_step`` does the same with its own kernels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from search_to_signal.models.cpu_decoder import causal_model, head_norms, projections
from search_to_signal.models.device import base_weight

Tensor = torch.Tensor


class Matrix(NamedTuple):
    """Projections of one input as one matrix: (outputs, inputs), a bias, the adapter's factors or none.

    ``sizes`` are the outputs of each projection. ``down`` (projections * rank, inputs) and ``up`` (outputs,
    rank) are float32; ``up`` holds the scale. ``pieces`` (n, projections * rank, inputs), in the weight's
    precision, add up to ``down``: a card multiplies by three of bfloat16 as exactly as by one of float32.
    """

    weight: Tensor
    bias: Tensor | None
    sizes: tuple[int, ...]
    down: Tensor | None = None
    up: Tensor | None = None
    pieces: Tensor | None = None

    @property
    def rank(self) -> int:
        """The adapter's rank, 0 without one."""
        return 0 if self.up is None else self.up.size(1)

    @property
    def ranks(self) -> int:
        """Rows of ``down``."""
        return self.rank * len(self.sizes)


class DecoderLayer(NamedTuple):
    norm: Tensor
    qkv: Matrix
    out: Matrix
    mlp_norm: Tensor
    gate_up: Matrix
    down: Matrix
    head_norms: tuple[Tensor, Tensor] | None = None


class Weights(NamedTuple):
    """What a step computes with; ``cos`` and ``sin`` are (places, d), ``head`` (vocabulary, width)."""

    embedding: Tensor
    layers: Sequence[DecoderLayer]
    norm: Tensor
    head: Tensor
    cos: Tensor
    sin: Tensor
    epsilon: float
    heads: int


class State(NamedTuple):
    """What a step reads and changes: ``position`` (1) is where the tokens stand, a cache per layer holds keys
    and values (rows, key heads, places, d), ``logits`` (rows, vocabulary) are float32."""

    caches: Sequence[tuple[Tensor, Tensor]]
    position: Tensor
    logits: Tensor


def _norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    return weight * wide.to(x.dtype)


def _times(x: Tensor, matrix: Matrix) -> Tensor:
    product = functional.linear(x, matrix.weight, matrix.bias)
    if matrix.down is None or matrix.up is None:
        return product
    inner = torch.split(functional.linear(x.float(), matrix.down), matrix.rank, dim=-1)
    ups = torch.split(matrix.up, list(matrix.sizes))
    change = torch.cat([functional.linear(part, up) for part, up in zip(inner, ups, strict=True)], dim=-1)
    return (product.float() + change).to(x.dtype)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def read_tokens(tokens: Tensor, weights: Weights, state: State) -> None:
    """Read a token (rows) of every row: its keys and values go into the cache, its logits into the state."""
    x = functional.embedding(tokens, weights.embedding)
    for layer, cache in zip(weights.layers, state.caches, strict=True):
        x = x + _times(_attention(x, layer, cache, weights, state.position), layer.out)
        gate, up = _times(_norm(x, layer.mlp_norm, weights.epsilon), layer.gate_up).chunk(2, dim=-1)
        x = x + _times(functional.silu(gate) * up, layer.down)
    x = _norm(x, weights.norm, weights.epsilon)
    state.logits.copy_(x.float() @ weights.head.float().t())


def _attention(
    x: Tensor, layer: DecoderLayer, cache: tuple[Tensor, Tensor], weights: Weights, position: Tensor
) -> Tensor:
    """What the tokens x (rows, width) see of the cache and of themselves, (rows, heads * d)."""
    keys, values = cache
    rows, others, places, width = keys.shape
    cos, sin = (table.index_select(0, position) for table in (weights.cos, weights.sin))
    qkv = _times(_norm(x, layer.norm, weights.epsilon), layer.qkv).view(rows, -1, width)
    q, k, v = torch.split(qkv, [weights.heads, others, others], dim=1)
    if layer.head_norms is not None:
        q, k = (_norm(x, norm, weights.epsilon) for x, norm in zip((q, k), layer.head_norms, strict=True))
    keys.index_copy_(2, position, _turned(k, cos, sin)[:, :, None])
    values.index_copy_(2, position, v[:, :, None])
    q = _turned(q, cos, sin).reshape(rows, others, -1, 1, width).float()
    scores = (q * keys[:, :, None].float()).sum(-1) * width**-0.5
    seen = torch.arange(places, device=x.device) <= position
    shares = torch.softmax(scores.masked_fill(~seen, -torch.inf), dim=-1).to(x.dtype)
    return (shares[..., None].float() * values[:, :, None].float()).sum(-2).to(x.dtype).reshape(rows, -1)


@dataclass(frozen=True)
class Factors:
    """One projection's adapter, and the parts of the joined factors that it is copied to."""

    linear: Any
    down: Tensor
    up: Tensor
    pieces: Tensor


@torch.no_grad()
def copy_adapter(factors: Sequence[Factors]) -> None:
    """Take up the adapter as it is now; a few launches for all of its matrices."""
    if not factors:
        return
    linear = factors[0].linear
    (name,) = linear.active_adapters
    torch._foreach_copy_(
        [each.down for each in factors], [each.linear.lora_A[name].weight for each in factors]
    )
    ups = [each.up for each in factors]
    torch._foreach_copy_(ups, [each.linear.lora_B[name].weight for each in factors])
    torch._foreach_mul_(ups, float(linear.scaling[name]))
    rest = [each.down for each in factors]
    for number in range(len(factors[0].pieces)):
        pieces = [each.pieces[number] for each in factors]
        torch._foreach_copy_(pieces, rest)
        rest = list(torch._foreach_sub(rest, [piece.float() for piece in pieces]))


def join_projections(model: Any) -> None:
    """Lay the projections of one input side by side, as a step reads them.

    It moves them, so it comes before anything is captured that reads them where they lie.
    """
    for layer in causal_model(model).model.layers:
        q, k, v, _, gate, up, _ = projections(layer)
        _joined([q, k, v])
        _joined([gate, up])


def _joined(linears: Sequence[Any]) -> Tensor:
    """The weights of projections as one matrix, of which the model's own become parts, unless they are."""
    weights = [base_weight(linear) for linear in linears]
    sizes = [len(weight) for weight in weights]
    if _are_joined(weights):
        return weights[0].as_strided((sum(sizes), weights[0].size(1)), weights[0].stride())
    whole = torch.cat(weights)
    for linear, part in zip(linears, torch.split(whole, sizes), strict=True):
        base = getattr(linear, "base_layer", linear)
        if not hasattr(base.weight, "quant_state"):
            base.weight.data = part
    return whole


def _are_joined(weights: Sequence[Tensor]) -> bool:
    """Whether each matrix begins where the one before it ends, in one allocation."""
    place, allocation = weights[0].data_ptr(), weights[0].untyped_storage().data_ptr()
    for weight in weights:
        if weight.data_ptr() != place or weight.untyped_storage().data_ptr() != allocation:
            return False
        place += weight.nbytes
    return True


def _matrix(linears: Sequence[Any], factors: list[Factors]) -> Matrix:
    """Projections that read the same input as one matrix."""
    sizes = tuple(linear.out_features for linear in linears)
    weight, bias = _joined(linears), getattr(linears[0], "base_layer", linears[0]).bias
    if len(linears) > 1 and bias is not None:
        bias = torch.cat([getattr(linear, "base_layer", linear).bias for linear in linears])
    if not hasattr(linears[0], "lora_A"):
        return Matrix(weight, bias, sizes)
    rank = linears[0].r[linears[0].active_adapters[0]]
    down = torch.zeros(len(linears) * rank, weight.size(1), device=weight.device)
    up = torch.zeros(weight.size(0), rank, device=weight.device)
    # A float32 has 24 bits, a bfloat16 8.
    count = 3 if weight.dtype == torch.bfloat16 else 1
    pieces = torch.zeros(count, *down.shape, device=weight.device, dtype=weight.dtype)
    start = 0
    for number, (linear, size) in enumerate(zip(linears, sizes, strict=True)):
        # Not torch.split, whose parts may not be written to.
        own = slice(number * rank, (number + 1) * rank)
        factors.append(Factors(linear, down[own], up[start : start + size], pieces[:, own]))
        start += size
    return Matrix(weight, bias, sizes, down, up, pieces)


def joined_layer(layer: Any, factors: list[Factors]) -> DecoderLayer:
    """A layer of a model as ``layer_output`` reads it; its adapter's factors are added to ``factors``."""
    q, k, v, out, gate, up, down = projections(layer)
    return DecoderLayer(
        layer.input_layernorm.weight,
        _matrix([q, k, v], factors),
        _matrix([out], factors),
        layer.post_attention_layernorm.weight,
        _matrix([gate, up], factors),
        _matrix([down], factors),
        head_norms(layer),
    )

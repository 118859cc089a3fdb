"""Decoding for small Llama-like models on a CPU, where the calls cost more than the arithmetic.

The prompt goes through the model's own forward pass. After it one token per row needs no mask, no
position ids and no output objects, and the group shares the prompt's keys and values: they are stored,
and read, once. Everything else is the arithmetic of transformers' Qwen2 and Llama, with their weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers import DynamicCache, LlamaForCausalLM, Qwen2ForCausalLM

_STATIC_ROPE = ("default", "linear", "llama3")


def _base(model: Any) -> Any:
    """The causal model under an adapter; the adapter's layers stay inside it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _projections(layer: Any) -> tuple[Any, ...]:
    attention, mlp = layer.self_attn, layer.mlp
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    return (*(getattr(attention, name) for name in names), mlp.gate_proj, mlp.up_proj, mlp.down_proj)


def _plain(linear: Any) -> bool:
    """Whether the layer is a matrix, or a matrix with LoRA factors and nothing else."""
    base = getattr(linear, "base_layer", linear)
    return type(base) is torch.nn.Linear and not getattr(linear, "lora_magnitude_vector", None)


def can_decode(model: Any) -> bool:
    """Whether this decoder computes what this model computes: float32, on a CPU, nothing unusual."""
    base = _base(model)
    if type(base) not in (Qwen2ForCausalLM, LlamaForCausalLM) or base.training:
        return False
    rope = (base.config.rope_scaling or {}).get("rope_type", "default")
    layers = base.model.layers
    return (
        base.device.type == "cpu"
        and base.dtype == torch.float32
        and rope in _STATIC_ROPE
        and not getattr(base.config, "use_sliding_window", False)
        and all(_plain(linear) for layer in layers for linear in _projections(layer))
        and all(linear.bias is None for layer in layers for linear in _projections(layer)[3:])
    )


def _weight(linear: Any) -> torch.Tensor:
    """What the layer multiplies with, its active LoRA product included."""
    if not hasattr(linear, "lora_A"):
        return linear.weight  # type: ignore[no-any-return]
    weight: torch.Tensor = linear.base_layer.weight
    if linear.merged or linear.disable_adapters:
        return weight
    for name in linear.active_adapters:
        weight = weight + linear.get_delta_weight(name)
    return weight


@dataclass(frozen=True)
class _Layer:
    """One layer's weights, with the projections that read the same input stacked."""

    norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    out: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


def _layer(layer: Any, scale: float) -> _Layer:
    q, k, v, out, gate, up, down = _projections(layer)
    # Scaling the queries' projection scales every attention score.
    qkv = torch.cat([_weight(q) * scale, _weight(k), _weight(v)])
    bias = None if q.bias is None else torch.cat([q.bias * scale, k.bias, v.bias])
    return _Layer(
        layer.input_layernorm.weight,
        qkv,
        bias,
        _weight(out).t(),
        layer.post_attention_layernorm.weight,
        torch.cat([_weight(gate), _weight(up)]),
        _weight(down).t(),
    )


class _KeyValues:
    """One layer's keys and values: the prompt's once for all rows, then each row's own.

    Prompt: keys (K, d, P) and values (K, P, d); rows: keys (K, rows, d, limit) and values
    (K, rows, limit, d), for K key-value heads of width d.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, rows: int, limit: int) -> None:
        heads, _, width = keys.shape
        self._prompt_keys, self._prompt_values = keys.transpose(1, 2).contiguous(), values.contiguous()
        self._keys = keys.new_empty(heads, rows, width, limit)
        self._values = values.new_empty(heads, rows, limit, width)

    def keep(self, rows: Sequence[int]) -> None:
        self._keys, self._values = self._keys[:, rows], self._values[:, rows]

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, at: int) -> torch.Tensor:
        """Store k and v (K, rows, d) at a place; what q (K, rows, queries, d) finds, in the same shape."""
        heads, rows, queries, width = q.shape
        self._keys[:, :, :, at], self._values[:, :, at] = k, v
        own_keys = self._keys.view(heads * rows, width, -1)[:, :, : at + 1]
        own_values = self._values.view(heads * rows, -1, width)[:, : at + 1]
        shared, single = (heads, rows * queries, -1), (heads * rows, queries, -1)
        q = q.reshape(shared)
        scores = torch.cat(
            [torch.bmm(q, self._prompt_keys), torch.bmm(q.view(single), own_keys).view(shared)], dim=-1
        )
        share = torch.softmax(scores, dim=-1)
        prompt = self._prompt_keys.shape[2]
        found = torch.bmm(share[:, :, :prompt], self._prompt_values).view(single)
        own = torch.baddbmm(found, share.view(single)[:, :, prompt:], own_values)
        return own.view(heads, rows, queries, width)


class CpuDecoder:
    """A ``Decoder`` for the models that ``can_decode`` accepts."""

    def __init__(self, model: Any, prompt_ids: Sequence[int], count: int, limit: int) -> None:
        base = _base(model)
        config = base.config
        self._base, self._epsilon = base.model, config.rms_norm_eps
        self._at, self._prompt = 0, len(prompt_ids)
        out = model(
            input_ids=torch.tensor([list(prompt_ids)]),
            past_key_values=DynamicCache(),
            use_cache=True,
            logits_to_keep=1,
        )
        self.logits: torch.Tensor = out.logits[:, -1].repeat(count, 1)
        cache = out.past_key_values
        self._memories = [
            _KeyValues(keys[0], values[0], count, limit)
            for keys, values in zip(cache.key_cache, cache.value_cache, strict=True)
        ]
        self._width = cache.key_cache[0].shape[-1]
        self._layers = [_layer(layer, self._width**-0.5) for layer in self._base.layers]
        self._kv_heads, self._heads = config.num_key_value_heads, config.num_attention_heads
        self._head = base.lm_head.weight
        self._cos, self._sin = self._rotations(limit)

    def _rotations(self, limit: int) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.arange(self._prompt, self._prompt + limit)[None]
        cos, sin = self._base.rotary_emb(self.logits, places)
        sin = sin[0].clone()
        # x rotated is x cos + (x with its halves swapped, the new first half negated) sin.
        sin[:, : self._width // 2] *= -1
        return cos[0], sin

    def keep(self, rows: Sequence[int]) -> None:
        self.logits = self.logits[rows]
        for memory in self._memories:
            memory.keep(rows)

    def read(self, tokens: torch.Tensor) -> None:
        x = functional.embedding(tokens, self._base.embed_tokens.weight)
        for layer, memory in zip(self._layers, self._memories, strict=True):
            found = self._attention(layer, memory, self._norm(x, layer.norm))
            x = torch.addmm(x, found, layer.out)
            both = functional.linear(self._norm(x, layer.mlp_norm), layer.gate_up)
            gate, up = both.chunk(2, dim=-1)
            x = torch.addmm(x, functional.silu(gate) * up, layer.down)
        self.logits = functional.linear(self._norm(x, self._base.norm.weight), self._head)
        self._at += 1

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, weight.shape, weight, self._epsilon)

    def _attention(self, layer: _Layer, memory: _KeyValues, x: torch.Tensor) -> torch.Tensor:
        rows, width, kv = len(x), self._width, self._kv_heads
        qkv = functional.linear(x, layer.qkv, layer.qkv_bias).view(rows, self._heads + 2 * kv, width)
        turned, v = qkv[:, :-kv], qkv[:, -kv:]
        swapped = turned.roll(width // 2, dims=-1)
        turned = torch.addcmul(turned * self._cos[self._at], swapped, self._sin[self._at])
        q = turned[:, :-kv].view(rows, kv, -1, width).transpose(0, 1)
        found = memory.attend(q, turned[:, -kv:].transpose(0, 1), v.transpose(0, 1), self._at)
        return found.transpose(0, 1).reshape(rows, -1)

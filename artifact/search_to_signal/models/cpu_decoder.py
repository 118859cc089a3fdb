"""Decoding for small Llama-like models on a CPU, where the calls cost more than the arithmetic.

The prompt goes through the model's own forward pass. After it one token per row needs no mask, no
position ids and no output objects, and the group shares the prompt's keys and values: they are stored,
and read, once. The token step is TorchScript, which spends less time between operations than Python.
Everything else is the arithmetic of transformers' Qwen2, Qwen3 and Llama, with their weights.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional
from transformers import LlamaForCausalLM, Qwen2ForCausalLM

from search_to_signal.models.releases import keys_and_values, new_cache, read, rotation

_STATIC_ROPE = ("default", "linear", "llama3")
# Classes that need no trial.
KNOWN = (Qwen2ForCausalLM, LlamaForCausalLM)
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
_LAYER = {
    *(f"self_attn.{name}" for name in _PROJECTIONS),
    *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm"),
}
_HEAD_NORMS = {"self_attn.q_norm", "self_attn.k_norm"}
_AROUND = {"model.embed_tokens", "model.norm", "lm_head"}


def causal_model(model: Any) -> Any:
    """The causal model under an adapter; the adapter's layers stay inside it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def projections(layer: Any) -> tuple[Any, ...]:
    attention, mlp = layer.self_attn, layer.mlp
    return (*(getattr(attention, name) for name in _PROJECTIONS), mlp.gate_proj, mlp.up_proj, mlp.down_proj)


def _parts(module: Any) -> set[str]:
    """The parts of a module that have weights, by name; an adapter belongs to what it adapts."""
    names = {name.replace(".base_layer", "").rpartition(".")[0] for name, _ in module.named_parameters()}
    return {name.partition(".lora_")[0] for name in names}


def has_fitting_layers(base: Any) -> bool:
    """Whether a causal model consists of what the fast paths compute with, and of nothing else.

    That is an embedding, layers of seven projections and two norms, a norm and a head; queries and keys may
    have a norm for each head. A class that is not ``KNOWN`` may compute something else with them: try it.
    """
    around = {name for name in _parts(base) if not name.startswith("model.layers.")}
    rotary = getattr(getattr(base, "model", None), "rotary_emb", None)
    if rotary is None or not _AROUND - {"lm_head"} <= around <= _AROUND:
        return False
    layers, windows = base.model.layers, getattr(base.config, "layer_types", None) or ()
    windowed = any(kind != "full_attention" for kind in windows)
    if not windows and getattr(base.config, "use_sliding_window", None) is None:
        windowed = bool(getattr(base.config, "sliding_window", None))
    return (
        all(_parts(layer) - _HEAD_NORMS == _LAYER for layer in layers)
        and len({_parts(layer) >= _HEAD_NORMS for layer in layers}) == 1
        and all(linear.bias is None for layer in layers for linear in projections(layer)[3:])
        and rotation(base.config) in _STATIC_ROPE
        and not windowed
        and not getattr(base.config, "use_sliding_window", False)
    )


def head_norms(layer: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The weights (d) of the norms of each head's queries and keys; None in a layer without."""
    attention = layer.self_attn
    return (attention.q_norm.weight, attention.k_norm.weight) if hasattr(attention, "q_norm") else None


def _plain(linear: Any) -> bool:
    """Whether the layer is a matrix, or a matrix with LoRA factors and nothing else."""
    base = getattr(linear, "base_layer", linear)
    return type(base) is torch.nn.Linear and not getattr(linear, "lora_magnitude_vector", None)


def can_decode(model: Any) -> bool:
    """Whether this decoder computes what this model computes: float32, on a CPU, nothing unusual."""
    base = causal_model(model)
    if not isinstance(base, torch.nn.Module) or base.training or not has_fitting_layers(base):
        return False
    fits = (
        base.device.type == "cpu"
        and base.dtype == torch.float32
        and all(_plain(linear) for layer in base.model.layers for linear in projections(layer))
    )
    return fits and (type(base) in KNOWN or _gives_its_logits(model))


@torch.no_grad()
def _gives_its_logits(model: Any) -> bool:
    """Whether two tokens behind three give the model's own logits, up to rounding."""
    ids = torch.arange(5)
    expected = model(input_ids=ids[None]).logits[0, 3:]
    decoder, found = CpuDecoder(model, (0, 1, 2), 1, 2), []
    for token in ids[3:]:
        decoder.read(token[None])
        found.append(decoder.logits[0])
    return bool((torch.stack(found) - expected).abs().max() <= 1e-4 * expected.abs().max())


def _weight(linear: Any) -> torch.Tensor:
    if not hasattr(linear, "lora_A"):
        return linear.weight  # type: ignore[no-any-return]
    weight: torch.Tensor = linear.base_layer.weight
    if linear.merged or linear.disable_adapters:
        return weight
    for name in linear.active_adapters:
        weight = weight + linear.get_delta_weight(name)
    return weight


class _Layer(NamedTuple):
    """One layer's weights; matrices are (input, output), those that read the same input side by side.

    ``head_norms`` (query and key heads, d) are the weights of norms over each head.
    """

    norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    out: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    head_norms: torch.Tensor | None


class _Weights(NamedTuple):
    """What a token step computes with: weights, cos and sin (limit, d), and its scalars as tensors."""

    embedding: torch.Tensor
    layers: list[_Layer]
    norm: torch.Tensor
    head: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    width: torch.Tensor
    head_width: torch.Tensor
    epsilon: torch.Tensor


class _KeyValues(NamedTuple):
    """One layer's keys and values: the prompt's once for all rows, then each row's own.

    Prompt: keys (K, d, P) and values (K, P, d); rows: keys (K, rows, d, limit) and values
    (K, rows, limit, d), for K key-value heads of width d.
    """

    prompt_keys: torch.Tensor
    prompt_values: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


def _attend(memory: _KeyValues, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, at: int) -> torch.Tensor:
    """Store k and v (K, rows, d) at a place; what q (K, rows, queries, d) finds, in the same shape."""
    heads, rows, queries, width = q.size(0), q.size(1), q.size(2), q.size(3)
    memory.keys.select(3, at).copy_(k)
    memory.values.select(2, at).copy_(v)
    own_keys = memory.keys.view(heads * rows, width, -1)[:, :, : at + 1]
    own_values = memory.values.view(heads * rows, -1, width)[:, : at + 1]
    q = q.reshape(heads, rows * queries, width)
    own_scores = torch.bmm(q.view(heads * rows, queries, width), own_keys)
    scores = [torch.bmm(q, memory.prompt_keys), own_scores.view(heads, rows * queries, -1)]
    share = torch.softmax(torch.cat(scores, dim=-1), dim=-1)
    prompt = memory.prompt_keys.size(2)
    prompt_part = torch.bmm(share[:, :, :prompt], memory.prompt_values).view(heads * rows, queries, width)
    own = torch.baddbmm(prompt_part, share.view(heads * rows, queries, -1)[:, :, prompt:], own_values)
    return own.view(heads, rows, queries, width)


def _norm(x: torch.Tensor, weight: torch.Tensor, width: torch.Tensor, epsilon: torch.Tensor) -> torch.Tensor:
    # rms_norm's own operations; it makes tensors of its scalars in every call.
    mean = torch.div(torch.sum(torch.mul(x, x), [-1], True), width)
    return torch.mul(torch.mul(x, torch.rsqrt(torch.add(mean, epsilon))), weight)


def _next_logits(
    tokens: torch.Tensor, at: int, weights: _Weights, memories: list[_KeyValues]
) -> torch.Tensor:
    """Logits (rows, vocabulary) after tokens (rows), the at-th that each row reads."""
    x = torch.embedding(weights.embedding, tokens)
    cos, sin = weights.cos[at], weights.sin[at]
    rows, width = x.size(0), cos.size(0)
    for layer, memory in zip(weights.layers, memories):  # noqa: B905  # TorchScript's has no strict
        kv = memory.keys.size(0)
        normed, bias = _norm(x, layer.norm, weights.width, weights.epsilon), layer.qkv_bias
        qkv = torch.mm(normed, layer.qkv) if bias is None else torch.addmm(bias, normed, layer.qkv)
        qkv = qkv.view(rows, -1, width)
        turned = qkv[:, :-kv]
        norms = layer.head_norms
        if norms is not None:
            turned = _norm(turned, norms, weights.head_width, weights.epsilon)
        swapped = turned.roll([width // 2], [-1])
        turned = torch.addcmul(turned * cos, swapped, sin)
        q = turned[:, :-kv].view(rows, kv, -1, width).transpose(0, 1)
        k, v = turned[:, -kv:].transpose(0, 1), qkv[:, -kv:].transpose(0, 1)
        attended = _attend(memory, q, k, v, at).transpose(0, 1).reshape(rows, -1)
        x = torch.addmm(x, attended, layer.out)
        normed = _norm(x, layer.mlp_norm, weights.width, weights.epsilon)
        gate, up = torch.mm(normed, layer.gate_up).chunk(2, dim=-1)
        x = torch.addmm(x, functional.silu(gate) * up, layer.down)
    return torch.mm(_norm(x, weights.norm, weights.width, weights.epsilon), weights.head)


_scripted_next_logits = torch.jit.script(_next_logits)


def _layer(layer: Any, scale: float) -> _Layer:
    q, k, v, out, gate, up, down = projections(layer)
    # Scaling the queries' projection, or the norm behind it, scales every attention score.
    norms = None
    if (normed := head_norms(layer)) is not None:
        of_queries, of_keys = (
            norm.expand(linear.out_features // len(norm), -1)
            for norm, linear in zip(normed, (q, k), strict=True)
        )
        norms, scale = torch.cat([of_queries * scale, of_keys]), 1.0
    qkv = torch.cat([_weight(q) * scale, _weight(k), _weight(v)])
    bias = None if q.bias is None else torch.cat([q.bias * scale, k.bias, v.bias])
    return _Layer(
        layer.input_layernorm.weight,
        qkv.t(),
        bias,
        _weight(out).t(),
        layer.post_attention_layernorm.weight,
        torch.cat([_weight(gate), _weight(up)]).t(),
        _weight(down).t(),
        norms,
    )


def _by_input(weights: _Weights) -> _Weights:
    """The same weights with every matrix stored input by input."""

    def moved(layer: _Layer) -> _Layer:
        names = ("qkv", "out", "gate_up", "down")
        return layer._replace(**{name: getattr(layer, name).contiguous() for name in names})

    return weights._replace(layers=[moved(layer) for layer in weights.layers], head=weights.head.contiguous())


class CpuDecoder:
    """A ``Decoder`` for the models that ``can_decode`` accepts."""

    def __init__(self, model: Any, prompt_ids: Sequence[int], count: int, limit: int) -> None:
        base = causal_model(model)
        cache = new_cache(model)
        out = read(model, torch.tensor([list(prompt_ids)]), cache, logits_to_keep=1)
        self.logits: torch.Tensor = out.logits[:, -1].repeat(count, 1)
        cached = keys_and_values(cache)
        width = cached[0][0].shape[-1]
        places = torch.arange(len(prompt_ids), len(prompt_ids) + limit)[None]
        cos, sin = base.model.rotary_emb(self.logits, places)
        sin = sin[0].clone()
        # x rotated is x cos + (x with its halves swapped, the new first half negated) sin.
        sin[:, : width // 2] *= -1
        self._at = 0
        self._memories = [
            _KeyValues(
                keys[0].transpose(1, 2).contiguous(),
                values[0].contiguous(),
                keys.new_empty(len(keys[0]), count, width, limit),
                values.new_empty(len(keys[0]), count, limit, width),
            )
            for keys, values in cached
        ]
        self._for_one = _Weights(
            base.model.embed_tokens.weight,
            [_layer(layer, width**-0.5) for layer in base.model.layers],
            base.model.norm.weight,
            base.lm_head.weight.t(),
            cos[0],
            sin,
            torch.tensor(float(base.config.hidden_size)),
            torch.tensor(float(width)),
            torch.tensor(base.config.rms_norm_eps),
        )
        # With several rows that is faster and the same bits; with one it would be other bits, no faster.
        self._for_more = _by_input(self._for_one) if count > 1 else self._for_one

    def keep(self, rows: Sequence[int]) -> None:
        self.logits = self.logits[rows]
        self._memories = [
            memory._replace(keys=memory.keys[:, rows], values=memory.values[:, rows])
            for memory in self._memories
        ]

    def read(self, tokens: torch.Tensor) -> None:
        weights = self._for_one if len(tokens) == 1 else self._for_more
        # Optimized, it would add up in another order.
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            self.logits = _scripted_next_logits(tokens, self._at, weights, self._memories)
        self._at += 1

"""An estimate of the card memory of a run, from the sizes of its model, before it starts."""

import json
from pathlib import Path
from typing import Any

from search_to_signal.errors import ModelFileError
from search_to_signal.generators.settings import GenerationSettings, ModelLoading
from search_to_signal.learner.settings import LearnerSettings

_MIB = 1 << 20
# Memory of a process's CUDA context, and what torch's allocator and its graphs keep beyond the tensors, so
# that the estimate covers the largest measured run (docs/performance.md).
_CONTEXT_MIB, _SLACK = 1000, 1.4


def required_mib(
    directory: Path, loading: ModelLoading, generation: GenerationSettings, learner: LearnerSettings | None
) -> int:
    """Return the memory in MiB of a run at its longest prompt and completions; ``learner`` is None if frozen.

    It is an upper estimate, compared with measured runs in docs/performance.md. Raises ModelFileError for a
    directory without a configuration.
    """
    sizes = _sizes(directory)
    weights = _weights(sizes, loading) + _cache(sizes, loading, generation)
    if learner is not None:
        weights += _adapter(sizes, learner) + _update(sizes, loading, generation, learner)
    return int(_SLACK * weights / _MIB) + _CONTEXT_MIB


def _sizes(directory: Path) -> dict[str, int]:
    try:
        config: dict[str, Any] = json.loads((directory / "config.json").read_bytes())
        names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
        sizes = {name: int(config[name]) for name in names}
        heads = sizes["num_attention_heads"]
        sizes["num_key_value_heads"] = int(config.get("num_key_value_heads") or heads)
        sizes["head_dim"] = int(config.get("head_dim") or sizes["hidden_size"] // heads)
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, AttributeError) as error:
        raise ModelFileError(f"{directory} has no config.json of a causal model: restore it") from error
    return sizes


def _projections(sizes: dict[str, int]) -> list[tuple[int, int]]:
    """(outputs, inputs) of a layer's seven projections."""
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    heads, others = (sizes[n] * sizes["head_dim"] for n in ("num_attention_heads", "num_key_value_heads"))
    attention = [(heads, hidden), (others, hidden), (others, hidden), (hidden, heads)]
    return [*attention, (inner, hidden), (inner, hidden), (hidden, inner)]


def _bytes(loading: ModelLoading) -> int:
    return 4 if loading.dtype == "float32" else 2


def _weights(sizes: dict[str, int], loading: ModelLoading) -> int:
    """Bytes of the layers, the embedding, the output head in float32, and the sampler's copy of the head."""
    layers = sizes["num_hidden_layers"] * sum(out * into for out, into in _projections(sizes))
    table = sizes["vocab_size"] * sizes["hidden_size"]
    size = _bytes(loading)
    # The sampler unpacks weights that are stored in 4 bits.
    stored = layers * size + (layers * 9 // 16 if loading.quantization == "nf4" else 0)
    return stored + table * (size + 4 + size)


def _cache(sizes: dict[str, int], loading: ModelLoading, generation: GenerationSettings) -> int:
    """Bytes of keys, values and logits of every row, and of the pass over the prompt."""
    tokens = generation.max_prompt_tokens + generation.max_completion_tokens
    token_bytes = 2 * sizes["num_key_value_heads"] * sizes["head_dim"] * _bytes(loading)
    rows = generation.group_size + 1
    return rows * (tokens * token_bytes * sizes["num_hidden_layers"] + 16 * sizes["vocab_size"])


def _adapter(sizes: dict[str, int], learner: LearnerSettings) -> int:
    """Bytes of adapter, gradient, two moments, the sampler's copy and its pieces, and the hashed copy."""
    ranks = sum(out + into for out, into in _projections(sizes))
    return 8 * 4 * sizes["num_hidden_layers"] * learner.lora_rank * ranks


def _update(
    sizes: dict[str, int], loading: ModelLoading, generation: GenerationSettings, learner: LearnerSettings
) -> int:
    """Bytes that the backward pass stores for every token, and the logits of one completion."""
    longest = generation.max_prompt_tokens + generation.max_completion_tokens
    hidden, inner, layers = (
        sizes[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers")
    )
    layer = 16 * hidden * _bytes(loading) + 7 * inner * _bytes(loading)
    checkpoints = layers * hidden * _bytes(loading) + layer
    stored = checkpoints if learner.gradient_checkpointing else layers * layer
    logits = 3 * 4 * generation.max_completion_tokens * sizes["vocab_size"]
    return generation.group_size * longest * stored + logits

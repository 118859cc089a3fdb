"""A small GGUF file of a Qwen2 model, with every kind of quantization that the published files use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray

HIDDEN, INNER, HEADS, KEY_HEADS, LAYERS = 256, 512, 4, 2, 2
MERGES = ["h e", "l l", "he ll", "Ġ w"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Values and bytes of a block, and where in it half-precision scales stand.
BLOCKS: Mapping[Kind, tuple[int, int, tuple[int, ...]]] = {
    Kind.Q5_0: (32, 22, (0,)),
    Kind.Q8_0: (32, 34, (0,)),
    Kind.Q4_K: (256, 144, (0, 2)),
    Kind.Q6_K: (256, 210, (208,)),
}


class Tensor(NamedTuple):
    """A tensor as it lies in the file: its kind, and its bytes by row, or its float32 values."""

    kind: Kind
    data: NDArray[Any]


def byte_letters() -> list[str]:
    """The letter that stands for each byte in a byte-level vocabulary; printable bytes are themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def tokens() -> list[str]:
    """Bytes, merges, special tokens, and four that only fill up the table."""
    merged = [merge.replace(" ", "") for merge in MERGES]
    return [*byte_letters(), *merged, *SPECIAL, *(f"[PAD{place}]" for place in range(4))]


def quantized(kind: Kind, rows: int, columns: int, stream: np.random.Generator) -> Tensor:
    """Random blocks with small scales: every bit pattern of the rest is a number."""
    values, size, scales = BLOCKS[kind]
    blocks = stream.integers(0, 256, (rows, columns // values, size), dtype=np.uint8)
    for place in scales:
        scale = stream.uniform(-0.01, 0.01, blocks.shape[:2]).astype(np.float16)
        blocks[:, :, place : place + 2] = scale[..., None].view(np.uint8)
    return Tensor(kind, blocks.reshape(rows, -1))


def tensors(seed: int = 0) -> dict[str, Tensor]:
    """Every tensor of the model by its name in the file."""
    stream = np.random.default_rng(seed)
    keys, vocabulary = HIDDEN // HEADS * KEY_HEADS, len(tokens())
    shapes = {
        "attn_q.weight": (Kind.Q5_0, HIDDEN, HIDDEN),
        "attn_k.weight": (Kind.Q4_K, keys, HIDDEN),
        "attn_v.weight": (Kind.Q8_0, keys, HIDDEN),
        "attn_output.weight": (Kind.Q6_K, HIDDEN, HIDDEN),
        "ffn_gate.weight": (Kind.Q4_K, INNER, HIDDEN),
        "ffn_up.weight": (Kind.Q5_0, INNER, HIDDEN),
        "ffn_down.weight": (Kind.Q6_K, HIDDEN, INNER),
    }
    vectors = {"attn_norm.weight": HIDDEN, "ffn_norm.weight": HIDDEN, "attn_q.bias": HIDDEN}
    vectors |= {"attn_k.bias": keys, "attn_v.bias": keys}

    def vector(size: int) -> Tensor:
        return Tensor(Kind.F32, stream.normal(1.0, 0.1, size).astype(np.float32))

    found = {
        "token_embd.weight": quantized(Kind.Q8_0, vocabulary, HIDDEN, stream),
        "output.weight": quantized(Kind.Q6_K, vocabulary, HIDDEN, stream),
        "output_norm.weight": vector(HIDDEN),
    }
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            found[f"blk.{layer}.{name}"] = quantized(*shape, stream)
        for name, size in vectors.items():
            found[f"blk.{layer}.{name}"] = vector(size)
    return found


def write_gguf(
    path: Path, architecture: str = "qwen2", changed: Mapping[str, Tensor | None] | None = None
) -> Path:
    """Write the file, with other tensors, or without those that are None."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    _add_tokenizer(writer)
    for name, tensor in {**tensors(), **(changed or {})}.items():
        if tensor is not None:
            writer.add_tensor(name, tensor.data, raw_dtype=tensor.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    kinds = [gguf.TokenType.NORMAL] * (256 + len(MERGES))
    kinds += [gguf.TokenType.CONTROL] * len(SPECIAL) + [gguf.TokenType.UNUSED] * 4
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens())
    writer.add_token_types(kinds)
    writer.add_token_merges(MERGES)
    # Published files name the chat's end token; nothing here may depend on it.
    writer.add_eos_token_id(tokens().index("<|endoftext|>"))
    writer.add_chat_template(TEMPLATE)

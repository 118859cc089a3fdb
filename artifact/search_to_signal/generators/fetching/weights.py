"""Weights written one by one into a safetensors file, rounded to bfloat16: memory for a slice at a time."""

import json
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from search_to_signal.errors import ModelFileError
from search_to_signal.generators.fetching.gguf_file import GgufModel
from search_to_signal.generators.fetching.reading import refuse_little_room
from search_to_signal.progress import Progress

_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INSIDE = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_k.bias": "self_attn.k_proj.bias",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_v.bias": "self_attn.v_proj.bias",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
HEAD = "output.weight"


class Sizes(NamedTuple):
    """What the shapes of a Qwen2 model follow from."""

    layers: int
    hidden: int
    inner: int
    heads: int
    key_heads: int
    vocabulary: int

    @property
    def keys(self) -> int:
        """Length of all keys of a token together."""
        return self.hidden // self.heads * self.key_heads

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor by its name in the GGUF file."""
        part = name.partition(".")[2].partition(".")[2] if name.startswith("blk.") else name
        if name in (HEAD, "token_embd.weight"):
            return self.vocabulary, self.hidden
        outputs = {"attn_k": self.keys, "attn_v": self.keys, "ffn_gate": self.inner, "ffn_up": self.inner}
        stem, _, kind = part.partition(".")
        rows = outputs.get(stem, self.hidden)
        if kind == "bias" or stem.endswith("norm"):
            return (rows,)
        return rows, self.inner if stem == "ffn_down" else self.hidden


def tensor_names(model: GgufModel, sizes: Sizes) -> dict[str, str]:
    """The name in transformers by the name in the file; raises ModelFileError where the two do not fit."""
    if sizes.layers > len(model.tensors):
        raise ModelFileError(f"{model.path} claims {sizes.layers} layers and lacks them: get it again")
    inside = {
        f"blk.{layer}.{name}": f"model.layers.{layer}.{target}"
        for layer in range(sizes.layers)
        for name, target in _INSIDE.items()
    }
    names = {**_OUTSIDE, **inside}
    if HEAD not in model.tensors:
        del names[HEAD]  # shared with the table of tokens
    if odd := sorted(names.keys() ^ model.tensors.keys()):
        word = "lacks" if odd[0] in names else "holds the unknown"
        raise ModelFileError(f"{model.path} {word} tensor {odd[0]}: get a whole file of a known model")
    for name in names:
        shape = tuple(reversed(model.tensors[name].shape.tolist()))
        if shape != sizes.shape(name):
            raise ModelFileError(
                f"{model.path}: {name} has shape {shape}, its header says {sizes.shape(name)}; get it again"
            )
    return names


def write_weights(path: Path, model: GgufModel, sizes: Sizes, progress: Progress) -> None:
    """Write every tensor as bfloat16; raises ModelFileError as ``tensor_names`` and ``GgufModel.rows`` do."""
    names = tensor_names(model, sizes)
    shapes = {target: sizes.shape(name) for name, target in names.items()}
    refuse_little_room(path.parent, 2 * sum(map(prod, shapes.values())))
    header = _header(shapes)
    with path.open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        for done, name in enumerate(names):
            progress.update("convert weights", done, len(names), "tensors")
            for rows in model.rows(name):
                stream.write(bfloat16_bytes(rows))
    progress.update("convert weights", len(names), len(names), "tensors")


def _header(shapes: Mapping[str, Iterable[int]]) -> bytes:
    """The head of a safetensors file whose tensors follow each other in this order."""
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, shape in shapes.items():
        size = list(shape)
        end = start + 2 * prod(size)
        table[name] = {"dtype": "BF16", "shape": size, "data_offsets": [start, end]}
        start = end
    text = json.dumps(table, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def bfloat16_bytes(values: NDArray[np.float32]) -> bytes:
    """Finite float32 rounded to the nearest bfloat16, of two equally near the even one, as its bytes."""
    # The upper half of a float32 is the bfloat16 below it; adding just under half of its last place rounds.
    bits = values.view(np.uint32)
    return ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype("<u2").tobytes()

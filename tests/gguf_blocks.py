"""Quantized blocks of a GGUF file, read value by value as llama.cpp's ggml-quants.c defines them."""

import struct
from collections.abc import Callable

import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from tests.gguf_files import BLOCKS, Tensor

FLOAT = np.float32


def half(block: bytes, place: int) -> np.float32:
    """The half-precision number at a place."""
    return FLOAT(struct.unpack_from("<e", block, place)[0])


def values_5(block: bytes) -> list[np.float32]:
    """Q5_0: four low bits in nibbles, the fifth in a word of 32, offset 16."""
    (high,) = struct.unpack_from("<I", block, 2)
    low = [byte & 15 for byte in block[6:22]] + [byte >> 4 for byte in block[6:22]]
    return [
        FLOAT((nibble | (high >> place & 1) << 4) - 16) * half(block, 0) for place, nibble in enumerate(low)
    ]


def values_8(block: bytes) -> list[np.float32]:
    """Q8_0: 32 signed bytes."""
    return [FLOAT(number) * half(block, 0) for number in struct.unpack_from("<32b", block, 2)]


def values_4k(block: bytes) -> list[np.float32]:
    """Q4_K: eight runs of 32, each with a scale and a minimum of six bits."""
    packed, nibbles, found = block[4:16], block[16:], []
    for run in range(8):
        if run < 4:
            scale, least = packed[run] & 63, packed[run + 4] & 63
        else:
            scale = packed[run + 4] & 15 | packed[run - 4] >> 6 << 4
            least = packed[run + 4] >> 4 | packed[run] >> 6 << 4
        for byte in nibbles[run // 2 * 32 : run // 2 * 32 + 32]:
            number = byte >> 4 if run % 2 else byte & 15
            found.append(half(block, 0) * FLOAT(scale) * FLOAT(number) - half(block, 2) * FLOAT(least))
    return found


def values_6k(block: bytes) -> list[np.float32]:
    """Q6_K: four low bits and two high ones, offset 32, a signed scale for each 16."""
    found = []
    for place in range(256):
        part, within = divmod(place, 128)
        quarter, column = divmod(within, 32)
        low = block[part * 64 + quarter % 2 * 32 + column] >> quarter // 2 * 4 & 15
        high = block[128 + part * 32 + column] >> quarter * 2 & 3
        (scale,) = struct.unpack_from("<b", block, 192 + place // 16)
        found.append(half(block, 208) * FLOAT(scale) * FLOAT((low | high << 4) - 32))
    return found


VALUES: dict[Kind, Callable[[bytes], list[np.float32]]] = {
    Kind.Q5_0: values_5,
    Kind.Q8_0: values_8,
    Kind.Q4_K: values_4k,
    Kind.Q6_K: values_6k,
}


def row_of(tensor: Tensor, row: int) -> torch.Tensor:
    """A row of a tensor, read value by value from the format's definition, as bfloat16."""
    if tensor.kind == Kind.F32:
        return torch.from_numpy(tensor.data).bfloat16()
    size = BLOCKS[tensor.kind][1]
    data = tensor.data[row].tobytes()
    blocks = [data[start : start + size] for start in range(0, len(data), size)]
    return torch.tensor(np.array([v for block in blocks for v in VALUES[tensor.kind](block)])).bfloat16()

"""Is a fetched model what its distributor published? Tensors against its file, 50 chats against their ids.

    python -m tests.proofs.fetched_model mounts/qwen2.5-coder-0.5b-instruct FILE.gguf

Tensors are found by the names that the library gguf has for them, dequantized whole by it, rounded by torch;
one row of each is also read value by value from the format's definition. The ids in the golden file of chats
were made without transformers, tokenizers and a GGUF file: by tiktoken over the distributor's own ranks, as
dashscope 2.0.2 ships them (``qwen.tiktoken``, class QwenTokenizer), of chats written as ChatML.
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from safetensors import safe_open
from tests.figures import print_figure
from tests.gguf_blocks import row_of
from tests.gguf_files import Tensor

from search_to_signal.models.files import checked_files
from search_to_signal.models.local import load_tokenizer

CHATS = Path(__file__).parents[1] / "golden" / "qwen_chats.json"


def golden(directory: Path) -> tuple[int, int]:
    """How many chats have their ids, and of how many."""
    tokenizer = load_tokenizer(directory)
    chats = json.loads(CHATS.read_text(encoding="utf-8"))
    equal = [
        tokenizer.apply_chat_template(chat["messages"], add_generation_prompt=True) == chat["ids"]
        for chat in chats
    ]
    return sum(equal), len(chats)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two bfloat16 tensors are equal bit by bit."""
    return torch.equal(one.view(torch.int16), other.view(torch.int16))


def weights(directory: Path, path: Path) -> tuple[int, int, int]:
    """Of the model's tensors: equal to the library's, with a row equal to the definition's, and all."""
    reader = gguf.GGUFReader(path)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    layers = int(reader.fields["qwen2.block_count"].parts[-1][0])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, layers)
    stream = np.random.default_rng(0)
    whole = rows = 0
    with safe_open(directory / "model.safetensors", framework="pt") as stored:
        found = list(stored.keys())
        for name in found:
            weight, tensor = stored.get_tensor(name), tensors.pop(names.get_name(name, (".weight", ".bias")))
            values = torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type)))
            whole += same_bits(weight, values.bfloat16())
            row = int(stream.integers(len(weight))) if weight.dim() > 1 else 0
            part = weight[row] if weight.dim() > 1 else weight
            rows += same_bits(part, row_of(Tensor(tensor.tensor_type, np.array(tensor.data)), row))
    if tensors:
        raise SystemExit(f"not in the model: {', '.join(sorted(tensors))}")
    return whole, rows, len(found)


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    name = arguments.directory.name
    files = checked_files(arguments.directory)
    whole, rows, tensors = weights(arguments.directory, arguments.file)
    equal, chats = golden(arguments.directory)
    print_figure(
        f"fetched_model {name}",
        f"python -m tests.proofs.fetched_model mounts/{name} {arguments.file.name}",
        f"{whole} of {tensors} tensors equal the library's to the bit, a row of {rows} its definition; "
        f"{equal} of {chats} chats give the golden ids; model.safetensors {files['model.safetensors'][:16]}",
    )


if __name__ == "__main__":
    main()

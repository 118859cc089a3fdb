"""A model directory from a GGUF file of a Qwen2 model, or from the numbered parts of one."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch
from gguf.quants import dequantize

from search_to_signal.base.errors import ModelFileError
from search_to_signal.base.progress import Progress, one_line
from search_to_signal.models import foreign
from search_to_signal.models.files import refuse_little_room

# The bytes of a GGUF file, from one file or from its parts, joined in the order of their numbers.

# part7.bin, model.gguf.part07, model.gguf.007
_NUMBERED = re.compile(r"(.*?)(\d+)(\.[A-Za-z]\w*)?", re.DOTALL)
# Who names a home directory by mistake should not wait for all of it.
_MOST_ENTRIES = 10_000


def gguf_files(given: Path) -> list[Path]:
    """A file as it is, or of a directory its one GGUF file or the numbered parts of one, in order.

    Raises ModelFileError where a part is missing or doubled, where parts of several files lie side by side,
    and for parts that are GGUF files of their own.
    """
    if not given.is_dir():
        return [given]
    files = _files(given)
    whole = [path for path in files if path.suffix == ".gguf" and _begins(path)]
    if len(whole) > 1:
        raise ModelFileError(
            f"{given} holds {len(whole)} GGUF files, such as {whole[0].name}: name one; parts that are GGUF "
            "files themselves are made one by llama.cpp's llama-gguf-split --merge"
        )
    return whole or _in_order(given, files)


def _files(directory: Path) -> list[Path]:
    def shown() -> Iterator[Path]:
        for path in directory.rglob("*"):
            names = path.relative_to(directory).parts
            if not any(name.startswith((".", "__pycache__")) for name in names):
                yield path

    paths = list(islice(shown(), _MOST_ENTRIES + 1))
    if len(paths) > _MOST_ENTRIES:
        raise ModelFileError(
            f"{directory} holds more than {_MOST_ENTRIES} files: give a directory with only the model's"
        )
    return sorted(path for path in paths if path.is_file())


def _begins(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) == b"GGUF"


def _in_order(directory: Path, files: Sequence[Path]) -> list[Path]:
    series: dict[tuple[str, str], list[tuple[int, Path]]] = defaultdict(list)
    for path in files:
        if match := _NUMBERED.fullmatch(path.name):
            series[match[1], match[3] or ""].append((int(match[2]), path))
    if not series:
        raise ModelFileError(
            f"{directory} holds no GGUF file, no *.safetensors, and no numbered parts of a file"
        )
    if len(series) > 1:
        names = ", ".join(sorted(parts[0][1].name for parts in series.values())[:4])
        raise ModelFileError(
            f"{directory} holds numbered files of several names ({names}): leave the parts of one file there"
        )
    numbered = sorted(next(iter(series.values())))
    for (number, path), (following, double) in pairwise(numbered):
        if number == following:
            raise ModelFileError(f"{path} and {double} are both part {number}: leave the parts of one file")
    numbers = [number for number, _ in numbered]
    if missing := sorted({*range(min(numbers[0], 1), numbers[-1])} - {*numbers}):
        more = f" and {len(missing) - 5} more" if missing[5:] else ""
        named = f"part{'s' if missing[1:] else ''} {', '.join(map(str, missing[:5]))}{more}"
        raise ModelFileError(f"{directory} lacks {named} of {numbers[-1]}: get what is missing")
    return [path for _, path in numbered]


# What the library gguf reads of a file, as the texts of a model directory of transformers.

ARCHITECTURE = "qwen2"
PAD, END = "<|endoftext|>", "<|im_end|>"
# Kinds of tokens in a GGUF file.
_NORMAL, _CONTROL, _USER = 1, 3, 4
# How Qwen2 cuts text before byte pairs are merged; a GGUF file names it, "qwen2", and does not spell it out.
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_HEAD = "output.weight"
_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    _HEAD: "lm_head.weight",
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


class StoredTensor(NamedTuple):
    """A tensor by its name in transformers: its shape, how it is quantized, and the bytes of its rows."""

    name: str
    shape: list[int]
    kind: int
    start: int
    rows: int
    row_bytes: int


def _read(path: Path, at: foreign.At) -> foreign.Answer:
    """Gives, in a confined child, the texts of the model directory by file name, and every StoredTensor."""
    at("its header")
    reader = gguf.GGUFReader(path)
    said = {name: _value(field) for name, field in reader.fields.items()}
    if (architecture := said.get("general.architecture", "nothing")) != ARCHITECTURE:
        raise ModelFileError(
            f"{path} holds a model of architecture {one_line(repr(architecture), 80)}: only {ARCHITECTURE!r} "
            "can be turned into a model directory; give the distributor's safetensors files instead"
        )
    tokenizer = (said.get("tokenizer.ggml.model"), said.get("tokenizer.ggml.pre"))
    if tokenizer != ("gpt2", "qwen2"):
        raise ModelFileError(f"{path} has the tokenizer {one_line(repr(tokenizer), 80)}, not Qwen2's")
    at("its settings")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    texts = _texts(said, tied=_HEAD not in tensors)
    at("its tensors")
    stored = [_stored(tensors[name], target) for name, target in _names(path, said, tensors).items()]
    written = {name: json.dumps(value, indent=2, ensure_ascii=False) + "\n" for name, value in texts.items()}
    return lambda: (written, stored)


def _value(field: gguf.ReaderField) -> Any:
    text = field.types[-1:] == [gguf.GGUFValueType.STRING]
    parts = [field.parts[place] for place in field.data]
    values = [bytes(part).decode() if text else part[0].item() for part in parts]
    return values if field.types[:1] == [gguf.GGUFValueType.ARRAY] else values[0]


def _names(path: Path, said: dict[str, Any], tensors: dict[str, Any]) -> dict[str, str]:
    layers = range(said[f"{ARCHITECTURE}.block_count"])
    inside = {f"blk.{n}.{own}": f"model.layers.{n}.{name}" for n in layers for own, name in _INSIDE.items()}
    names = {**_OUTSIDE, **inside}
    if _HEAD not in tensors:
        del names[_HEAD]  # shared with the table of tokens
    if odd := sorted(names.keys() ^ tensors.keys()):
        word = "lacks" if odd[0] in names else "holds the unknown"
        raise ModelFileError(
            f"{path} {word} tensor {one_line(odd[0], 80)}: get a whole file of a known model"
        )
    return names


def _stored(tensor: gguf.ReaderTensor, name: str) -> StoredTensor:
    data = tensor.data if tensor.data.ndim > 1 else tensor.data[None]
    dequantize(data[:1], tensor.tensor_type)  # or the library does not know how
    shape = tensor.shape.tolist()[::-1]
    return StoredTensor(
        name, shape, int(tensor.tensor_type), tensor.data_offset, len(data), data.nbytes // len(data)
    )


def _texts(said: dict[str, Any], tied: bool) -> dict[str, Any]:
    tokens, kinds = (said[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type"))
    listed = list(enumerate(zip(tokens, kinds, strict=True)))
    control = {token: place for place, (token, kind) in listed if kind == _CONTROL}
    # transformers' own reading of such a file takes <|endoftext|> for the end; a chat's is <|im_end|>.
    end, pad = control[END], control[PAD]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = {
        place: {"content": token, **flags, "special": kind == _CONTROL}
        for place, (token, kind) in listed
        if kind in (_CONTROL, _USER)
    }
    own = {name.removeprefix(f"{ARCHITECTURE}."): value for name, value in said.items()}
    heads = own["attention.head_count"]
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": _PIECES}, "behavior": "Isolated", "invert": False}
    return {
        "config.json": {
            "architectures": ["Qwen2ForCausalLM"],
            "attention_dropout": 0.0,
            "bos_token_id": pad,
            "eos_token_id": end,
            "hidden_act": "silu",
            "hidden_size": own["embedding_length"],
            "initializer_range": 0.02,
            "intermediate_size": own["feed_forward_length"],
            "max_position_embeddings": own["context_length"],
            "max_window_layers": own["block_count"],
            "model_type": "qwen2",
            "num_attention_heads": heads,
            "num_hidden_layers": own["block_count"],
            "num_key_value_heads": own["attention.head_count_kv"],
            "pad_token_id": pad,
            "rms_norm_eps": _shortest(own["attention.layer_norm_rms_epsilon"]),
            "rope_scaling": None,
            # In its old place: 4.49 would read 10,000 where newer releases write it.
            "rope_theta": _shortest(own["rope.freq_base"]),
            "sliding_window": None,
            "tie_word_embeddings": tied,
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "use_sliding_window": False,
            "vocab_size": len(tokens),
        },
        # Both tokens stop an answer; nothing filters or reweighs what is sampled (D23).
        "generation_config.json": {"bos_token_id": pad, "eos_token_id": [end, pad], "pad_token_id": pad},
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": place, **token} for place, token in added.items()],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes_only]},
            "post_processor": bytes_only,
            "decoder": bytes_only,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": "",
                "end_of_word_suffix": "",
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {token: place for place, (token, kind) in listed if kind == _NORMAL},
                "merges": said["tokenizer.ggml.merges"],
            },
        },
        "tokenizer_config.json": {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": {str(place): token for place, token in added.items()},
            "bos_token": None,
            "chat_template": said["tokenizer.chat_template"],
            "clean_up_tokenization_spaces": False,
            "eos_token": END,
            "errors": "replace",
            "model_max_length": own["context_length"],
            "pad_token": PAD,
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
        "special_tokens_map.json": {"eos_token": END, "pad_token": PAD},
    }


def _shortest(value: float) -> float:
    """The shortest number that is this float32: 1e-06 instead of 9.999999974752427e-07."""
    return float(str(np.float32(value)))


# Weights written one by one into a safetensors file, rounded to bfloat16: memory for a slice at a time.

_ROWS = 4096


def convert(path: Path, out: Path, progress: Progress) -> None:
    """Write config, generation settings, tokenizer and bfloat16 weights of a GGUF file into a directory.

    The library takes what a file claims, so it reads in a confined child, and what was made is tried as any
    model directory of somebody else's. Raises ModelFileError for another architecture, another tokenizer, and
    a damaged file.
    """
    # It maps the file into its memory; half a million tokens and merges take seconds.
    confined = foreign.Confined(
        partial(_read, path), foreign.Budget(seconds=120, memory=(4 << 30) + path.stat().st_size)
    )
    try:
        texts, stored = confined()
    except foreign.ConfinedError as error:
        raise ModelFileError(
            f"{path} is not a readable GGUF file ({error.place}: {one_line(error.what, 160)}): it is "
            "damaged or unfinished; get it again"
        ) from error
    finally:
        confined.close()
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    _write_weights(path, out / "model.safetensors", [StoredTensor(*each) for each in stored], progress)
    try:
        foreign.try_model(out)
        foreign.ForeignTokenizer(out)
    except ModelFileError as error:
        raise ModelFileError(f"{path} cannot be turned into a model ({error})") from error


def _write_weights(path: Path, into: Path, stored: Sequence[StoredTensor], progress: Progress) -> None:
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    size = 0
    for tensor in stored:
        end = size + 2 * prod(tensor.shape)
        table[tensor.name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": [size, end]}
        size = end
    refuse_little_room(into.parent, size)
    header = json.dumps(table, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    data = np.memmap(path, mode="r")
    with into.open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        for done, tensor in enumerate(stored):
            progress.update("convert weights", done, len(stored), "tensors")
            for row in range(0, tensor.rows, _ROWS):
                count = min(_ROWS, tensor.rows - row)
                start = tensor.start + row * tensor.row_bytes
                block = data[start : start + count * tensor.row_bytes].reshape(count, -1)
                with np.errstate(all="ignore"):  # what is no number is found when the model is tried
                    values = dequantize(block, gguf.GGMLQuantizationType(tensor.kind))
                rounded = torch.from_numpy(np.array(values)).bfloat16()
                stream.write(rounded.view(torch.int16).numpy().tobytes())
    progress.update("convert weights", len(stored), len(stored), "tensors")

"""A model from a GGUF file: its parts, weights and tokens, each checked."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import gguf
import numpy as np
from gguf.quants import dequantize
from numpy.typing import NDArray
from tokenizers import Tokenizer

from search_to_signal.base.errors import ModelFileError
from search_to_signal.base.progress import Progress, one_line
from search_to_signal.models.confined import Answer, At, Confined, ConfinedError
from search_to_signal.models.fetching.known import KnownModel
from search_to_signal.models.fetching.safetensors import (
    ModelOrigin,
    Reading,
    refuse_little_room,
    remove_cached,
    total_size,
)
from search_to_signal.models.files import MOST_POSITIONS

# The bytes of a GGUF file, from one file or from its parts, joined in the order of their numbers.

MAGIC = b"GGUF"
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
    whole = [path for path in _files(given) if path.suffix == ".gguf" and _begins(path)]
    if len(whole) > 1:
        raise ModelFileError(
            f"{given} holds {len(whole)} GGUF files, such as {whole[0].name}: name one; parts that are GGUF "
            "files themselves are made one by llama.cpp's llama-gguf-split --merge"
        )
    return whole or _in_order(given, _series(given))


def _files(directory: Path) -> list[Path]:
    def shown() -> Iterator[Path]:
        for path in directory.rglob("*"):
            names = path.relative_to(directory).parts
            if not any(name.startswith((".", "__pycache__")) for name in names):
                yield path

    paths = list(islice(shown(), _MOST_ENTRIES + 1))
    if len(paths) > _MOST_ENTRIES:
        raise ModelFileError(f"{directory} holds more than {_MOST_ENTRIES} files: give the model's alone")
    return sorted(path for path in paths if path.is_file())


def _begins(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _series(directory: Path) -> list[tuple[int, Path]]:
    series: dict[tuple[str, str], list[tuple[int, Path]]] = defaultdict(list)
    for path in _files(directory):
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
    return sorted(next(iter(series.values())))


def _in_order(directory: Path, numbered: Sequence[tuple[int, Path]]) -> list[Path]:
    numbers = [number for number, _ in numbered]
    for (number, path), (following, double) in pairwise(numbered):
        if number == following:
            raise ModelFileError(f"{path} and {double} are both part {number}: leave the parts of one file")
    first = min(numbers[0], 1)
    if missing := sorted(set(range(first, numbers[-1])) - set(numbers)):
        raise ModelFileError(f"{directory} lacks {_named(missing)} of {numbers[-1]}: get what is missing")
    return [path for _, path in numbered]


def _named(numbers: Iterable[int]) -> str:
    listed = [str(number) for number in numbers]
    more = f" and {len(listed) - 5} more" if listed[5:] else ""
    return f"part{'s' if listed[1:] else ''} {', '.join(listed[:5])}{more}"


# A GGUF file of a Qwen2 model, read through the library gguf: settings, tokens and weights by row.

ARCHITECTURE = "qwen2"
# Tokens, their kinds and merges are the longest lists there are; a damaged length would be read for hours.
_MOST_ITEMS = 1 << 21
_MOST_FIELDS = _MOST_TENSORS = 1 << 16
_ROWS = 4096
_Item = TypeVar("_Item", str, int)
# What the library raises for bytes that make no sense.
_UNREADABLE = (
    *(ValueError, LookupError, TypeError, ArithmeticError, AttributeError, AssertionError),
    *(OSError, MemoryError, RecursionError, NotImplementedError),
)


class _Bounded(gguf.GGUFReader):
    """The library's reader; it takes what a damaged file claims, so lengths and places are checked here."""

    _items = 0

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
        if int(offset) + np.dtype(dtype).itemsize * int(count) > len(self.data):
            raise ValueError("it ends too early")
        return super()._get(int(offset), dtype, count, override_order)

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        if raw_type == gguf.GGUFValueType.ARRAY:
            if self._get(orig_offs, np.uint32)[0] == gguf.GGUFValueType.ARRAY:
                raise ValueError("a list in it holds lists")
            self._items += int(self._get(orig_offs + 4, np.uint64)[0])
            if self._items > _MOST_ITEMS:
                raise ValueError("a list in it is too long, or all of them together")
        return super()._get_field_parts(orig_offs, raw_type)

    def _build_fields(self, offs: int, count: int) -> int:
        if count > _MOST_FIELDS:
            raise ValueError("it claims too many settings")
        built: int = super()._build_fields(offs, count)
        return built

    def _build_tensor_info(self, offs: int, count: int) -> Any:
        if count > _MOST_TENSORS:
            raise ValueError("it claims too many tensors")
        return super()._build_tensor_info(offs, count)

    def _build_tensors(self, start_offs: int, fields: Any) -> None:
        super()._build_tensors(start_offs, fields)
        ends = 0
        # What lies in one place would become many times as much.
        for tensor in sorted(self.tensors, key=lambda tensor: tensor.data_offset):
            if tensor.data_offset < ends:
                raise ValueError(f"{one_line(tensor.name, 80)} lies where another tensor does")
            ends = tensor.data_offset + int(tensor.n_bytes)

    def _push_field(self, field: Any, skip_sum: bool = False) -> Any:
        if field.name in self.fields:
            raise ValueError(f"it says {one_line(field.name, 80)} twice")
        return super()._push_field(field, skip_sum)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever the library raises for this file is a ModelFileError of one line."""
    try:
        # numpy would warn of what is reported below.
        with np.errstate(all="ignore"):
            yield
    except _UNREADABLE as error:
        message = one_line(str(error), 200) or type(error).__name__
        raise ModelFileError(
            f"{path} is no GGUF file that can be read ({message}): it is damaged or unfinished; get it again"
        ) from error


class GgufModel:
    """An open GGUF file; raises ModelFileError where it is damaged or of another architecture."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path):
            if _magic(path) != MAGIC:
                raise ValueError("it does not begin with GGUF")
            self._reader = _Bounded(path)
            self.tensors = {str(tensor.name): tensor for tensor in self._reader.tensors}
        architecture = one_line(str(self.setting("general.architecture", "nothing")), 80)
        if architecture != ARCHITECTURE:
            raise ModelFileError(
                f"{path} holds a model of architecture {architecture!r}: only {ARCHITECTURE!r} can be "
                "turned into a model directory; give the distributor's safetensors files instead"
            )

    def setting(self, name: str, default: Any = None) -> Any:
        """A value of the file's header: a text, a number, or a list of them; raises where it is missing."""
        field = self._reader.fields.get(name)
        if field is None:
            if default is None:
                raise ModelFileError(f"{self.path} says nothing of {name}: give a whole GGUF file of a model")
            return default
        with reading(self.path):
            values = [_value(field.parts[place], field.types[-1]) for place in field.data]
            return values if field.types[0] == gguf.GGUFValueType.ARRAY else values[0]

    def words(self, name: str) -> list[str]:
        """A setting that is a list of texts; raises where it is something else."""
        return self._list(name, str)

    def numbers(self, name: str) -> list[int]:
        """A setting that is a list of whole numbers; raises where it is something else."""
        return self._list(name, int)

    def text(self, name: str) -> str:
        """A setting that is one text; raises where it is something else."""
        value = self.setting(name)
        if not isinstance(value, str):
            raise self._unexpected(name)
        return value

    def _list(self, name: str, kind: type[_Item]) -> list[_Item]:
        value = self.setting(name)
        if not isinstance(value, list) or not all(type(item) is kind for item in value):
            raise self._unexpected(name)
        return value

    def _unexpected(self, name: str) -> ModelFileError:
        return ModelFileError(f"{self.path}: {name} is of another kind than it should be; get the file again")

    def rows(self, name: str) -> Iterator[NDArray[np.float32]]:
        """A tensor's values as float32, some rows at a time; a vector is one row.

        Raises ModelFileError for values that are not finite.
        """
        tensor = self.tensors[name]
        data = tensor.data if tensor.data.ndim > 1 else tensor.data[None]
        for start in range(0, len(data), _ROWS):
            with reading(self.path):
                values = dequantize(data[start : start + _ROWS], tensor.tensor_type)
            if not np.isfinite(values).all():
                raise ModelFileError(f"{self.path}: {name} holds what is no number; get the file again")
            yield values


def _magic(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(len(MAGIC))


def _value(part: NDArray[Any], kind: Any) -> Any:
    return bytes(part).decode() if kind == gguf.GGUFValueType.STRING else part[0].item()


# The tokenizer of a GGUF file of a Qwen2 model, in the form that transformers reads.

PAD, END = "<|endoftext|>", "<|im_end|>"
# Kinds of tokens in a GGUF file.
_NORMAL, _CONTROL, _USER = 1, 3, 4
# How Qwen2 cuts text before byte pairs are merged; a GGUF file names it, "qwen2", and does not spell it out.
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class TokenVocabulary(NamedTuple):
    """Tokens and their kinds by id, the merges in order, and the tokens that end and fill."""

    tokens: list[str]
    kinds: list[int]
    merges: list[str]
    end: int
    pad: int

    def added(self) -> list[dict[str, Any]]:
        """The tokens that are no piece of text; those that only fill up the table are none."""
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        return [
            {"id": place, "content": token, **flags, "special": kind == _CONTROL}
            for place, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if kind in (_CONTROL, _USER)
        ]

    def pieces(self) -> dict[str, int]:
        """The pieces of text by id."""
        return {
            token: place
            for place, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if kind == _NORMAL
        }


def read_vocabulary(model: GgufModel) -> TokenVocabulary:
    """The vocabulary of a file; raises ModelFileError for another tokenizer or lists that do not fit."""
    kind = (model.setting("tokenizer.ggml.model"), model.setting("tokenizer.ggml.pre", "no name"))
    if kind != ("gpt2", "qwen2"):
        other = one_line(" ".join(map(str, kind)), 80)
        raise ModelFileError(f"{model.path} has the tokenizer {other}, not Qwen2's")
    tokens, merges = (model.words(f"tokenizer.ggml.{name}") for name in ("tokens", "merges"))
    kinds = model.numbers("tokenizer.ggml.token_type")
    control = {token: place for place, token in enumerate(tokens) if kinds[place : place + 1] == [_CONTROL]}
    # transformers' own reading of such a file takes <|endoftext|> for the end; a chat's is <|im_end|>.
    if len(tokens) != len(kinds) or not {END, PAD} <= control.keys():
        raise ModelFileError(f"{model.path} lacks the tokens {END} and {PAD}, or their kinds; get it again")
    return TokenVocabulary(tokens, kinds, merges, control[END], control[PAD])


def write_tokenizer(out: Path, vocabulary: TokenVocabulary, model: GgufModel) -> None:
    """Write tokenizer.json and its settings; raises ModelFileError where the lists make no tokenizer."""
    text = json.dumps(_tokenizer(vocabulary), indent=2, ensure_ascii=False)
    confined = Confined(lambda at: _made(text, at))
    try:
        confined()
    except ConfinedError as error:
        said = f"{error.place} make no tokenizer ({one_line(error.what, 160)})"
        raise ModelFileError(f"{model.path}: {said}; get it again") from error
    finally:
        confined.close()
    (out / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
    settings = _settings(
        vocabulary, model.text("tokenizer.chat_template"), model.setting("qwen2.context_length")
    )
    named = {name: settings[name] for name in ("eos_token", "pad_token")}
    for name, value in (("tokenizer_config.json", settings), ("special_tokens_map.json", named)):
        (out / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _made(text: str, at: At) -> Answer:
    at("its tokens")
    Tokenizer.from_str(text)
    return bool


def _tokenizer(vocabulary: TokenVocabulary) -> dict[str, Any]:
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": _PIECES}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": vocabulary.added(),
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
            "vocab": vocabulary.pieces(),
            "merges": vocabulary.merges,
        },
    }


def _settings(vocabulary: TokenVocabulary, template: str, context: int) -> dict[str, Any]:
    added = {str(token.pop("id")): token for token in vocabulary.added()}
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "bos_token": None,
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "errors": "replace",
        "model_max_length": context,
        "pad_token": PAD,
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


# Weights written one by one into a safetensors file, rounded to bfloat16: memory for a slice at a time.

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


# A GGUF file as a model directory of transformers: weights, configuration, tokenizer.


def convert(path: Path, out: Path, progress: Progress) -> None:
    """Write config, generation settings, tokenizer and bfloat16 weights of a GGUF file into a directory.

    Raises ModelFileError for another architecture, another tokenizer, and a damaged file.
    """
    model = GgufModel(path)
    vocabulary = read_vocabulary(model)
    sizes = sizes_of(model, len(vocabulary.tokens))
    _write(out / "config.json", _config(model, sizes, vocabulary))
    _write(out / "generation_config.json", _generation(vocabulary))
    write_tokenizer(out, vocabulary, model)
    write_weights(out / "model.safetensors", model, sizes, progress)


def _number(model: GgufModel, name: str, most: int = (1 << 31) - 1) -> int:
    value = model.setting(f"{ARCHITECTURE}.{name}")
    if type(value) is not int or not 0 < value <= most:
        shown = one_line(repr(value), 60)
        raise ModelFileError(f"{model.path}: {name} is {shown}, no size up to {most:,}; get the file again")
    return value


def _real(model: GgufModel, name: str) -> float:
    value = model.setting(f"{ARCHITECTURE}.{name}")
    if not isinstance(value, int | float) or not 0 < value < 1e12:
        shown = one_line(repr(value), 60)
        raise ModelFileError(f"{model.path}: {name} is {shown}, not a number above 0; get the file again")
    # The shortest number that is this float32: 1e-06 instead of 9.999999974752427e-07.
    return float(str(np.float32(value)))


def sizes_of(model: GgufModel, vocabulary: int) -> Sizes:
    """The sizes that the settings of a file claim; raises ModelFileError for those of no model."""
    names = ("block_count", "embedding_length", "feed_forward_length")
    layers, hidden, inner = (_number(model, name) for name in names)
    heads, key_heads = (_number(model, f"attention.head_count{end}") for end in ("", "_kv"))
    if hidden % heads or heads % key_heads:
        raise ModelFileError(
            f"{model.path}: {heads} and {key_heads} heads do not divide {hidden}; get the file again"
        )
    return Sizes(layers, hidden, inner, heads, key_heads, vocabulary)


def _config(model: GgufModel, sizes: Sizes, vocabulary: TokenVocabulary) -> dict[str, Any]:
    # ``rope_theta`` in its old place: 4.49 would read 10,000 where newer releases write it.
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": vocabulary.pad,
        "eos_token_id": vocabulary.end,
        "hidden_act": "silu",
        "hidden_size": sizes.hidden,
        "initializer_range": 0.02,
        "intermediate_size": sizes.inner,
        "max_position_embeddings": _number(model, "context_length", MOST_POSITIONS),
        "max_window_layers": sizes.layers,
        "model_type": "qwen2",
        "num_attention_heads": sizes.heads,
        "num_hidden_layers": sizes.layers,
        "num_key_value_heads": sizes.key_heads,
        "pad_token_id": vocabulary.pad,
        "rms_norm_eps": _real(model, "attention.layer_norm_rms_epsilon"),
        "rope_scaling": None,
        "rope_theta": _real(model, "rope.freq_base"),
        "sliding_window": None,
        "tie_word_embeddings": HEAD not in model.tensors,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": sizes.vocabulary,
    }


def _generation(vocabulary: TokenVocabulary) -> dict[str, Any]:
    """Both tokens stop an answer; nothing filters or reweighs what is sampled (D23)."""
    ends = list(dict.fromkeys((vocabulary.end, vocabulary.pad)))
    return {"bos_token_id": vocabulary.pad, "eos_token_id": ends, "pad_token_id": vocabulary.pad}


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# A model directory from a GGUF file or its parts, when the bytes are those that were published.

_JOINED = ".joined.gguf"


class GgufSource(NamedTuple):
    """The files that a model's GGUF file consists of, in order, and what is known of it, or its SHA-256.

    A ``cached`` file is removed where it is damaged, or the next attempt would find it again.
    """

    name: str
    files: list[Path]
    known: KnownModel | None
    sha256: str | None = None
    cached: bool = False

    def write(self, out: Path, progress: Progress) -> ModelOrigin:
        """Check the bytes, then convert them; raises ModelFileError for others, and for no model."""
        self._refuse_size()
        joined = out / _JOINED if len(self.files) > 1 else None
        sha256 = self._read(joined, progress)
        self._refuse_bytes(sha256)
        convert(joined or self.files[0], out, progress)
        if joined:
            joined.unlink()
        published = (self.known and self.known.gguf) or self.files[0].name
        revision = self.known.revision if self.known else None
        return ModelOrigin(self.name, self.known, {published: sha256}, revision, converted=True)

    def _read(self, joined: Path | None, progress: Progress) -> str:
        size = total_size(self.files)
        reading = Reading(f"check {self.name}", size, progress)
        if joined is None:
            return reading.copy(self.files)
        refuse_little_room(joined.parent, size)
        with joined.open("wb") as stream:
            return reading.copy(self.files, stream)

    def _refuse_size(self) -> None:
        expected = self.known and self.known.size
        size = total_size(self.files)
        if expected and size != expected:
            what = f"the {len(self.files)} parts hold" if self.files[1:] else f"{self.files[0]} holds"
            raise ModelFileError(
                f"{what} {size:,} bytes, {self.name} has {expected:,}: "
                f"{'a part is missing or cut' if size < expected else 'this is another file'}; get it again"
            )

    def _refuse_bytes(self, sha256: str) -> None:
        expected = self.known.files[self.known.gguf] if self.known and self.known.gguf else self.sha256
        if sha256 != expected:
            if self.cached:
                remove_cached(self.files[0])
            raise ModelFileError(
                f"the file given for {self.name} has SHA-256 {sha256}, not {expected}: it is damaged, or "
                "another; get it again"
            )

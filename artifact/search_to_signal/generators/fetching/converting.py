"""A GGUF file as a model directory of transformers: weights, configuration, tokenizer."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from search_to_signal.errors import ModelFileError
from search_to_signal.generators.fetching.gguf_file import ARCHITECTURE, GgufModel
from search_to_signal.generators.fetching.tokens import TokenVocabulary, read_vocabulary, write_tokenizer
from search_to_signal.generators.fetching.weights import HEAD, Sizes, write_weights
from search_to_signal.generators.model_files import MOST_POSITIONS
from search_to_signal.progress import Progress, one_line


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

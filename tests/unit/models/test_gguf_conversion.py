"""A GGUF file becomes a model directory whose weights, tokens and settings are the file's."""

import json
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file
from tests.gguf_blocks import VALUES, row_of
from tests.gguf_files import HIDDEN, TEMPLATE, Tensor, quantized, tensors, tokens, write_gguf

from search_to_signal.base.errors import ModelFileError
from search_to_signal.base.progress import PlainProgress
from search_to_signal.models.base import encoded, end_ids
from search_to_signal.models.gguf import convert
from search_to_signal.models.local import load_model, load_tokenizer

pytestmark = pytest.mark.slow  # the tokenizer is tried in a forked process


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the small file becomes."""
    out = tmp_path_factory.mktemp("converted")
    convert(write_gguf(out.with_suffix(".gguf")), out, PlainProgress())
    return out


NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def theirs(name: str) -> str:
    """The name that transformers has for a tensor of the file."""
    *layer, part, kind = name.removeprefix("blk.").split(".")
    return ".".join([*(["model.layers", *layer] if layer else []), NAMES[part], kind])


def test_every_weight_is_the_files_to_the_bit(converted: Path) -> None:
    """Every kind of block, read value by value from its definition, gives the stored bfloat16."""
    stored = load_file(converted / "model.safetensors")
    assert set(stored) == {theirs(name) for name in tensors()}
    assert {tensor.kind for tensor in tensors().values()} == {*VALUES, Kind.F32}
    for name, tensor in tensors().items():
        weight = stored[theirs(name)]
        rows = weight[None] if weight.dim() == 1 else weight
        for row in (0, 1 % len(rows), len(rows) - 1):
            assert torch.equal(rows[row].view(torch.int16), row_of(tensor, row).view(torch.int16)), name


def test_the_model_and_its_tokenizer_load(converted: Path) -> None:
    """Rotary base, a head of its own, and both ends of an answer arrive in the pinned transformers."""
    model, tokenizer = load_model(converted), load_tokenizer(converted)
    assert model.config.rope_theta == 1_000_000.0
    assert model.config.rms_norm_eps == 1e-6
    assert model.lm_head.weight.data_ptr() != model.model.embed_tokens.weight.data_ptr()
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokens()[model.config.eos_token_id] == "<|im_end|>"
    ends = end_ids(tokenizer, model.generation_config)
    assert {tokens()[end] for end in ends} == {"<|endoftext|>", "<|im_end|>"}
    _, ids = encoded(tokenizer, [{"role": "user", "content": "hello wörld"}])
    assert torch.isfinite(model(torch.tensor([ids])).logits).all()


def test_text_is_cut_and_merged_as_the_file_says(converted: Path) -> None:
    """Merges apply in order and within pieces; every byte has a token, and special tokens are whole."""
    tokenizer = load_tokenizer(converted)

    def pieces(text: str) -> list[str]:
        return [tokens()[place] for place in tokenizer(text)["input_ids"]]

    assert pieces("hello world") == ["hell", "o", "Ġw", "o", "r", "l", "d"]
    assert pieces("12\n\n") == ["1", "2", "Ċ", "Ċ"]
    assert pieces("<|im_start|>he<|im_end|>") == ["<|im_start|>", "he", "<|im_end|>"]
    # A combining accent is composed first, then two bytes.
    assert pieces("e\u0301") == ["Ã", "©"]
    text = "ünïcode\ttabs  and 中文 🙂"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.chat_template == TEMPLATE


def test_a_file_without_a_head_shares_the_table_of_tokens(tmp_path: Path) -> None:
    """Then head and table are one."""
    path = write_gguf(tmp_path / "shared.gguf", changed={"output.weight": None})
    (tmp_path / "out").mkdir()
    convert(path, tmp_path / "out", PlainProgress())
    model = load_model(tmp_path / "out")
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


NOT_FINITE = Tensor(Kind.F32, np.full(HIDDEN, np.nan, dtype=np.float32))
OTHER_SHAPE = quantized(Kind.Q8_0, 32, HIDDEN, np.random.default_rng(1))
UNKNOWN = Tensor(Kind.F32, np.ones(HIDDEN, dtype=np.float32))


@pytest.mark.parametrize(
    ("named", "changed"),
    [
        ("blk.1.attn_q.bias", None),
        ("blk.0.attn_norm.weight", NOT_FINITE),
        ("blk.0.ffn_up.weight", OTHER_SHAPE),
        ("blk.0.attn_rot.weight", UNKNOWN),
    ],
)
def test_tensors_that_make_no_model_are_refused(tmp_path: Path, named: str, changed: Tensor | None) -> None:
    """A tensor that is missing, no number, of another shape or unknown."""
    path = write_gguf(tmp_path / "odd.gguf", changed={named: changed})
    with pytest.raises(ModelFileError):
        convert(path, tmp_path, PlainProgress())


def damages(data: bytes, changes: int = 8) -> Iterator[tuple[str, bytes]]:
    """The file cut off, with numbers beyond all bounds, and with a bit or a byte of its header changed."""
    header = data.index(b"token_embd.weight") + 2000
    stream = np.random.default_rng(7)
    for size in [0, 3, 4, 8, 23, 24, 30, *stream.integers(24, len(data), 4).tolist()]:
        yield f"cut to {size}", data[:size]
    # Tensors, settings, the length of the first name, layers; then the length of the list of tokens.
    layers = data.index(b"qwen2.block_count") + 17 + 4
    places = [8, 16, 24, layers, data.index(b"tokenizer.ggml.tokens") + 21 + 8]
    for place in places:
        for number in (1 << 18, (1 << 64) - 1):
            yield f"{number} at {place}", data[:place] + struct.pack("<Q", number) + data[place + 8 :]
    for place in stream.integers(4, header, changes).tolist():
        mask = int(stream.choice([1 << place % 8, 255]))
        yield f"{place} ^ {mask}", data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]


def test_a_damaged_header_is_an_error_of_ours(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Whatever is cut or changed in it: a model, where it does not matter, or ModelFileError, soon."""
    data = write_gguf(tmp_path / "whole.gguf").read_bytes()
    refused = []
    for what, damaged in damages(data):
        (tmp_path / "damaged.gguf").write_bytes(damaged)
        with suppress(ModelFileError):
            convert(tmp_path / "damaged.gguf", tmp_path, PlainProgress())
            continue
        refused.append(what)
    assert {what for what, _ in damages(data) if what.startswith("cut")} <= set(refused)
    assert len([what for what in refused if " at " in what]) == 10
    assert not recwarn.list


def test_another_architecture_is_named(tmp_path: Path) -> None:
    """Which one it is, and what can be given instead."""
    path = write_gguf(tmp_path / "llama.gguf", "llama")
    with pytest.raises(ModelFileError, match=r"architecture 'llama': only 'qwen2'"):
        convert(path, tmp_path, PlainProgress())


def test_settings_are_plain(converted: Path) -> None:
    """The rotary base stands where the pinned transformers reads it, and nothing filters what is sampled."""
    config = json.loads((converted / "config.json").read_text())
    assert config["rope_theta"] == 1_000_000.0
    assert "rope_parameters" not in config
    settings = json.loads((converted / "generation_config.json").read_text())
    assert not {"top_k", "top_p", "repetition_penalty", "temperature"} & settings.keys()

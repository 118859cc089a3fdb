"""The tokenizer of a GGUF file of a Qwen2 model, in the form that transformers reads."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from search_to_signal.errors import ModelFileError
from search_to_signal.generators.confined import Answer, At, Confined, ConfinedError
from search_to_signal.generators.fetching.gguf_file import GgufModel
from search_to_signal.progress import one_line

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

"""What the locked transformers and today's call or do differently; nothing else asks for its version."""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoTokenizer, DynamicCache, LlamaModel, PreTrainedTokenizerFast

OLDER = int(transformers.__version__.partition(".")[0]) < 5
_CACHE = "cache" if "cache" in signature(LlamaModel.forward).parameters else "past_key_values"
_CAUSAL = "causal_sdpa"


def in_precision(dtype: torch.dtype) -> dict[str, torch.dtype]:
    """The argument by which a model is loaded in a precision."""
    return {"torch_dtype" if OLDER else "dtype": dtype}


def new_cache(model: Any) -> DynamicCache:
    """An empty cache for a model, adapted or not; some layers of newer families keep a window only."""
    return DynamicCache() if OLDER else DynamicCache(config=model.config)


def read(model: Any, ids: torch.Tensor, cache: DynamicCache, **more: Any) -> Any:
    """What a model makes of the tokens ``ids`` (rows, places) behind those in the cache, which it adds to."""
    return model(input_ids=ids, use_cache=True, **{_CACHE: cache}, **more)


def rotation(config: Any) -> str:
    """The type of a model's rotary embedding; newer families may have one for each type of layer."""
    facts = getattr(config, "rope_scaling" if OLDER else "rope_parameters", None) or {}
    by_layer = any(isinstance(fact, dict) for fact in facts.values())
    return "by layer" if by_layer else str(facts.get("rope_type", "default"))


def keys_and_values(cache: DynamicCache) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values (rows, heads, places, width) of every layer."""
    return [(keys, values) for keys, values, *_ in cache]


def take_back(cache: DynamicCache, length: int) -> None:
    """Leave the first ``length`` places in a cache."""
    if more := cache.get_seq_length() - length:
        cache.crop(-more)


def load_tokenizer_files(directory: Path) -> Any:
    """The tokenizer of a directory, as its files say.

    Newer releases let the model's type decide how text is split and ignore tokenizer.json without a word.
    """
    own = not OLDER and (directory / "tokenizer.json").is_file()
    kind = PreTrainedTokenizerFast if own else AutoTokenizer
    return kind.from_pretrained(directory, local_files_only=True, trust_remote_code=False)


@contextmanager
def unmasked(config: Any) -> Iterator[None]:
    """Within it a model reads whole sequences, or into an empty cache, without a mask.

    Newer releases build one during capture, with which there is no flash attention. Each query sees the
    places up to its own all the same.
    """
    if OLDER:
        yield
        return
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    # Known as attention and not as a mask, so that none is made.
    ALL_ATTENTION_FUNCTIONS.register(_CAUSAL, sdpa_attention_forward)
    before, config._attn_implementation = config._attn_implementation, _CAUSAL
    try:
        yield
    finally:
        config._attn_implementation = before

"""Next-token logits of one prompt's completions, step by step, with a key-value cache."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from transformers import DynamicCache

from search_to_signal.generators.cpu_decoder import CpuDecoder, can_decode


class Decoder(Protocol):
    """Reads a prompt once for all of its completions, then one token of each at a time.

    ``logits`` (rows, vocabulary) follow the last token that each row read; ``keep`` drops every other row.
    """

    @property
    def logits(self) -> torch.Tensor: ...
    def read(self, tokens: torch.Tensor) -> None: ...
    def keep(self, rows: Sequence[int]) -> None: ...


class CachedDecoder:
    """Any causal language model of transformers, by its own forward pass and cache, on any device."""

    def __init__(self, model: Any, prompt_ids: Sequence[int], count: int) -> None:
        self._model = model
        ids = torch.tensor([list(prompt_ids)], device=model.device)
        out = model(input_ids=ids, past_key_values=DynamicCache(), use_cache=True, logits_to_keep=1)
        self._cache = out.past_key_values
        self._cache.batch_repeat_interleave(count)
        self.logits: torch.Tensor = out.logits[:, -1].repeat(count, 1)

    def read(self, tokens: torch.Tensor) -> None:
        out = self._model(input_ids=tokens[:, None], past_key_values=self._cache, use_cache=True)
        self.logits = out.logits[:, -1]

    def keep(self, rows: Sequence[int]) -> None:
        self.logits = self.logits[rows]
        self._cache.batch_select_indices(torch.tensor(rows, device=self._model.device))


def open_decoder(model: Any, prompt_ids: Sequence[int], count: int, limit: int) -> Decoder:
    """A decoder that has read the prompt: that for CPUs where it can, or else the model's own.

    At most ``limit`` tokens are read of each of the ``count`` completions.
    """
    if can_decode(model):
        return CpuDecoder(model, prompt_ids, count, limit)
    return CachedDecoder(model, prompt_ids, count)

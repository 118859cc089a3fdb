"""A local transformers model as a generator."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from search_to_signal.errors import ModelFileError
from search_to_signal.generators.base import (
    Adapter,
    ChatPrompt,
    Completion,
    Generation,
    GenerationSettings,
    Message,
    completion_text,
    messages,
    request_seeds,
)
from search_to_signal.generators.card_sampler import CardSampler, Drawing, can_sample
from search_to_signal.generators.chat import encoded, end_ids
from search_to_signal.generators.foreign import ForeignTokenizer, refuse_no_numbers, try_model
from search_to_signal.generators.model_files import json_settings, shipped
from search_to_signal.generators.prompt_limit import cut_prompt
from search_to_signal.generators.sampling import Filters, SampledGroup, sample_group
from search_to_signal.generators.token_step import join_projections
from search_to_signal.progress import one_line

# What transformers raises for damaged or foreign files.
UNLOADABLE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    ImportError,
    RuntimeError,
    SafetensorError,
)
_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


def load_model(directory: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The causal language model of a directory on the CPU, in evaluation mode; raises ModelFileError."""
    if not (directory / "config.json").is_file():
        raise ModelFileError(f"{directory} has no config.json: add the file and its sum")
    try_model(directory)
    if "quantization_config" in json_settings(directory / "config.json"):
        raise ModelFileError(
            f"{directory / 'config.json'}: quantization_config: weights that are quantized "
            "already are not read here; give those that they were made of"
        )
    try:
        model, loading_info = AutoModelForCausalLM.from_pretrained(
            directory,
            torch_dtype=dtype,
            attn_implementation="sdpa",
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except UNLOADABLE as error:
        said = one_line(str(error), 200)
        raise ModelFileError(f"cannot load the model in {directory} ({said}): get its files again") from error
    if random := sorted(map(str, [*loading_info["missing_keys"], *loading_info["mismatched_keys"]])):
        # With a warning alone they would be drawn at random.
        raise ModelFileError(f"the model in {directory} lacks {', '.join(random[:3])}: restore its files")
    refuse_no_numbers(model.eval(), directory)
    return model


def load_tokenizer(directory: Path) -> Any:
    """The tokenizer of a directory with its chat template; raises ModelFileError.

    One that did not come with this package is tried once, and bounded in whatever it does.
    """
    if not any((directory / name).is_file() for name in _VOCABULARIES):
        raise ModelFileError(f"{directory} has no tokenizer.json: add the tokenizer's files and their sums")
    if not shipped(directory):
        return ForeignTokenizer(directory)
    try:
        return AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except UNLOADABLE as error:
        said = one_line(str(error), 200)
        raise ModelFileError(f"cannot load the tokenizer in {directory} ({said}): restore it") from error


class LocalGenerator:
    """Samples from a transformers model in this process; a ``shared`` one is also what a learner adapts."""

    def __init__(
        self, model: Any, tokenizer: Any, settings: GenerationSettings, *, shared: bool = False
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._settings = settings
        self._shared = shared
        self._sampler: CardSampler | None = None
        self._text = completion_text(tokenizer)
        self._receive: Callable[[str], None] | None = None
        if can_sample(model):
            # A learner may capture updates before the first group is sampled, where a run is resumed.
            join_projections(model)

    @property
    def pad_id(self) -> int:
        """The token that fills up a batch."""
        return int(self.tokenizer.pad_token_id)

    def base(self) -> Any:
        """The model for a learner: a copy, unless it is shared."""
        return self.model if self._shared else copy.deepcopy(self.model)

    def load_adapter(self, adapter: Adapter) -> None:
        """Sample from the base weights and the adapter's, merged."""
        adapter.merge_into(self.model)

    def stream_to(self, receive: Callable[[str], None]) -> None:
        """Hand out the text of each completion when it has ended, where the card samples."""
        self._receive = receive

    def generate(self, prompt: ChatPrompt, seed: int) -> Generation:
        """Sample one group; raises ConfigError for a prompt over its limit where such are refused."""
        return self.answer(messages(prompt), request_seeds(seed, self._settings.group_size), self._settings)

    def answer(self, chat: list[Message], seeds: Sequence[int], settings: GenerationSettings) -> Generation:
        """Sample one completion per sampling seed, whatever the group size; raises as ``generate``."""
        text, whole = encoded(self.tokenizer, chat)
        prompt_ids = cut_prompt(whole, settings)
        group = self._sample(prompt_ids, seeds, settings)
        completions = (
            Completion(ids, self._text(ids), cut)
            for ids, cut in zip(group.completion_ids, group.truncated, strict=True)
        )
        cut = len(whole) - len(prompt_ids)
        return Generation(text, tuple(prompt_ids), tuple(completions), cut)

    def _sample(
        self, prompt_ids: Sequence[int], seeds: Sequence[int], settings: GenerationSettings
    ) -> SampledGroup:
        ends = end_ids(self.tokenizer, getattr(self.model, "generation_config", None))
        filters, limit = Filters(settings.top_k, settings.top_p), settings.max_completion_tokens
        if can_sample(self.model):
            drawing = Drawing(settings.temperature, filters, ends, limit)
            return self._card_sampler(len(seeds), settings, drawing).sample(prompt_ids, seeds, self._ended)
        return sample_group(
            self.model,
            prompt_ids,
            seeds=seeds,
            max_new_tokens=limit,
            temperature=settings.temperature,
            filters=filters,
            end_ids=ends,
        )

    def _ended(self, ids: Sequence[int]) -> None:
        if self._receive is not None:
            self._receive(self._text(ids))

    def _card_sampler(self, rows: int, settings: GenerationSettings, drawing: Drawing) -> CardSampler:
        """The sampler of groups like this one, kept for the next: capturing it takes seconds."""
        room = settings.max_prompt_tokens + settings.max_completion_tokens
        kept = self._sampler
        if kept is None or (kept.rows, kept.drawing) != (rows, drawing) or kept.room < room:
            self._sampler = kept = None  # its memory first
            self._sampler = CardSampler(self.model, rows, room, drawing)
        return self._sampler  # type: ignore[return-value]

"""A local transformers model as a generator."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from search_to_signal.base.errors import ModelFileError
from search_to_signal.base.progress import one_line
from search_to_signal.models.base import (
    Adapter,
    ChatPrompt,
    Completion,
    Generation,
    GenerationSettings,
    Message,
    completion_text,
    cut_prompt,
    encoded,
    end_ids,
    messages,
    request_seeds,
)
from search_to_signal.models.card_sampler import CardSampler, StepSettings, can_sample
from search_to_signal.models.device import LESS_MEMORY, load_4bit, memory_errors, prepare_device
from search_to_signal.models.files import json_settings, shipped
from search_to_signal.models.foreign import ForeignTokenizer, refuse_no_numbers, try_model
from search_to_signal.models.releases import in_precision, load_tokenizer_files
from search_to_signal.models.sampling import Filters, SampledGroup, sample_group
from search_to_signal.models.settings import ModelLoading
from search_to_signal.models.token_step import join_projections

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
            attn_implementation="sdpa",
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **in_precision(dtype),
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
        return load_tokenizer_files(directory)
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
        self._on_card = can_sample(model)
        if self._on_card:
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
        text, whole = encoded(self.tokenizer, chat, settings.for_template)
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
        if self._on_card:
            drawing = StepSettings(settings.temperature, filters, ends, limit)
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

    def _card_sampler(self, rows: int, settings: GenerationSettings, drawing: StepSettings) -> CardSampler:
        """The sampler of groups like this one, kept for the next: capturing it takes seconds."""
        room = settings.max_prompt_tokens + settings.max_completion_tokens
        kept = self._sampler
        if kept is None or (kept.rows, kept.drawing) != (rows, drawing) or kept.room < room:
            self._sampler = kept = None  # its memory first
            self._sampler = CardSampler(self.model, rows, room, drawing)
        return self._sampler  # type: ignore[return-value]


# The weights that completions are sampled from and adapters are trained on, opened in one way everywhere.

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def open_base_model(directory: Path, loading: ModelLoading, less_memory: str = LESS_MEMORY) -> Any:
    """The causal language model of a directory, in evaluation mode, as ``[model]`` says it is loaded.

    Its output head is float32 whatever the rest is: in bfloat16 a logit of 20 is known to 0.06 alone, for the
    sampler and for the loss. Raises ConfigError without the card or library that is asked for, or where the
    card has too little memory, which says ``less_memory``: what there is to change for needing less of it.
    Raises ModelFileError for files that cannot be loaded.
    """
    if loading.device == "cpu" and loading.dtype == "float32":
        return load_model(directory)
    prepare_device(loading.device)
    with memory_errors(f"the model in {directory}", less_memory):
        if loading.quantization == "nf4":
            try_model(directory)
            model = load_4bit(directory)
        else:
            model = load_model(directory, _DTYPES[loading.dtype]).to(loading.device)
        _raise_head(model)
    return model


def open_for_reading(directory: Path, loading: ModelLoading) -> Any:
    """The model on this processor in float32, with the weights that ``loading`` rounds to: no card is needed.

    Raises ModelFileError as ``open_base_model`` does.
    """
    return open_base_model(directory, ModelLoading(dtype=loading.dtype)).float()


def _raise_head(model: Any) -> None:
    """Have the output head compute in float32; its values are those of the files."""
    head = model.get_output_embeddings()
    if head is None or model.get_input_embeddings() is head:
        raise ModelFileError(f"{type(model).__name__} has no output head of its own")
    if head.weight is model.get_input_embeddings().weight:
        # A shared table stays as it is where tokens are looked up.
        head.weight = torch.nn.Parameter(head.weight.detach().float(), requires_grad=False)
    else:
        head.float()
    head.register_forward_pre_hook(_in_float32)


def _in_float32(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return (inputs[0].float(), *inputs[1:])


def open_local(
    directory: Path,
    loading: ModelLoading,
    settings: GenerationSettings,
    less_memory: str = LESS_MEMORY,
) -> LocalGenerator:
    """A generator over a model directory; raises as ``open_base_model`` and ``load_tokenizer`` do.

    On a card the learner adapts the very weights that are sampled from: there is room for them once, and
    nothing is merged into them, because bfloat16 would round small updates away.
    """
    # First: a tokenizer that lives in a forked child would keep the memory of a model that was there before.
    tokenizer = load_tokenizer(directory)
    model = open_base_model(directory, loading, less_memory)
    return LocalGenerator(model, tokenizer, settings, shared=loading != ModelLoading())

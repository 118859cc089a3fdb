"""A local transformers model as a generator, on the processor or on a card."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from search_to_signal.base.errors import ModelFileError
from search_to_signal.base.progress import one_line
from search_to_signal.models import releases
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
from search_to_signal.models.cpu_decoder import KNOWN, causal_model, has_fitting_layers
from search_to_signal.models.device import LESS_MEMORY, load_4bit, memory_errors, prepare_device
from search_to_signal.models.files import json_settings, shipped
from search_to_signal.models.foreign import ForeignTokenizer, refuse_no_numbers, try_model
from search_to_signal.models.sampling import (
    Filters,
    SampledGroup,
    draw_in_blocks,
    sample_group,
    uniform_numbers,
)
from search_to_signal.models.settings import ModelLoading
from search_to_signal.models.token_step import (
    Factors,
    State,
    Tensor,
    Weights,
    copy_adapter,
    join_projections,
    joined_layer,
    read_tokens,
)

# Sampling on a card: a static cache, and the whole token step as one CUDA graph.
#
# A step of a small model is hundreds of kernels of microseconds each; launched one by one from Python they
# take ten times as long as they compute. Here a group's rows are sampled together to the last one's end: a
# step draws a token of every row, reads it, and leaves the logits of the next, and the processor looks only
# now and then which rows have ended. On another device the same steps run one by one, with plain tensors.

# The host looks for ends every so many steps: a look waits for the card, and steps behind the last end are in
# vain. Prompts are read in lengths of so many tokens.
_STEPS, _PROMPT = 4, 256


def can_sample(model: Any) -> bool:
    """Whether this decoder computes what this model computes, and gains by it: on a CUDA device."""
    base = causal_model(model)
    if not isinstance(base, torch.nn.Module) or base.device.type != "cuda" or not has_fitting_layers(base):
        return False
    return type(base) in KNOWN or gives_its_logits(model)


@torch.no_grad()
def gives_its_logits(model: Any) -> bool:
    """Whether tokens read one by one give the model's own logits, up to the rounding of its precision."""
    base = causal_model(model)
    ids, factors = torch.arange(5, device=base.device), list[Factors]()
    weights, state = _weights(model, 8, factors), _state(model, 1, 8)
    copy_adapter(factors)
    expected = model(input_ids=ids[None]).logits[0].float()
    apart = 0.0
    for place, token in enumerate(ids):
        state.position.fill_(place)
        read_tokens(token[None], weights, state)
        apart = max(apart, float((state.logits[0] - expected[place]).abs().max()))
    return apart <= (1e-4 if base.dtype == torch.float32 else 0.05) * float(expected.abs().max())


Receive = Callable[[Sequence[int]], object]


class StepSettings(NamedTuple):
    """How tokens are drawn: what a captured step has in it."""

    temperature: float
    filters: Filters
    ends: frozenset[int]
    limit: int


class CardSampler:
    """Samples groups of ``rows`` completions, prompt and completion at most ``room`` places together.

    It stands on the model's weights where they lie; an adapter is read anew before every group, whether there
    is one is fixed. Equal weights, prompt and seeds give equal tokens on one kind of card.
    """

    def __init__(self, model: Any, rows: int, room: int, drawing: StepSettings) -> None:
        self.drawing, self.rows, self.room = drawing, rows, room
        self._model = model
        self._factors: list[Factors] = []
        weights = _weights(model, room, self._factors)
        self._state = state = _state(model, rows, room)
        device = state.logits.device
        self._step_number = torch.zeros(1, dtype=torch.long, device=device)
        self._uniforms = torch.zeros(rows, drawing.limit, dtype=torch.float64, device=device)
        self._drawn = torch.zeros(drawing.limit, rows, dtype=torch.long, device=device)
        self._ended = torch.zeros(rows, dtype=torch.bool, device=device)
        self._ends = torch.tensor(sorted(drawing.ends), device=device)
        self._prompt = torch.zeros(1, room, dtype=torch.long, device=device)
        self._last = torch.zeros(1, dtype=torch.long, device=device)
        self._read = _reader(weights, state)
        self._prompts: dict[int, Callable[[], None]] = {}
        self._step = self._launched(self._one_step)

    @torch.no_grad()
    def sample(
        self, prompt_ids: Sequence[int], seeds: Sequence[int], receive: Receive | None = None
    ) -> SampledGroup:
        """One completion of the prompt per seed; ``receive`` takes the tokens of each one as it ends."""
        copy_adapter(self._factors)
        self._begin(prompt_ids, seeds)
        done, limit = 0, self.drawing.limit
        going = [True] * self.rows
        while done < limit and any(going):
            for _ in range(min(_STEPS, limit - done)):
                self._step()
                done += 1
            for row, ended in enumerate(self._ended.tolist()):
                if ended and going[row] and receive is not None:
                    receive(_to_end(self._drawn[:done, row].tolist(), self.drawing.ends))
                going[row] = not ended
        columns = self._drawn[:done].t().tolist()
        completions = tuple(_to_end(ids, self.drawing.ends) for ids in columns)
        return SampledGroup(completions, tuple(ids[-1] not in self.drawing.ends for ids in completions))

    def _begin(self, prompt_ids: Sequence[int], seeds: Sequence[int]) -> None:
        state, start = self._state, len(prompt_ids)
        places = min(-(-start // _PROMPT) * _PROMPT, self.room)
        self._prompt[0, :start] = torch.tensor(list(prompt_ids))
        self._last.fill_(start - 1)
        # Behind the two lines above: the place of a longer prompt's last token is beyond these places.
        if places not in self._prompts:
            self._prompts[places] = self._launched(partial(self._read_prompt, places))
        self._prompts[places]()
        self._uniforms.copy_(uniform_numbers(seeds, self.drawing.limit))
        state.position.fill_(start)
        self._step_number.zero_()
        self._ended.zero_()

    def _read_prompt(self, places: int) -> None:
        base = causal_model(self._model)
        cache = releases.new_cache(base)
        with releases.unmasked(base.config):
            hidden = releases.read(base.model, self._prompt[:, :places], cache).last_hidden_state
        self._state.logits.copy_(base.lm_head(hidden.index_select(1, self._last))[:, 0].float())
        for (keys, values), (k, v) in zip(self._state.caches, releases.keys_and_values(cache), strict=True):
            keys[:, :, :places].copy_(k)
            values[:, :, :places].copy_(v)

    def _one_step(self) -> None:
        """Draw a token of every row, and read it; its logits replace those that it was drawn from."""
        at = self._uniforms.index_select(1, self._step_number)[:, 0]
        tokens = draw_in_blocks(self._state.logits, self.drawing.temperature, self.drawing.filters, at)
        self._drawn.index_copy_(0, self._step_number, tokens[None])
        self._ended.logical_or_((tokens[:, None] == self._ends).any(dim=1))
        self._read(tokens)
        self._state.position.add_(1)
        self._step_number.add_(1)

    @torch.no_grad()
    def _launched(self, work: Callable[[], None]) -> Callable[[], None]:
        """The work, on a card as one launch; tried first, so that nothing is compiled during capture."""
        if self._state.logits.device.type != "cuda":
            return work
        with _undemanding():
            for _ in range(2):
                self._state.position.zero_()
                self._step_number.zero_()
                work()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
            with torch.cuda.graph(graph):
                work()
        replay: Callable[[], None] = graph.replay
        return replay


def _weights(model: Any, room: int, factors: list[Factors]) -> Weights:
    base = causal_model(model)
    embedding, dtype = base.model.embed_tokens.weight, base.dtype
    places = torch.arange(room, device=base.device)
    probe = torch.zeros(1, 1, 1, device=base.device, dtype=dtype)
    cos, sin = (table[0].contiguous() for table in base.model.rotary_emb(probe, places[None]))
    layers = [joined_layer(layer, factors) for layer in base.model.layers]
    head = base.lm_head.weight
    # The head is float32 for the learner; its values are those of the model's own precision.
    head = embedding if head.data_ptr() == embedding.data_ptr() else head.detach().to(dtype)
    return Weights(
        embedding.detach(),
        layers,
        base.model.norm.weight.detach(),
        head.detach(),
        cos,
        sin,
        base.config.rms_norm_eps,
        base.config.num_attention_heads,
    )


def _state(model: Any, rows: int, room: int) -> State:
    base = causal_model(model)
    config, device, dtype = base.config, base.device, base.dtype
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    sizes = (rows, config.num_key_value_heads, room, width)
    caches = [
        (torch.zeros(sizes, device=device, dtype=dtype), torch.zeros(sizes, device=device, dtype=dtype))
        for _ in base.model.layers
    ]
    position = torch.zeros(1, dtype=torch.long, device=device)
    return State(caches, position, torch.zeros(rows, len(base.lm_head.weight), device=device))


def _reader(weights: Weights, state: State) -> Callable[[Tensor], None]:
    """What reads a token of every row: kernels on a card where they fit the model, else plain tensors."""
    if state.logits.is_cuda:
        from search_to_signal.models.card_step import CardStep, can_step

        if can_step(weights, len(state.logits)):
            return CardStep(weights, state)
    return partial(read_tokens, weights=weights, state=state)


@contextmanager
def _undemanding() -> Iterator[None]:
    """Let a step be captured: torch would refuse or replace calls that could add up in any order.

    None of its calls does: writes go to one place each, and sums run along rows.
    """
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(True)


def _to_end(ids: Sequence[int], ends: frozenset[int]) -> tuple[int, ...]:
    length = next((number for number, token in enumerate(ids, start=1) if token in ends), len(ids))
    return tuple(ids[:length])


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
            **releases.in_precision(dtype),
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
        return releases.load_tokenizer_files(directory)
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
    directory: Path, loading: ModelLoading, settings: GenerationSettings, less_memory: str = LESS_MEMORY
) -> LocalGenerator:
    """A generator over a model directory; raises as ``open_base_model`` and ``load_tokenizer`` do.

    On a card the learner adapts the very weights that are sampled from: there is room for them once, and
    nothing is merged into them, because bfloat16 would round small updates away.
    """
    # First: a tokenizer that lives in a forked child would keep the memory of a model that was there before.
    tokenizer = load_tokenizer(directory)
    model = open_base_model(directory, loading, less_memory)
    return LocalGenerator(model, tokenizer, settings, shared=loading != ModelLoading())

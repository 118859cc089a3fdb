"""Sampling with temperature alone, unless asked (D23); every completion has a random stream of its own.

And how likely logged tokens are under a model, its adapters, and the ways in which tokens may be drawn.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.nn import functional
from transformers import DynamicCache

from search_to_signal.base.errors import ModelFileError
from search_to_signal.base.seeding import stream
from search_to_signal.models.cpu_decoder import CpuDecoder, can_decode
from search_to_signal.models.files import json_settings
from search_to_signal.models.releases import new_cache, read, take_back
from search_to_signal.models.settings import GenerationSettings


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
        self._cache = new_cache(model)
        out = read(model, ids, self._cache, logits_to_keep=1)
        self._cache.batch_repeat_interleave(count)
        self.logits: torch.Tensor = out.logits[:, -1].repeat(count, 1)

    def read(self, tokens: torch.Tensor) -> None:
        out = read(self._model, tokens[:, None], self._cache)
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


@dataclass(frozen=True)
class SampledGroup:
    """Token ids of G completions of one prompt; the end token is included where it was drawn."""

    completion_ids: tuple[tuple[int, ...], ...]
    truncated: tuple[bool, ...]


class Filters(NamedTuple):
    """Keep the ``top_k`` likeliest tokens, and of these the fewest whose shares reach ``top_p``."""

    top_k: int | None = None
    top_p: float = 1.0

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits (rows, vocabulary) with minus infinity for what is left out; the likeliest always stays."""
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k, dim=-1).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        if self.top_p < 1.0:
            ordered, places = logits.sort(dim=-1, descending=True, stable=True)
            before = torch.softmax(ordered, dim=-1).cumsum(dim=-1).roll(1, dims=-1)
            before[:, 0] = 0.0
            tail = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, places, before >= self.top_p)
            logits = logits.masked_fill(tail, -torch.inf)
        return logits


NO_FILTERS = Filters()


def _draw(logits: torch.Tensor, temperature: float, filters: Filters, at: torch.Tensor) -> torch.Tensor:
    """The token of each row at which the cumulative probability first exceeds its share in [0, 1)."""
    if logits.is_cuda:
        return draw_in_blocks(logits, temperature, filters, at)
    kept = filters(logits.float() / temperature)
    shares = torch.softmax(kept, dim=-1).cumsum(dim=-1, dtype=torch.float64)
    tokens = torch.searchsorted(shares, at[:, None] * shares[:, -1:], right=True)
    # Rounding can lift the product of the last share to the whole.
    return tokens[:, 0].clamp(max=logits.shape[-1] - 1)


def draw_in_blocks(
    logits: torch.Tensor, temperature: float, filters: Filters, at: torch.Tensor, block: int = 256
) -> torch.Tensor:
    """``_draw`` for a device of many processors: the block of tokens first, then the token within it.

    Sums run along rows of blocks, so that they add up in one order whatever the device does at once.
    """
    shares = torch.softmax(filters(logits.float() / temperature), dim=-1).double()
    rows, size = shares.shape
    shares = functional.pad(shares, (0, -size % block)).view(rows, -1, block)
    blocks = shares.sum(dim=-1)
    up_to = _running_sum(blocks)
    sought = at[:, None] * up_to[:, -1:]
    chosen = (up_to <= sought).sum(dim=-1, keepdim=True).clamp(max=up_to.size(1) - 1)
    before = functional.pad(up_to, (1, 0)).gather(1, chosen)
    inside = shares.gather(1, chosen[..., None].expand(-1, -1, block))[:, 0]
    place = (before + _running_sum(inside) <= sought).sum(dim=-1).clamp(max=block - 1)
    return (chosen[:, 0] * block + place).clamp(max=size - 1)


def _running_sum(x: torch.Tensor) -> torch.Tensor:
    """Cumulative sums of rows; a single row on its own would be scanned by a kernel of no fixed order."""
    return x.cumsum(dim=-1) if len(x) > 1 else torch.cat([x, x]).cumsum(dim=-1)[:1]


def uniform_numbers(seeds: Sequence[int], limit: int) -> torch.Tensor:
    """The numbers (rows, limit) in [0, 1) that tokens are drawn by, a stream per sampling seed."""
    return torch.from_numpy(np.stack([stream(seed, "tokens").random(limit) for seed in seeds]))


def sample(
    decoder: Decoder,
    seeds: Sequence[int],
    limit: int,
    temperature: float,
    end_ids: frozenset[int],
    filters: Filters = NO_FILTERS,
) -> tuple[tuple[int, ...], ...]:
    """The tokens of every row of a decoder, one row per seed; a row that has ended leaves the batch."""
    uniforms = uniform_numbers(seeds, limit).to(decoder.logits.device)
    completions: list[list[int]] = [[] for _ in seeds]
    going = list(range(len(seeds)))
    for step in range(limit):
        tokens = _draw(decoder.logits, temperature, filters, uniforms[:, step])
        for row, token in zip(going, tokens.tolist(), strict=True):
            completions[row].append(token)
        on = [place for place, row in enumerate(going) if completions[row][-1] not in end_ids]
        if not on or step + 1 == limit:
            break
        if len(on) < len(going):
            decoder.keep(on)
            tokens, uniforms, going = tokens[on], uniforms[on], [going[place] for place in on]
        decoder.read(tokens)
    return tuple(tuple(ids) for ids in completions)


@torch.inference_mode()
def sample_group(
    model: Any,
    prompt_ids: Sequence[int],
    *,
    seeds: Sequence[int],
    max_new_tokens: int,
    temperature: float,
    end_ids: frozenset[int],
    filters: Filters = NO_FILTERS,
) -> SampledGroup:
    """Sample one completion of the prompt per seed; equal arguments give equal tokens on one machine.

    A completion's draws depend on its own seed alone.
    """
    decoder = open_decoder(model, prompt_ids, len(seeds), max_new_tokens)
    completions = sample(decoder, seeds, max_new_tokens, temperature, end_ids, filters)
    return SampledGroup(completions, tuple(ids[-1] not in end_ids for ids in completions))


# Where recorded tokens lie in the cumulative shares of a model that reads them, in one pass.

Numbers = NDArray[np.float64]

# Tokens read at once: beyond these, the shares of a large vocabulary take a gigabyte.
_SLICE = 128


class Intervals(NamedTuple):
    """Of every token of a completion (tokens,): where its share of [0, 1) begins and ends, and the number.

    The sampler draws a token where ``below <= number < above``.
    """

    below: Numbers
    above: Numbers
    number: Numbers


@torch.inference_mode()
def token_intervals(
    model: Any,
    prompt_ids: Sequence[int],
    completions: Sequence[Sequence[int]],
    seeds: Sequence[int],
    settings: GenerationSettings,
) -> tuple[Intervals, ...]:
    """The intervals of every completion's tokens, and the numbers of its seed's stream, one seed each.

    The shares are those that ``sampling`` draws from. Every id has to be one of the model's vocabulary, and
    no completion longer than the settings' limit.
    """
    numbers = uniform_numbers(seeds, settings.max_completion_tokens)
    intervals = []
    logits = logits_by_slice(model, prompt_ids, completions)
    for tokens, row, slices in zip(completions, numbers, logits, strict=True):
        parts, done = [], 0
        for part in slices:
            ids = torch.tensor(list(tokens[done : done + len(part)]), device=part.device)
            parts.append(bounds(part, ids, settings))
            done += len(part)
        below, above = (torch.cat(side).cpu().numpy() for side in zip(*parts, strict=True))
        intervals.append(Intervals(below, above, row[: len(tokens)].numpy()))
    return tuple(intervals)


def logits_by_slice(
    model: Any, prompt_ids: Sequence[int], completions: Sequence[Sequence[int]]
) -> Iterator[Iterator[torch.Tensor]]:
    """Of every completion the logits (rows, vocabulary) before its tokens, in slices.

    The prompt is read once, and a completion's slices have to be taken before those of the next.
    """
    cache = new_cache(model)
    ids = torch.tensor([list(prompt_ids)], device=model.device)
    out = read(model, ids, cache, logits_to_keep=1)
    for tokens in completions:
        take_back(cache, len(prompt_ids))
        yield _slices(model, cache, out.logits[0, -1:], tokens)


def _slices(
    model: Any, cache: DynamicCache, first: torch.Tensor, tokens: Sequence[int]
) -> Iterator[torch.Tensor]:
    yield first
    # Nothing is predicted from the last token.
    for start in range(0, len(tokens) - 1, _SLICE):
        part = list(tokens[start : min(start + _SLICE, len(tokens) - 1)])
        ids = torch.tensor([part], device=model.device)
        yield read(model, ids, cache).logits[0]


def bounds(
    logits: torch.Tensor, tokens: torch.Tensor, settings: GenerationSettings
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both ends of the intervals of tokens (rows,), from the logits (rows, vocabulary) before each."""
    kept = Filters(settings.top_k, settings.top_p)(logits.float() / settings.temperature)
    shares = torch.softmax(kept, dim=-1).cumsum(dim=-1, dtype=torch.float64)
    above = shares.gather(1, tokens[:, None])[:, 0]
    below = shares.gather(1, (tokens - 1).clamp(min=0)[:, None])[:, 0]
    whole = shares[:, -1]
    return torch.where(tokens == 0, 0.0, below) / whole, above / whole


# A token that a filter leaves out may have passed it before rounding: this share is drawn without filters.
_LEAK = 1e-3
# Tokens of a place that are put in order: of models that write text, filters keep far fewer.
_LIKELIEST = 2048


class Drawing(NamedTuple):
    """How a token is drawn from logits: first a penalty for what occurred, then temperature, then filters."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    repetition_penalty: float = 1.0

    def __str__(self) -> str:
        parts = [f"temperature {self.temperature:g}"]
        parts += [f"top-p {self.top_p:g}"] if self.top_p < 1.0 else []
        parts += [f"top-k {self.top_k}"] if self.top_k else []
        parts += [f"repetition penalty {self.repetition_penalty:g}"] if self.repetition_penalty != 1.0 else []
        return ", ".join(parts)


AS_IS = Drawing()


class Read(NamedTuple):
    """Of each token (tokens,) float64: its log-probability, and mean and variance of what its place draws."""

    log_probability: torch.Tensor
    mean: torch.Tensor
    variance: torch.Tensor


@torch.inference_mode()
def read_completions(
    model: Any, prompt: Sequence[int], completions: Sequence[Sequence[int]], drawings: Sequence[Drawing]
) -> Iterator[list[Read]]:
    """Of each completion what ``model`` gives its tokens under each way of drawing.

    The prompt is read once. Every id has to be one of the model's vocabulary.
    """
    for tokens, slices in zip(completions, logits_by_slice(model, prompt, completions), strict=True):
        parts: list[list[Read]] = []
        done = 0
        for logits in slices:
            chosen = torch.tensor(tokens[done : done + len(logits)], device=logits.device)
            parts.append(_reads(logits.float(), chosen, [*prompt, *tokens[:done]], drawings))
            done += len(logits)
        yield [
            Read(*(torch.cat(column).double().cpu() for column in zip(*one, strict=True)))
            for one in zip(*parts, strict=True)
        ]


def _reads(
    logits: torch.Tensor, tokens: torch.Tensor, before: Sequence[int], drawings: Sequence[Drawing]
) -> list[Read]:
    """Drawings that differ in filters only share what is summed over the vocabulary."""
    shared: dict[tuple[float, float], _Shares] = {}
    for one in drawings:
        key = (one.temperature, one.repetition_penalty)
        if key not in shared:
            penalized = one.repetition_penalty != 1.0
            own = _penalized(logits, tokens, before, one.repetition_penalty) if penalized else logits
            shared[key] = _Shares(own / one.temperature, tokens)
    return [shared[one.temperature, one.repetition_penalty].read(one) for one in drawings]


class _Shares:
    def __init__(self, logits: torch.Tensor, tokens: torch.Tensor) -> None:
        self._logits = logits
        self._chosen = logits.gather(1, tokens[:, None])[:, 0]
        self._whole = torch.logsumexp(logits, dim=-1)
        shares = torch.exp(logits - self._whole[:, None])
        first = (shares * logits).sum(dim=-1)
        variance = (shares * logits.square()).sum(dim=-1) - first.square()
        self._plain = Read(self._chosen - self._whole, first - self._whole, variance)

    @cached_property
    def _sums(self) -> tuple[torch.Tensor, ...]:
        """The likeliest tokens' logits, and running sums of share, share x logit and share x logit^2."""
        ordered = self._logits.topk(min(_LIKELIEST, self._logits.shape[-1]), dim=-1).values
        shares = torch.exp(ordered - self._whole[:, None])
        powers = (shares, shares * ordered, shares * ordered.square())
        return (ordered, *(part.cumsum(dim=-1) for part in powers))

    def read(self, drawing: Drawing) -> Read:
        """What a way of drawing gives the tokens; a filter that keeps more than the likeliest keeps all."""
        if drawing.top_p >= 1.0 and drawing.top_k is None:
            return self._plain
        ordered, shares, first, second = self._sums
        most = min(drawing.top_k or ordered.shape[-1], ordered.shape[-1])
        whole = shares[:, most - 1] if drawing.top_k else torch.ones_like(shares[:, 0])
        before = functional.pad(shares[:, : most - 1], (1, 0))
        kept = (before < drawing.top_p * whole[:, None]).sum(dim=-1)
        at = (kept - 1)[:, None]
        mass, least = shares.gather(1, at)[:, 0], ordered.gather(1, at)[:, 0]
        norm = self._whole + mass.log()
        mean = first.gather(1, at)[:, 0] / mass
        variance = second.gather(1, at)[:, 0] / mass - mean.square()
        own = torch.where(self._chosen >= least, self._chosen - norm, -torch.inf)
        leaked = torch.logaddexp(own + math.log1p(-_LEAK), self._plain.log_probability + math.log(_LEAK))
        filtered = Read(leaked, mean - norm, variance.clamp(min=0.0))
        cut = (kept == ordered.shape[-1]) & (ordered.shape[-1] < self._logits.shape[-1])
        pairs = zip(self._plain, filtered, strict=True)
        return Read(*(torch.where(cut, plain, other) for plain, other in pairs))


def _penalized(
    logits: torch.Tensor, tokens: torch.Tensor, before: Sequence[int], penalty: float
) -> torch.Tensor:
    seen = torch.zeros_like(logits, dtype=torch.bool)
    seen[:, torch.tensor(list(before), device=logits.device)] = True
    for row, token in enumerate(tokens.tolist()[:-1], start=1):
        seen[row:, token] = True
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


# Adapters as PEFT writes them, computed beside the weights, so that one is exchanged for another at no cost.

_FACTOR = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight")
_REFUSED = ("use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "lora_bias")


@dataclass(frozen=True, eq=False)
class Lora:
    """A LoRA adapter: by module its factors (rank, inputs) and (outputs, rank), and the scale of all."""

    factors: dict[str, tuple[torch.Tensor, torch.Tensor]]
    scale: float

    @property
    def kinds(self) -> tuple[str, ...]:
        """The last parts of its modules' names, sorted, such as up_proj."""
        return tuple(sorted({name.rpartition(".")[2] for name in self.factors}))


def read_lora(directory: Path) -> Lora:
    """The adapter of a directory; raises ModelFileError for one that is damaged or more than LoRA."""
    config = json_settings(directory / "adapter_config.json")
    if more := [key for key in _REFUSED if config.get(key)]:
        raise ModelFileError(
            f"{directory / 'adapter_config.json'}: {more[0]} is set, which is not read: give plain LoRA"
        )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, int | float):
        raise ModelFileError(f"{directory / 'adapter_config.json'} has no r and lora_alpha: restore it")
    path = directory / "adapter_model.safetensors"
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{path} cannot be read ({error}): restore it") from error
    sides: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if not (match := _FACTOR.fullmatch(name)):
            raise ModelFileError(f"{path}: {name} is no factor of LoRA: give a plain LoRA adapter")
        sides.setdefault(match[1], {})[match[2]] = tensor.float()
    if lone := [name for name, pair in sides.items() if len(pair) != 2]:
        raise ModelFileError(f"{path}: {lone[0]} has one factor of two: restore it")
    scale = alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
    return Lora({name: (pair["A"], pair["B"]) for name, pair in sides.items()}, scale)


@dataclass
class Exchange:
    """A model whose adapter can be exchanged: ``use`` decides what it computes from then on."""

    model: Any
    _used: Lora | None = None
    _without: str = ""
    _hooked: set[str] = field(default_factory=set)

    def add(self, adapters: Iterable[Lora]) -> None:
        """Make room for adapters; raises ModelFileError where one is of another model."""
        modules = dict(self.model.named_modules())
        for lora in adapters:
            for name, (first, second) in lora.factors.items():
                weight = getattr(modules.get(name), "weight", None)
                if weight is None or tuple(weight.shape) != (second.shape[0], first.shape[1]):
                    raise ModelFileError(
                        f"the adapter's {name} does not fit the model: give that of this model"
                    )
                if name not in self._hooked:
                    self._hooked.add(name)
                    modules[name].register_forward_hook(self._hook(name))

    def use(self, lora: Lora | None, without: str = "") -> None:
        """Compute with an adapter, or none, less its modules whose names end in ``without``."""
        self._used, self._without = lora, without

    def _hook(self, name: str) -> Any:
        def add(module: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
            lora = self._used
            if lora is None or name not in lora.factors or name.rpartition(".")[2] == self._without:
                return output
            first, second = (factor.to(output.device, output.dtype) for factor in lora.factors[name])
            return output + lora.scale * (inputs[0] @ first.T) @ second.T

        return add

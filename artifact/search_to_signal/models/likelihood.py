"""How likely logged tokens are under a model, its adapters, and the ways in which tokens may be drawn."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.nn import functional

from search_to_signal.base.errors import ModelFileError
from search_to_signal.models.files import json_settings
from search_to_signal.models.sampling import logits_by_slice

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
    """The shares of tokens by logits (rows, vocabulary), and those of the likeliest in order."""

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

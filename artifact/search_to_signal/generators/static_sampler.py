"""Sampling on a card: a static cache, and the whole token step as one CUDA graph.

A step of a small model is some three hundred kernels of microseconds each; launched one by one from Python
they take ten times as long as they compute. Here a group's rows are sampled together to the last one's end: a
step draws a token of every row, reads it, and leaves the logits of the next, and the processor looks only now
and then whether all rows have ended. On another device the same steps run one by one.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch.nn import functional
from transformers import DynamicCache, LlamaForCausalLM, Qwen2ForCausalLM

from search_to_signal.generators.cpu_decoder import STATIC_ROPE, causal_model, projections
from search_to_signal.generators.sampling import Filters, SampledGroup, draw_in_blocks, uniform_numbers
from search_to_signal.generators.token_step import (
    Factor,
    joined_layer,
    layer_output,
    next_logits,
    read_tokens,
)

Part = TypeVar("Part", bound=Callable[..., Any])

# A graph is captured per so many places of the cache, and the host looks for ends every so many steps.
_PLACES, _STEPS = 1024, 8


def can_sample(model: Any) -> bool:
    """Whether this decoder computes what this model computes, and gains by it: on a CUDA device."""
    base = causal_model(model)
    if type(base) not in (Qwen2ForCausalLM, LlamaForCausalLM) or base.device.type != "cuda":
        return False
    rope = (base.config.rope_scaling or {}).get("rope_type", "default")
    biased = any(p.bias is not None for layer in base.model.layers for p in projections(layer)[3:])
    return rope in STATIC_ROPE and not getattr(base.config, "use_sliding_window", False) and not biased


class Drawing(NamedTuple):
    """How tokens are drawn: what a captured step has in it."""

    temperature: float
    filters: Filters
    ends: frozenset[int]
    limit: int


class StaticSampler:
    """Samples groups of ``rows`` completions, prompt and completion at most ``room`` places together.

    It stands on the model's weights where they lie; an adapter is read anew before every group, whether there
    is one is fixed. Equal weights, prompt and seeds give equal tokens on one kind of card.
    """

    def __init__(self, model: Any, rows: int, room: int, drawing: Drawing) -> None:
        self.drawing, self.rows = drawing, rows
        self.room = -(-room // _PLACES) * _PLACES
        self._model, base = model, causal_model(model)
        device, dtype = base.device, base.dtype
        self._factors: list[Factor] = []
        self._layers = [joined_layer(layer, self._factors) for layer in base.model.layers]
        self._embedding, self._norm = base.model.embed_tokens.weight, base.model.norm.weight
        self._head = base.lm_head.weight.to(dtype)
        self._epsilon = base.config.rms_norm_eps
        self._heads = base.config.num_attention_heads
        others = base.config.num_key_value_heads
        places = torch.arange(self.room, device=device)
        probe = torch.zeros(1, 1, 1, device=device, dtype=dtype)
        self._cos, self._sin = (one[0] for one in base.model.rotary_emb(probe, places[None]))
        self._places = places
        width = self._cos.size(-1)
        self._caches = [
            tuple(torch.zeros(rows, others, self.room, width, device=device, dtype=dtype) for _ in "kv")
            for _ in self._layers
        ]
        self._position = torch.zeros(1, dtype=torch.long, device=device)
        self._step_number = torch.zeros(1, dtype=torch.long, device=device)
        self._uniforms = torch.zeros(rows, drawing.limit, dtype=torch.float64, device=device)
        self._drawn = torch.zeros(drawing.limit, rows, dtype=torch.long, device=device)
        self._ended = torch.zeros(rows, dtype=torch.bool, device=device)
        self._ends = torch.tensor(sorted(drawing.ends), device=device)
        self._logits = torch.zeros(rows, len(self._head), device=device)
        self._read = _compiled(read_tokens, device)
        self._go_on = _compiled(layer_output, device)
        self._to_logits = _compiled(next_logits, device)
        self._graphs: dict[int, Any] = {}

    @property
    def adapted(self) -> bool:
        """Whether it reads an adapter."""
        return bool(self._factors)

    @torch.no_grad()
    def sample(self, prompt_ids: Sequence[int], seeds: Sequence[int]) -> SampledGroup:
        """One completion of the prompt per seed."""
        start, limit = len(prompt_ids), self.drawing.limit
        for factor in self._factors:
            factor.copy()
        steps = {end: self._step(end) for end in range(_ceiling(start + 1), start + limit + _PLACES, _PLACES)}
        self._begin(prompt_ids, seeds)
        done = 0
        while done < limit:
            places = _ceiling(start + done + 1)
            for _ in range(min(_STEPS, limit - done, places - start - done)):
                steps[places]()
                done += 1
            if bool(self._ended.all()):
                break
        columns = self._drawn[:done].t().tolist()
        completions = tuple(_to_end(ids, self.drawing.ends) for ids in columns)
        return SampledGroup(completions, tuple(ids[-1] not in self.drawing.ends for ids in completions))

    def _begin(self, prompt_ids: Sequence[int], seeds: Sequence[int]) -> None:
        """Read the prompt, once for all rows, and lay the numbers ready that tokens are drawn by."""
        device, start = self._logits.device, len(prompt_ids)
        cache = DynamicCache()
        ids = torch.tensor([list(prompt_ids)], device=device)
        out = self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        self._logits.copy_(out.logits[:, -1].float())
        for (keys, values), k, v in zip(self._caches, cache.key_cache, cache.value_cache, strict=True):
            keys[:, :, :start].copy_(k)
            values[:, :, :start].copy_(v)
        self._uniforms.copy_(uniform_numbers(seeds, self.drawing.limit))
        self._position.fill_(start)
        self._step_number.zero_()
        self._ended.zero_()

    def _one_step(self, places: int) -> None:
        """Draw a token of every row, and read it; its logits replace those that it was drawn from."""
        at = self._uniforms.index_select(1, self._step_number)[:, 0]
        tokens = draw_in_blocks(self._logits, self.drawing.temperature, self.drawing.filters, at)
        self._drawn.index_copy_(0, self._step_number, tokens[None])
        self._ended.logical_or_((tokens[:, None] == self._ends).any(dim=1))
        x = functional.embedding(tokens, self._embedding)
        cos, sin = (table.index_select(0, self._position) for table in (self._cos, self._sin))
        seen = self._places[:places] <= self._position
        for layer, (keys, values) in zip(self._layers, self._caches, strict=True):
            q, k, v = self._read(x, layer, cos, sin, self._heads, self._epsilon)
            keys.index_copy_(2, self._position, k[:, :, None])
            values.index_copy_(2, self._position, v[:, :, None])
            x = self._go_on(x, q, keys[:, :, :places], values[:, :, :places], seen, layer, self._epsilon)
        self._logits.copy_(self._to_logits(x, self._norm, self._head, self._epsilon))
        self._position.add_(1)
        self._step_number.add_(1)

    def _step(self, places: int) -> Callable[[], None]:
        """The step that looks at so many places; captured before a group begins, because trying it counts."""
        if self._logits.device.type != "cuda":
            return lambda: self._one_step(places)
        if places not in self._graphs:
            self._graphs[places] = self._captured(places)
        replay: Callable[[], None] = self._graphs[places].replay
        return replay

    def _captured(self, places: int) -> Any:
        with _undemanding():
            for _ in range(3):
                self._position.zero_()
                self._step_number.zero_()
                self._one_step(places)
            torch.cuda.synchronize()
            self._position.zero_()
            self._step_number.zero_()
            graph = torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
            pool = next((other.pool() for other in self._graphs.values()), None)
            with torch.cuda.graph(graph, pool=pool):
                self._one_step(places)
        return graph


def _compiled(part: Part, device: torch.device) -> Part:
    """The function as a few fused kernels on a card; elsewhere as it is.

    Which shape a kernel has is not found by timing it: two processes would choose, and round, differently.
    """
    if device.type != "cuda":
        return part
    return cast(Part, torch.compile(part, dynamic=False, options={"triton.autotune_pointwise": False}))


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


def _ceiling(places: int) -> int:
    return -(-places // _PLACES) * _PLACES


def _to_end(ids: Sequence[int], ends: frozenset[int]) -> tuple[int, ...]:
    """The tokens of a row to the first that ends it."""
    length = next((number for number, token in enumerate(ids, start=1) if token in ends), len(ids))
    return tuple(ids[:length])

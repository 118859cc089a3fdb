"""The decoder for cards computes, step by step on the processor, what the model computes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from search_to_signal.base.package_data import MODELS
from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.base import encoded, end_ids, request_seeds
from search_to_signal.models.local import CardSampler, StepSettings, load_model, load_tokenizer
from search_to_signal.models.sampling import NO_FILTERS, Filters, _draw, draw_in_blocks, sample_group
from search_to_signal.models.token_step import copy_adapter, join_projections, joined_layer

pytestmark = pytest.mark.slow

LIMIT = 48


@pytest.fixture(params=["qwen2-2.1m", "llama-2.1m"])
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[Any, list[int], frozenset[int]]]:
    """Two layers of an embedded model, the tokens of a prompt, and the tokens that end a completion."""
    model, tokenizer = load_model(MODELS / request.param), load_tokenizer(MODELS / request.param)
    del model.model.layers[2:]
    model.config.num_hidden_layers = 2
    _, prompt = encoded(tokenizer, [{"role": "user", "content": "def solve(distances):\n    return 1"}])
    torch.use_deterministic_algorithms(False)
    return model, prompt, end_ids(tokenizer, model.generation_config)


def loud(model: Any) -> Any:
    """The model with an adapter that nobody can overlook."""
    adapted = attach_adapter(model, LearnerSettings(lora_rank=4, lora_alpha=8), seed=3)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.02, generator=torch.Generator().manual_seed(1))
    return adapted.get_base_model()


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("filters", [NO_FILTERS, Filters(top_k=20, top_p=0.9)])
def test_samples_what_the_plain_decoder_samples(
    opened: tuple[Any, list[int], frozenset[int]], adapted: bool, filters: Filters
) -> None:
    """The same seeds draw the same tokens, with an adapter and filters and without."""
    model, prompt, ends = opened
    model = loud(model) if adapted else model
    sampler = CardSampler(model, 3, len(prompt) + LIMIT, StepSettings(0.9, filters, ends, LIMIT))
    for seed in (7, 8):
        seeds = request_seeds(seed, 3)
        expected = sample_group(
            model,
            prompt,
            seeds=seeds,
            max_new_tokens=LIMIT,
            temperature=0.9,
            end_ids=ends,
            filters=filters,
        )
        assert sampler.sample(prompt, seeds) == expected


def test_what_ends_is_handed_out_while_the_others_go_on(
    opened: tuple[Any, list[int], frozenset[int]],
) -> None:
    """Each completion once, in the order of their ends; what the limit cuts is not."""
    model, prompt, ends = opened
    seeds, room = request_seeds(7, 8), len(prompt) + LIMIT
    drawn = CardSampler(model, 8, room, StepSettings(0.9, NO_FILTERS, ends, LIMIT)).sample(prompt, seeds)
    # The token that some of these rows draw early and some late.
    places: dict[int, list[int]] = {}
    for ids in drawn.completion_ids:
        for token in set(ids):
            places.setdefault(token, []).append(ids.index(token))
    end = max(places, key=lambda token: max(places[token]) - min(places[token]))
    sampler = CardSampler(model, 8, room, StepSettings(0.9, NO_FILTERS, ends | {end}, LIMIT))
    received: list[Sequence[int]] = []
    group = sampler.sample(prompt, seeds, received.append)
    ended = [ids for ids, cut in zip(group.completion_ids, group.truncated, strict=True) if not cut]
    assert len(received[0]) < len(received[-1])
    assert sorted(received) == sorted(ended)  # type: ignore[type-var]
    assert group == sampler.sample(prompt, seeds)


def test_an_adapter_is_read_before_every_group(opened: tuple[Any, list[int], frozenset[int]]) -> None:
    """What a learner changed between two groups changes the second."""
    model, prompt, ends = opened
    model = loud(model)
    sampler = CardSampler(model, 2, len(prompt) + LIMIT, StepSettings(0.9, NO_FILTERS, ends, LIMIT))
    first = sampler.sample(prompt, (1, 2))
    assert sampler.sample(prompt, (1, 2)) == first
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.mul_(-20)
    assert sampler.sample(prompt, (1, 2)) != first


def test_prompts_may_come_in_any_order_of_lengths(
    opened: tuple[Any, list[int], frozenset[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card tries what it launches, once for every length: a shorter prompt may come after a longer one."""

    def tried(_: CardSampler, work: Callable[[], None]) -> Callable[[], None]:
        work()
        return work

    model, prompt, ends = opened
    longer = prompt * (300 // len(prompt) + 1)
    monkeypatch.setattr(CardSampler, "_launched", tried)
    sampler = CardSampler(model, 2, len(longer) + LIMIT, StepSettings(0.9, NO_FILTERS, ends, LIMIT))
    sampler.sample(longer, (1, 2))
    assert sampler.sample(prompt, (1, 2)) == sample_group(
        model, prompt, seeds=(1, 2), max_new_tokens=LIMIT, temperature=0.9, end_ids=ends
    )


def test_weights_stay_where_they_lie_once_joined(opened: tuple[Any, list[int], frozenset[int]]) -> None:
    """What a learner captured reads them there: no sampler moves them, neither the first nor a larger one."""
    model, prompt, ends = opened
    join_projections(model)
    model = loud(model)
    before = {name: weight.data_ptr() for name, weight in model.named_parameters()}
    for room in (len(prompt) + LIMIT, len(prompt) + 2 * LIMIT):
        sampler = CardSampler(model, 2, room, StepSettings(0.9, NO_FILTERS, ends, LIMIT))
        assert {name: weight.data_ptr() for name, weight in model.named_parameters()} == before
    assert sampler.sample(prompt, (1, 2)) == sample_group(
        model, prompt, seeds=(1, 2), max_new_tokens=LIMIT, temperature=0.9, end_ids=ends
    )


def test_drawing_in_blocks_draws_the_same_token() -> None:
    """Over any vocabulary, whatever the number of blocks, rows and filters."""
    generator = torch.Generator().manual_seed(0)
    for size, rows in ((5, 1), (256, 2), (1000, 3), (151_936, 4)):
        logits = 4 * torch.randn(rows, size, generator=generator)
        for filters in (NO_FILTERS, Filters(top_k=3)):
            for at in np.random.default_rng(size).random((50 if size < 2000 else 5, rows)):
                shares = torch.from_numpy(at)
                found = draw_in_blocks(logits, 0.9, filters, shares)
                assert torch.equal(found, _draw(logits, 0.9, filters, shares))


def test_pieces_of_an_adapter_add_up_to_it() -> None:
    """Three bfloat16 matrices hold a float32 one to the last bit or two, over many sizes of numbers."""
    adapted = attach_adapter(
        load_model(MODELS / "qwen2-2.1m").bfloat16(), LearnerSettings(lora_rank=4), seed=2
    )
    factors: list[Any] = []
    layer = joined_layer(adapted.get_base_model().model.layers[0], factors)
    with torch.no_grad():
        for number, each in enumerate(factors):
            each.linear.lora_A["default"].weight.mul_(10.0**-number)
    copy_adapter(factors)
    assert layer.qkv.down is not None
    assert layer.qkv.pieces is not None
    assert layer.qkv.pieces.dtype == torch.bfloat16
    total = layer.qkv.pieces.double().sum(dim=0)
    torch.testing.assert_close(total, layer.qkv.down.double(), rtol=2.0**-22, atol=0.0)

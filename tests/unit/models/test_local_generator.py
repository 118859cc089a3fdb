"""Sampling: reproducible, unfiltered, and cut where the end token says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from search_to_signal.base.errors import ConfigError
from search_to_signal.models.base import GenerationSettings, request_seeds
from search_to_signal.models.local import LocalGenerator
from search_to_signal.models.sampling import sample_group
from search_to_signal.search.member import Prompt

pytestmark = pytest.mark.slow

PROMPT = Prompt("You are told nothing.", "def select_next_node(current_node): return 0.4 # é")
IDS = [40, 41, 42, 43, 44]
NEVER = -1


@dataclass
class FixedModel:
    """Says the same next-token logits whatever it reads."""

    logits: torch.Tensor
    device: str = "cpu"

    def __call__(self, input_ids: torch.Tensor, past_key_values: Any, **options: Any) -> Any:
        logits = self.logits.expand(*input_ids.shape, -1)
        return SimpleNamespace(logits=logits, past_key_values=past_key_values)


def sampled(model: Any, seed: int = 1, end_id: int = NEVER, tokens: int = 24) -> Any:
    """Three completions of one prompt."""
    seeds = request_seeds(seed, 3)
    return sample_group(
        model, IDS, seeds=seeds, max_new_tokens=tokens, temperature=0.9, end_ids=frozenset({end_id})
    )


def generator(model: Any, tokenizer: Any, **changes: Any) -> LocalGenerator:
    """A generator with small limits."""
    settings = {"group_size": 3, "max_prompt_tokens": 200, "max_completion_tokens": 16, **changes}
    return LocalGenerator(model, tokenizer, GenerationSettings(**settings))


def test_the_seed_decides_the_tokens(new_model: Callable[..., Any], tokenizer: Any) -> None:
    """Equal prompt and seed give equal completions, another seed others."""
    source = generator(new_model(), tokenizer)
    first = source.generate(PROMPT, 7)
    assert source.generate(PROMPT, 7) == first
    assert source.generate(PROMPT, 8).completions != first.completions
    assert len(set(first.completions)) == 3


def test_global_randomness_plays_no_part(new_model: Callable[..., Any]) -> None:
    """Neither does the global seed change the tokens, nor sampling the global stream."""
    model = new_model()
    torch.manual_seed(1)
    first = sampled(model)
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after)
    assert sampled(model) == first


def test_temperature_and_nothing_else(tokenizer: Any) -> None:
    """Drawn frequencies are those of softmax(logits / T) over the whole vocabulary (D23)."""
    logits = torch.linspace(0.0, 3.0, len(tokenizer))
    logits[tokenizer.eos_token_id] = -torch.inf
    source = generator(FixedModel(logits), tokenizer, group_size=500, max_completion_tokens=200)
    drawn = np.concatenate([completion.ids for completion in source.generate(PROMPT, 3).completions])
    counts = np.bincount(drawn, minlength=len(tokenizer))
    likely = np.arange(len(tokenizer)) != tokenizer.eos_token_id

    def p_value(temperature: float) -> float:
        expected = torch.softmax(logits.double() / temperature, dim=-1).numpy()[likely] * len(drawn)
        return float(chisquare(counts[likely], expected).pvalue)

    assert len(drawn) == 100_000
    assert counts[tokenizer.eos_token_id] == 0
    assert p_value(0.9) > 0.01
    assert p_value(1.0) < 1e-6


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({"top_k": 2}, 2),
        ({"top_p": 0.7}, 3),
        ({"top_k": 2, "top_p": 0.7}, 2),
        ({"top_k": 3, "top_p": 0.5}, 2),
        ({"top_p": 1e-9}, 1),
        ({"top_k": 99}, 5),
    ],
)
def test_filters_keep_the_likeliest_and_their_odds(
    tokenizer: Any, filters: dict[str, Any], kept: int
) -> None:
    """The other reading of D23: top-k, then top-p of what is left, drawn in proportion as without them."""
    # At temperature 0.5 the shares of tokens 50 to 54 are 0.35, 0.25, 0.2, 0.15, 0.05; of all others none.
    shares = torch.tensor([0.35, 0.25, 0.2, 0.15, 0.05])
    logits = torch.full((len(tokenizer),), -torch.inf)
    logits[50:55] = 0.5 * shares.log()
    source = generator(
        FixedModel(logits), tokenizer, group_size=100, max_completion_tokens=100, temperature=0.5, **filters
    )
    drawn = np.concatenate([completion.ids for completion in source.generate(PROMPT, 3).completions])
    assert set(drawn) == set(range(50, 50 + kept))
    expected = shares[:kept].double().numpy() / float(shares[:kept].sum()) * len(drawn)
    counts = np.bincount(drawn - 50, minlength=kept)
    assert kept == 1 or chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 0.01


def test_completions_end_with_the_end_token(new_model: Callable[..., Any]) -> None:
    """A completion is what would have been sampled anyway, to its first end token, that one included."""
    model = new_model()
    whole = sampled(model)
    assert whole.truncated == (True, True, True)
    assert [len(ids) for ids in whole.completion_ids] == [24] * 3
    end = whole.completion_ids[1][10]
    short = sampled(model, end_id=end)
    for before, after, truncated in zip(
        whole.completion_ids, short.completion_ids, short.truncated, strict=True
    ):
        assert after == (before[: before.index(end) + 1] if end in before else before)
        assert truncated is (end not in before)
    assert not all(short.truncated)


def test_a_completion_depends_on_its_own_seed_alone(new_model: Callable[..., Any]) -> None:
    """Alone or in a group, whatever its neighbours do and however early they end: the same tokens."""
    model = new_model()
    group = sampled(model, end_id=sampled(model).completion_ids[0][4])
    for seed, ids in zip(request_seeds(1, 3), group.completion_ids, strict=True):
        alone = sample_group(
            model,
            IDS,
            seeds=[seed],
            max_new_tokens=24,
            temperature=0.9,
            end_ids=frozenset({group.completion_ids[0][-1]}),
        )
        assert alone.completion_ids == (ids,)


def test_every_end_token_of_the_model_ends(new_model: Callable[..., Any], tokenizer: Any) -> None:
    """A model that stops on two tokens, as Qwen does, stops on both; either way nothing was cut."""
    model = new_model()
    whole = generator(model, tokenizer).generate(PROMPT, 7).completions[1]
    assert whole.truncated
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, whole.ids[5]]
    short = generator(model, tokenizer).generate(PROMPT, 7).completions[1]
    assert short.ids == whole.ids[: whole.ids.index(whole.ids[5]) + 1]
    assert not short.truncated


def test_end_token_in_the_last_place_is_no_cut(new_model: Callable[..., Any]) -> None:
    """A completion whose end token is the last that the limit allows is whole."""
    whole = sampled(new_model(), tokens=6).completion_ids[0]
    last = next(at for at, token in enumerate(whole) if at >= 2 and token not in whole[:at])
    group = sampled(new_model(), end_id=whole[last], tokens=last + 1)
    assert group.completion_ids[0] == whole[: last + 1]
    assert group.truncated[0] is False


def test_generation_keeps_prompt_and_text(new_model: Callable[..., Any], tokenizer: Any) -> None:
    """A generation holds the exact prompt that was read, and the text of each answer without its end."""
    generation = generator(new_model(), tokenizer).generate(PROMPT, 7)
    assert generation.prompt == f"<|im_start|>user\n{PROMPT.user}<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(generation.prompt_ids) == generation.prompt
    for completion in generation.completions:
        assert completion.text == tokenizer.decode(completion.ids).removesuffix("<|im_end|>")


def test_sampling_on_a_card_moves_no_weight(
    new_model: Callable[..., Any], tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run's learner captures where the weights lie before the first group is sampled."""
    monkeypatch.setattr("search_to_signal.models.local.can_sample", lambda _: True)
    torch.use_deterministic_algorithms(False)
    source = generator(new_model(), tokenizer)
    before = [weight.data_ptr() for weight in source.model.parameters()]
    source.generate(PROMPT, 7)
    assert [weight.data_ptr() for weight in source.model.parameters()] == before


def test_a_long_prompt_is_refused(new_model: Callable[..., Any], tokenizer: Any) -> None:
    """Where long prompts are refused, one over the limit is an error; one at the limit is not."""

    def refusing(limit: int) -> LocalGenerator:
        return generator(new_model(), tokenizer, max_prompt_tokens=limit, long_prompts="refuse")

    length = len(generator(new_model(), tokenizer).generate(PROMPT, 1).prompt_ids)
    assert len(refusing(length).generate(PROMPT, 1).prompt_ids) == length
    with pytest.raises(ConfigError, match=rf"{length} tokens.*max_prompt_tokens is {length - 1}"):
        refusing(length - 1).generate(PROMPT, 1)


def test_a_long_prompt_is_cut_on_the_left(new_model: Callable[..., Any], tokenizer: Any) -> None:
    """Completions follow from the last tokens alone; the text is kept whole, and what was cut is counted."""
    whole = generator(new_model(), tokenizer).generate(PROMPT, 7)
    cut = generator(new_model(), tokenizer, max_prompt_tokens=9).generate(PROMPT, 7)
    assert cut.prompt == whole.prompt
    assert cut.prompt_ids == whole.prompt_ids[-9:]
    assert (whole.prompt_tokens_cut, cut.prompt_tokens_cut) == (0, len(whole.prompt_ids) - 9)
    assert cut.prompt_tokens(0) == 9
    alone = sample_group(
        new_model(),
        whole.prompt_ids[-9:],
        seeds=request_seeds(7, 3),
        max_new_tokens=16,
        temperature=0.9,
        end_ids=frozenset({tokenizer.eos_token_id}),
    )
    assert tuple(completion.ids for completion in cut.completions) == alone.completion_ids
    assert cut.completions != whole.completions


def test_sampler_takes_any_sequence_of_ids(new_model: Callable[..., Any]) -> None:
    """A single completion of a single-token prompt is sampled like any other."""
    ids: Sequence[int] = [5]
    group = sample_group(new_model(), ids, seeds=[1], max_new_tokens=3, temperature=0.9, end_ids=frozenset())
    assert [len(row) for row in group.completion_ids] == [3]

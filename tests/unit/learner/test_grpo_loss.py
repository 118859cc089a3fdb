"""The loss is TRL's, and TRL's is the formula: mean over completions of the mean over their tokens."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from search_to_signal.base.errors import LearnerError
from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.learner.grpo_loss import grpo_loss, token_group, token_log_probabilities
from search_to_signal.learner.settings import LearnerSettings

PROMPT = (5, 6, 7, 8)
COMPLETIONS = ((11, 12, 13, 2), (14, 2), (15, 16, 17, 18, 19, 20))
ADVANTAGES = (1.25, -0.5, -0.75)
KL = 0.04


@pytest.fixture
def model(new_model: Callable[..., Any]) -> Any:
    """A tiny model with an adapter that already differs from its base."""
    adapted = attach_adapter(new_model(), LearnerSettings(lora_rank=4, lora_alpha=8), seed=3)
    torch.manual_seed(9)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    return adapted


def by_hand(model: Any, completion: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities of one completion alone, unpadded, from the model's logits."""
    ids = torch.tensor([[*PROMPT, *completion]])
    logits = model(input_ids=ids).logits[0, len(PROMPT) - 1 : -1] / temperature
    return torch.log_softmax(logits, dim=-1)[torch.arange(len(completion)), list(completion)]


def test_mask_ends_with_the_end_token() -> None:
    """Tokens to and including the end token count, padding does not, a cut completion counts whole (D25)."""
    group = token_group(PROMPT, COMPLETIONS, pad_id=0)
    assert group.prompt_ids.tolist() == [list(PROMPT)] * 3
    assert group.completion_ids.tolist() == [
        [11, 12, 13, 2, 0, 0],
        [14, 2, 0, 0, 0, 0],
        [15, 16, 17, 18, 19, 20],
    ]
    assert group.completion_mask.tolist() == [[1] * 4 + [0] * 2, [1] * 2 + [0] * 4, [1] * 6]
    assert group.training_tokens == 12


def test_a_sampled_pad_token_counts() -> None:
    """A completion that contains the pad id itself is masked by its length, not by that id."""
    assert token_group(PROMPT, ((0, 11, 0), (2,)), pad_id=0).completion_mask.tolist() == [
        [1, 1, 1],
        [1, 0, 0],
    ]


@pytest.mark.parametrize(("prompt", "completions"), [((), COMPLETIONS), (PROMPT, ((1, 2), ()))])
def test_empty_texts_are_refused(prompt: Sequence[int], completions: Sequence[Sequence[int]]) -> None:
    """There is nothing to score in an empty prompt or completion."""
    with pytest.raises(LearnerError, match="empty"):
        token_group(prompt, completions, pad_id=0)


def test_log_probabilities_ignore_padding_and_temperature(model: Any) -> None:
    """Each token is scored as if its completion stood alone, by the logits as they are (D24)."""
    scored = token_log_probabilities(model, token_group(PROMPT, COMPLETIONS, pad_id=0))
    for row, completion in zip(scored, COMPLETIONS, strict=True):
        torch.testing.assert_close(row[: len(completion)], by_hand(model, completion))
        assert not torch.allclose(row[: len(completion)], by_hand(model, completion, 0.9), atol=1e-3)


def test_loss_is_the_formula(model: Any) -> None:
    """Loss and KL are those of the formula, and so is the gradient, in which the ratio of one is no clip."""
    group = token_group(PROMPT, COMPLETIONS, pad_id=0)
    with torch.no_grad(), model.disable_adapter():
        reference = token_log_probabilities(model, group)
    loss, kl = grpo_loss(
        partial(token_log_probabilities, model), group, reference, torch.tensor(ADVANTAGES), KL
    )
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradient = torch.autograd.grad(loss, parameters)

    losses, surrogates, divergences = [], [], []
    for row, completion, advantage in zip(reference, COMPLETIONS, ADVANTAGES, strict=True):
        scored = by_hand(model, completion)
        gap = row[: len(completion)] - scored
        divergence = gap.exp() - gap - 1
        losses.append((-advantage + KL * divergence).mean())
        surrogates.append((-advantage * scored + KL * divergence).mean())
        divergences.append(divergence.mean())
    torch.testing.assert_close(loss, torch.stack(losses).mean())
    assert kl == pytest.approx(float(torch.stack(divergences).mean()), rel=1e-4)
    assert kl > 1e-3
    for found, expected in zip(
        gradient, torch.autograd.grad(torch.stack(surrogates).mean(), parameters), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_the_temperature_divides_the_logits(model: Any, checkpointed: bool) -> None:
    """Under the other reading of D24 each token is scored at the temperature, however the prompt is read."""
    if checkpointed:
        model.gradient_checkpointing_enable()
    group = token_group(PROMPT, COMPLETIONS, pad_id=0, temperature=0.9)
    scored = token_log_probabilities(model, group)
    for row, completion in zip(scored, COMPLETIONS, strict=True):
        torch.testing.assert_close(row[: len(completion)], by_hand(model, completion, 0.9))
    first = token_log_probabilities(model, group.rows(slice(0, 1)))
    torch.testing.assert_close(first[0, :4], by_hand(model, COMPLETIONS[0], 0.9))

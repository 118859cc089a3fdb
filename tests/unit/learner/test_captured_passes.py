"""What a card captures computes what TRL's own function computes; here it runs uncaptured, on a CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from trl.trainer.utils import selective_log_softmax

from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.learner.grpo_loss import (
    CapturedPasses,
    ChosenTokens,
    _Scores,
    can_capture,
    token_group,
    token_log_probabilities,
)
from search_to_signal.learner.settings import LearnerSettings

pytestmark = pytest.mark.slow

PROMPT = (5, 6, 7, 8)
COMPLETIONS = ((11, 12, 13, 2), (14, 2), (15, 16, 17, 18, 19, 20))


@pytest.fixture
def model(new_model: Callable[..., Any]) -> Any:
    """An adapted model whose adapter changes something."""
    adapted = attach_adapter(new_model(), LearnerSettings(lora_rank=4, lora_alpha=8), seed=3)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.02, generator=torch.Generator().manual_seed(1))
    return adapted


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_chosen_tokens_have_the_gradient_of_a_log_softmax(temperature: float) -> None:
    """Value and gradient are those of TRL's function on whole logits."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 5, 8, generator=generator, dtype=torch.float64).float().requires_grad_()
    head, ids = torch.randn(50, 8, generator=generator), torch.randint(0, 50, (2, 5), generator=generator)
    weights = torch.randn(2, 5, generator=generator)
    found = ChosenTokens.apply(hidden, head, ids, temperature)
    (gradient,) = torch.autograd.grad((found * weights).sum(), hidden)
    expected = selective_log_softmax(functional.linear(hidden, head) / temperature, ids)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad((expected * weights).sum(), hidden)[0])


def test_padded_passes_score_what_plain_ones_score(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths that are rounded up change no score of a token that counts, and no gradient."""
    group = token_group(PROMPT, COMPLETIONS, pad_id=0)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    passes = CapturedPasses(model, 1.0)
    inputs = passes._inputs(group)
    assert inputs.sizes == (3, 512, 256)
    scores = _Scores(model.get_base_model(), 1.0)
    parameters = [p for p in model.parameters() if p.requires_grad]
    width = group.completion_ids.size(1)
    found = scores(*inputs)[:, :width].masked_fill(group.completion_mask == 0, 0.0)
    expected = token_log_probabilities(model, group)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    pairs = zip(
        torch.autograd.grad(found.sum(), parameters),
        torch.autograd.grad(expected.sum(), parameters),
        strict=True,
    )
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_weights_that_moved_are_captured_again(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph reads addresses: behind a moved weight's old one lies something else by then."""
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    passes = CapturedPasses(model, 1.0)
    captured: list[int] = []
    monkeypatch.setattr(passes, "_capture_policy", lambda _: captured.append(1))
    monkeypatch.setattr(passes, "_capture_base", lambda _: None)
    inputs = passes._inputs(token_group(PROMPT, COMPLETIONS, pad_id=0))
    passes._captured(inputs)
    passes._captured(inputs)
    assert len(captured) == 1
    weight = model.get_base_model().model.layers[0].self_attn.q_proj.base_layer.weight
    weight.data = weight.data.clone()
    passes._captured(inputs)
    assert len(captured) == 2


def test_nothing_is_captured_without_a_card(model: Any) -> None:
    """On a processor the learner computes as it did when evidence was recorded."""
    assert not can_capture(model)

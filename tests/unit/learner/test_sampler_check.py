"""A server's log-probabilities are the learner's, or the step, a token and both values are one line."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from search_to_signal.base.errors import GenerationError
from search_to_signal.learner.grpo_loss import fitting_group, sampler_difference, token_log_probabilities
from search_to_signal.models.base import Completion, Generation

pytestmark = pytest.mark.slow  # it loads the largest libraries

PROMPT, ANSWERS = (5, 6, 7), ((8, 9, 10, 2), (11, 2))


@torch.no_grad()
def told_by(model: Any) -> Generation:
    """A group with the log-probabilities of a model."""
    groups = [fitting_group(model, PROMPT, [ids], 0) for ids in ANSWERS]
    told = [tuple(token_log_probabilities(model, group)[0].tolist()) for group in groups]
    completions = (Completion(ids, "", False, logprobs=of) for ids, of in zip(ANSWERS, told, strict=True))
    return Generation("", PROMPT, tuple(completions))


def test_other_weights_are_told(new_model: Callable[..., Any]) -> None:
    """Equal weights agree, others end the run; a sampler that reports nothing is not compared."""
    model = new_model().eval()
    silent = Generation("", PROMPT, tuple(Completion(ids, "", False) for ids in ANSWERS))
    assert sampler_difference(model, silent, 3, 1e-6) is None
    honest = told_by(model)
    assert sampler_difference(model, honest, 3, 1e-6) == pytest.approx(0.0, abs=1e-6)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(1.5)
    with pytest.raises(GenerationError, match=r"step 3: the server has other weights .* token \d+, -.* here"):
        sampler_difference(model, honest, 3, 1e-6)

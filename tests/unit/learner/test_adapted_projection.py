"""A projection in fewer passes is PEFT's, value and gradient."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.learner.grpo_loss import use_fewer_passes
from search_to_signal.learner.settings import LearnerSettings

pytestmark = pytest.mark.slow  # it loads the largest libraries

IDS = torch.tensor([[5, 6, 7, 8, 9], [11, 12, 13, 2, 4]])


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 4e-2)])
def test_fewer_passes_change_no_number(
    new_model: Callable[..., Any], dtype: torch.dtype, close: float
) -> None:
    """Logits and the adapter's gradients agree to rounding, and without the adapter it is the base."""
    adapted = attach_adapter(new_model().to(dtype), LearnerSettings(lora_rank=4, lora_alpha=8), seed=3)
    parameters = [p for p in adapted.parameters() if p.requires_grad]
    with torch.no_grad():
        for parameter in parameters:
            parameter.normal_(0, 0.05, generator=torch.Generator().manual_seed(1))

    def computed() -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, ...]]:
        logits = adapted(input_ids=IDS).logits.float()
        gradients = torch.autograd.grad(torch.log_softmax(logits, -1)[..., 7].sum(), parameters)
        with adapted.disable_adapter(), torch.no_grad():
            return logits.detach(), adapted(input_ids=IDS).logits, gradients

    logits, base, gradients = computed()
    use_fewer_passes(adapted)
    found, plain, ours = computed()
    assert torch.equal(plain, base)
    assert not torch.allclose(found, base.float(), atol=1e-3)
    assert (found - logits).norm() <= close * logits.norm()
    for one, other in zip(ours, gradients, strict=True):
        assert (one - other).norm() <= close * other.norm() + 1e-6

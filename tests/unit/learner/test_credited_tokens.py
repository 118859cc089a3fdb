"""Credit on a part of the completions: the gradient of its tokens and of no other (D43)."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.learner.base import StepResult, TrainingGroup
from search_to_signal.learner.grpo import GrpoLearner
from search_to_signal.learner.settings import LearnerSettings

pytestmark = pytest.mark.slow  # it loads the largest libraries

PROMPT = (5, 6, 7, 8)
COMPLETIONS = ((11, 12, 13, 2), (14, 15, 2), (16, 17, 18, 19, 20), (21, 2))
ADVANTAGES = np.array([1.2, -0.9, 0.4, -0.7])
HEAD = tuple(tuple(place < 2 for place in range(len(row))) for row in COMPLETIONS)
TAIL = tuple(tuple(not chosen for chosen in row) for row in HEAD)
ALL = tuple((True,) * len(row) for row in COMPLETIONS)
SETTINGS = LearnerSettings(
    lora_rank=4, lora_alpha=8, learning_rate=1.0, optimizer="sgd", max_grad_norm=1e9, kl=0.5
)

Credited = Sequence[Sequence[bool]]


def step(model: Any, credited: Credited, **changes: Any) -> tuple[StepResult, torch.Tensor]:
    """One plain descent step of an adapter that is not fresh, and how far it went, as one vector."""
    learner = GrpoLearner(model, SETTINGS, pad_id=0)
    parameters = [p for p in model.parameters() if p.requires_grad]
    with torch.no_grad():
        for number, parameter in enumerate(parameters):
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.manual_seed(number)))
    before = torch.cat([p.detach().flatten().clone() for p in parameters])
    result = learner.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES, credited=credited, **changes))
    return result, torch.cat([p.detach().flatten() for p in parameters]) - before


@pytest.fixture
def adapted(new_model: Callable[[], Any]) -> Callable[[], Any]:
    """Models with equal fresh adapters."""
    model = attach_adapter(new_model(), SETTINGS, 3)
    return lambda: copy.deepcopy(model)


def test_the_parts_of_a_step_add_up(adapted: Callable[[], Any]) -> None:
    """Credit and KL of disjoint tokens sum to the whole step; the loss that is told stays the group's."""
    whole, both = step(adapted(), ())
    first, head = step(adapted(), HEAD)
    second, tail = step(adapted(), TAIL)
    assert whole.kl
    assert first.loss == second.loss == whole.loss
    assert first.training_tokens + second.training_tokens == whole.training_tokens
    assert first.training_tokens == sum(map(sum, HEAD))
    torch.testing.assert_close(head + tail, both, rtol=1e-4, atol=1e-6)
    assert head.norm() > 0.1 * both.norm()
    assert (head - both).norm() > 0.1 * both.norm()


def test_all_tokens_is_the_step_as_it_was(adapted: Callable[[], Any]) -> None:
    """A mask that keeps every token gives the same bits as none."""
    assert step(adapted(), ALL)[0] == step(adapted(), ())[0]


def test_what_was_cut_takes_its_mask_with_it(adapted: Callable[[], Any]) -> None:
    """Where a truncated completion is left out, the others keep their own tokens."""
    model = adapted()
    settings = LearnerSettings(
        **{name: getattr(SETTINGS, name) for name in SETTINGS.__struct_fields__} | {"truncated": "exclude"}
    )
    group = TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES, (True, False, False, False), credited=HEAD)
    found = GrpoLearner(model, settings, pad_id=0).step(group)
    assert found.training_tokens == sum(map(sum, HEAD[1:]))

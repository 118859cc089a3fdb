"""TTT-Discover's step: its gradient by hand, its batches, and going on after a stop."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from search_to_signal.base.errors import LearnerError
from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.learner.base import LearnerSetup, StepResult, TrainingGroup, WaitingGroup
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.records.schema import facts_of_rule
from search_to_signal.search.hosts.entropic.learner import EntropicLearner
from search_to_signal.search.hosts.entropic.rule import EntropicSettings

pytestmark = pytest.mark.slow

LEARNER = LearnerSettings(lora_rank=4, lora_alpha=8, learning_rate=5e-3, max_grad_norm=1e9, optimizer="sgd")
Make = Callable[..., EntropicLearner]


@pytest.fixture
def learner(new_model: Callable[..., Any]) -> Make:
    """Make a learner with an adapter that is not the base any more; settings of the rule by name."""

    def make(settings: LearnerSettings = LEARNER, **rule: Any) -> EntropicLearner:
        model = attach_adapter(new_model(), settings, 3)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.add_(0.02)
        return EntropicLearner(LearnerSetup(model, settings, 0, rule))

    return make


def groups(count: int) -> list[TrainingGroup]:
    """Groups of three completions whose tokens and credit follow from their number."""
    return [
        TrainingGroup(
            (5, 6, 7 + step),
            ((11, 12, 2), (13, 14 + step, 15, 2), (16, 2)),
            np.array([0.9, -0.5, 0.1 * step]),
        )
        for step in range(count)
    ]


def taught(made: EntropicLearner, given: Sequence[TrainingGroup]) -> list[StepResult]:
    """The results of steps."""
    return [made.step(group) for group in given]


def plain_gradient(model: Any, given: Sequence[TrainingGroup], penalty: float) -> dict[str, torch.Tensor]:
    """The same gradient sequence by sequence, from the model's own forward pass."""
    rows = [
        (g.prompt_ids, ids, a) for g in given for ids, a in zip(g.completion_ids, g.advantages, strict=True)
    ]

    def logps(prompt: Sequence[int], ids: Sequence[int]) -> torch.Tensor:
        whole = torch.tensor([[*prompt, *ids]])
        logits = model(whole).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        return logits.gather(1, torch.tensor(ids)[:, None])[:, 0]

    with torch.no_grad():
        policy = [logps(prompt, ids) for prompt, ids, _ in rows]
        with model.disable_adapter():
            base = [logps(prompt, ids) for prompt, ids, _ in rows]
    ratios = [one - other for one, other in zip(policy, base, strict=True)]
    mean = torch.cat(ratios).mean()
    loss = sum(
        -((float(a) + penalty * (mean - ratio)) * logps(prompt, ids)).sum()
        for (prompt, ids, a), ratio in zip(rows, ratios, strict=True)
    )
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))


def test_a_step_follows_the_gradient_by_hand(learner: Make) -> None:
    """With plain gradient descent the adapter moves by minus the rate times the gradient of the formula."""
    made = learner(groups_per_batch=2, kl_penalty_coef=0.3)
    expected = plain_gradient(made.model, groups(2), 0.3)
    before = {name: p.detach().clone() for name, p in made.model.named_parameters() if p.requires_grad}
    waiting, trained = taught(made, groups(2))
    assert (waiting.training_tokens, trained.training_tokens) == (0, 18)
    assert trained.kl is not None
    assert trained.kl != 0
    for name, parameter in made.model.named_parameters():
        if parameter.requires_grad:
            moved = (parameter.detach() - before[name]) / -LEARNER.learning_rate
            torch.testing.assert_close(moved, expected[name], rtol=1e-3, atol=1e-3)


def test_the_penalty_pulls_back_to_the_base(learner: Make) -> None:
    """Without credit, the penalty alone brings the log-ratio to the base nearer to zero."""
    made = learner(groups_per_batch=1, kl_penalty_coef=1.0)
    flat = TrainingGroup((5, 6, 7), ((11, 12, 13, 2), (40, 41, 2)), np.zeros(2))
    waiting = WaitingGroup(flat.prompt_ids, flat.completion_ids, (0.0, 0.0))  # type: ignore[arg-type]
    before = made._scored(waiting).ratio
    assert all(result.training_tokens for result in taught(made, [flat] * 20))
    counted = before != 0
    assert made._scored(waiting).ratio[counted].std() < 0.9 * before[counted].std()


def test_a_stopped_learner_goes_on_to_the_same_adapters(learner: Make) -> None:
    """Five groups in batches of two are the same adapters with a dump after any of them."""
    adam = LearnerSettings(lora_rank=4, lora_alpha=8, learning_rate=5e-3, max_grad_norm=1.0)
    undisturbed = [r.adapter_sha256 for r in taught(learner(adam, groups_per_batch=2), groups(5))]
    assert len(set(undisturbed)) == 3
    for stop in range(5):
        first, second = learner(adam, groups_per_batch=2), learner(adam, groups_per_batch=2)
        taught(first, groups(5)[:stop])
        second.load(first.dump())
        assert [r.adapter_sha256 for r in taught(second, groups(5)[stop:])] == undisturbed[stop:]


def test_the_check_of_batches_knows_the_default() -> None:
    """Verifying takes no model library, and so has the default from elsewhere."""
    assert facts_of_rule("entropic", {}).groups_per_step == EntropicSettings().groups_per_batch


def test_what_is_not_finite_never_reaches_a_weight(learner: Make) -> None:
    """An advantage that is not a number, and another rule's checkpoint, are one line each."""
    made = learner(groups_per_batch=1)
    with pytest.raises(LearnerError, match="not finite"):
        made.step(TrainingGroup((5,), ((6, 2),), np.array([np.nan])))
    with pytest.raises(LearnerError, match="another learning rule"):
        made.load(b"\x93 something else")

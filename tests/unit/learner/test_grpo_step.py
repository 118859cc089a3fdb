"""One optimizer opportunity: what it moves, what it never touches, and what it refuses."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from search_to_signal.base.errors import ConfigError, LearnerError, NotFiniteError
from search_to_signal.learner import get_rule, grpo_loss
from search_to_signal.learner.adapter import adapter_sha256, adapter_tensors, attach_adapter, merge_adapter
from search_to_signal.learner.base import StepResult, TrainingGroup
from search_to_signal.learner.grpo import GrpoLearner, PreparedGroup
from search_to_signal.learner.grpo_loss import token_group, token_log_probabilities
from search_to_signal.learner.optimizer import clipped_step
from search_to_signal.learner.settings import GrpoSettings, LearnerSettings

pytestmark = pytest.mark.slow

PROMPT = (5, 6, 7, 8)
COMPLETIONS = ((11, 12, 13, 2), (14, 15, 2), (16, 17, 18, 19, 20), (21, 2))
ADVANTAGES = np.array([1.2, -0.9, 0.4, -0.7])
SETTINGS = LearnerSettings(lora_rank=4, lora_alpha=8, learning_rate=5e-3)

Make = Callable[..., GrpoLearner]


@pytest.fixture
def learner(new_model: Callable[..., Any]) -> Make:
    """Make a learner with a fresh adapter."""
    return lambda seed=3: GrpoLearner(attach_adapter(new_model(), SETTINGS, seed), SETTINGS, pad_id=0)


def log_probabilities(model: Any) -> torch.Tensor:
    """Sum of the log-probabilities of each completion."""
    group = token_group(PROMPT, COMPLETIONS, pad_id=0)
    with torch.no_grad():
        return (token_log_probabilities(model, group) * group.completion_mask).sum(dim=1)


def base_weights(model: Any) -> dict[str, bytes]:
    """Every weight that is not the adapter's."""
    state = model.state_dict().items()
    return {name: value.numpy().tobytes() for name, value in state if "lora_" not in name}


def logits(model: Any) -> torch.Tensor:
    """Logits of the first sequence."""
    with torch.no_grad():
        out: torch.Tensor = model(input_ids=torch.tensor([[*PROMPT, *COMPLETIONS[0]]])).logits
    return out


def test_credit_has_the_right_sign(learner: Make) -> None:
    """Completions with positive advantage become likelier, the others less likely."""
    teacher = learner()
    before = log_probabilities(teacher.model)
    teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
    moved = (log_probabilities(teacher.model) - before).numpy()
    assert np.array_equal(np.sign(moved), np.sign(ADVANTAGES))


def test_result_says_what_happened(learner: Make) -> None:
    """The result counts the tokens with loss and names the adapter that the step left behind."""
    teacher = learner()
    before = adapter_sha256(teacher.model)
    result = teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
    assert result.training_tokens == 14
    assert result.adapter_sha256 == adapter_sha256(teacher.model) != before
    assert result.grad_norm > 0
    assert result.kl == pytest.approx(0.0, abs=1e-9)
    assert result.loss == pytest.approx(-ADVANTAGES.mean(), abs=1e-6)


def test_equal_steps_give_equal_adapters(learner: Make) -> None:
    """Two learners with one history have the same adapter, bit for bit."""
    first, second = learner(), learner()
    for _ in range(2):
        results = [one.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES)) for one in (first, second)]
        assert results[0] == results[1]


def test_no_credit_is_kl_alone(learner: Make) -> None:
    """A group without credit moves no probability of a fresh adapter, and later costs its KL alone."""
    teacher = learner()
    before = log_probabilities(teacher.model)
    fresh = teacher.step(TrainingGroup(PROMPT, COMPLETIONS, np.zeros(4)))
    assert (fresh.loss, fresh.kl, fresh.grad_norm) == (0.0, 0.0, 0.0)
    assert torch.equal(log_probabilities(teacher.model), before)
    teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
    later = teacher.step(TrainingGroup(PROMPT, COMPLETIONS, np.zeros(4)))
    assert later.kl > 0
    assert later.loss == pytest.approx(SETTINGS.kl * later.kl, rel=1e-4)


def test_reference_is_the_base_model(learner: Make) -> None:
    """The KL is measured from the model without its adapter, not from the adapter of the last step."""
    teacher = learner()
    for _ in range(3):
        teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
    group = token_group(PROMPT, COMPLETIONS, pad_id=0)
    with torch.no_grad():
        adapted = token_log_probabilities(teacher.model, group)
        with teacher.model.disable_adapter():
            base = token_log_probabilities(teacher.model, group)
    gap = base - adapted
    each = ((gap.exp() - gap - 1) * group.completion_mask).sum(dim=1) / group.completion_mask.sum(dim=1)
    assert teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES)).kl == pytest.approx(
        float(each.mean()), rel=1e-4
    )


def test_base_weights_never_change(learner: Make) -> None:
    """Steps change the adapter and not one byte of the base model."""
    teacher = learner()
    before = base_weights(teacher.model)
    for _ in range(2):
        teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
    assert base_weights(teacher.model) == before


@pytest.mark.parametrize(
    "bad",
    [[np.nan, 0.0, 0.0, 0.0], [np.inf, 0.0, 0.0, 0.0], [1.0], [1.0, -1.0]],
    ids=["nan", "infinite", "one for all", "too few"],
)
def test_bad_credit_is_refused(learner: Make, bad: Sequence[float]) -> None:
    """Advantages that are not finite numbers, one per completion, change nothing, neither then nor later."""
    teacher, untouched = learner(), learner()
    before = adapter_sha256(teacher.model)
    with pytest.raises(LearnerError):
        teacher.step(TrainingGroup(PROMPT, COMPLETIONS, np.array(bad)))
    assert adapter_sha256(teacher.model) == before
    assert teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES)) == untouched.step(
        TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES)
    )


def test_a_gradient_that_is_not_finite_is_a_skipped_opportunity(learner: Make) -> None:
    """It is told, moves no weight and leaves no trace in the steps that follow."""
    teacher, untouched = learner(), learner()
    before = adapter_sha256(teacher.model)
    found = teacher.step(TrainingGroup(PROMPT, COMPLETIONS, np.array([1e300, 0.0, 0.0, 0.0])))
    assert found.not_finite
    assert (found.loss, found.grad_norm, found.training_tokens) == (None, None, 0)
    assert found.adapter_sha256 == before == adapter_sha256(teacher.model)
    assert teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES)) == untouched.step(
        TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES)
    )


def test_what_is_thought_of_padding_reaches_no_gradient(
    learner: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding so improbable to the adapter that exp overflows leaves the gradient of real tokens finite."""
    teacher = learner()
    group = teacher.group(PROMPT, COMPLETIONS, ())
    reference = teacher.reference(group)
    for name in ("_repeated_prompt", "_cached_prompt"):
        read = getattr(grpo_loss, name)
        monkeypatch.setattr(
            grpo_loss,
            name,
            lambda *given, read=read: read(*given) - 1e4 * (given[-1].completion_mask == 0),
        )
    assert teacher.update([PreparedGroup(group, reference, ADVANTAGES)]).grad_norm is not None


def test_published_weights_speak_like_the_adapter(new_model: Callable[..., Any]) -> None:
    """After every step the plain copy gives the adapted model's logits; publishing twice changes nothing."""
    plain = new_model()
    teacher = GrpoLearner(attach_adapter(copy.deepcopy(plain), SETTINGS, 3), SETTINGS, pad_id=0)
    untaught = logits(plain)
    for _ in range(3):
        teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
        merge_adapter(teacher.model, plain)
        torch.testing.assert_close(logits(plain), logits(teacher.model), rtol=1e-4, atol=1e-4)
        once = {name: value.clone() for name, value in plain.state_dict().items()}
        merge_adapter(teacher.model, plain)
        assert all(torch.equal(once[name], value) for name, value in plain.state_dict().items())
    assert not torch.allclose(logits(plain), untaught, atol=1e-2)


def test_the_seed_decides_the_first_adapter(learner: Make) -> None:
    """Equal seeds give equal adapters, other seeds others, and none changes what the model says."""
    first, same, other = learner(1).model, learner(1).model, learner(2).model
    assert adapter_sha256(first) == adapter_sha256(same) != adapter_sha256(other)
    with torch.no_grad(), first.disable_adapter():
        base = logits(first)
    assert torch.equal(logits(first), base)
    touched = {name.split(".lora_")[0].split(".")[-1] for name in adapter_tensors(first)}
    assert touched == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


TWICE = GrpoSettings(updates=2, epsilon=0.01)


def test_a_further_update_compares_with_the_policy_that_sampled(new_model: Callable[..., Any]) -> None:
    """Two updates of one group are two steps on its clipped loss."""
    teacher = GrpoLearner(attach_adapter(new_model(), SETTINGS, 3), SETTINGS, 0, TWICE)
    by_hand = GrpoLearner(attach_adapter(new_model(), SETTINGS, 3), SETTINGS, 0)
    result = teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
    group = by_hand.group(PROMPT, COMPLETIONS)
    reference, credit = by_hand.reference(group), torch.tensor(ADVANTAGES, dtype=torch.float32)
    parameters = [p for p in by_hand.model.parameters() if p.requires_grad]
    sampled = token_log_probabilities(by_hand.model, group).detach()
    for _ in range(2):
        logps = token_log_probabilities(by_hand.model, group)
        loss, _ = grpo_loss.grpo_loss(
            logps, group, reference, credit, SETTINGS.kl, sampled=sampled, epsilon=0.01
        )
        loss.backward()
        clipped_step(by_hand.optimizer, parameters, SETTINGS.max_grad_norm, "group")
    assert result.adapter_sha256 == adapter_sha256(by_hand.model)
    assert result.loss == float(loss.detach())


def test_the_clip_acts_from_the_second_update_on(new_model: Callable[..., Any]) -> None:
    """With one update it changes no bit; with two it does."""
    group = TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES)
    made = {
        rule: GrpoLearner(attach_adapter(new_model(), SETTINGS, 3), SETTINGS, 0, rule).step(group)
        for rule in (GrpoSettings(), GrpoSettings(epsilon=0.01), GrpoSettings(updates=2), TWICE)
    }
    once, clipped, twice, both = (result.adapter_sha256 for result in made.values())
    assert once == clipped
    assert len({once, twice, both}) == 3


def test_a_later_gradient_that_is_not_finite_undoes_the_group(
    new_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The opportunity is skipped whole: adapter and optimizer are as before it."""
    teacher = GrpoLearner(attach_adapter(new_model(), SETTINGS, 3), SETTINGS, 0, TWICE)
    before, calls = teacher.dump(), []

    def failing(*given: Any) -> float:
        calls.append(given)
        if len(calls) == 2:
            raise NotFiniteError("the gradient is not finite")
        return clipped_step(*given)

    monkeypatch.setattr("search_to_signal.learner.grpo.clipped_step", failing)
    result = teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
    assert result.not_finite
    assert result.training_tokens == 0
    assert teacher.dump() == before


OTHER = TrainingGroup((9, 8), ((21, 2), (22, 23, 2)), np.array([0.4, -0.4]))
FLAT = TrainingGroup((9, 8), ((21, 2), (22, 23, 2)), np.zeros(2))


def test_a_step_on_several_prompts_follows_the_mean_of_their_gradients(new_model: Callable[..., Any]) -> None:
    """The first group waits; with the second the adapter moves as far as half of each would move it."""
    settings = msgspec.structs.replace(SETTINGS, optimizer="sgd", max_grad_norm=1e9)
    groups = [TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES), OTHER]

    def moved(given: list[TrainingGroup], **rule: int) -> tuple[list[StepResult], dict[str, torch.Tensor]]:
        model = attach_adapter(new_model(), settings, 3)
        before = {name: tensor.clone() for name, tensor in adapter_tensors(model).items()}
        results = list(map(GrpoLearner(model, settings, 0, GrpoSettings(**rule)).step, given))
        return results, {name: tensor - before[name] for name, tensor in adapter_tensors(model).items()}

    (waiting, step), together = moved(groups, prompts_per_step=2)
    assert (waiting.loss, waiting.training_tokens) == (None, 0)
    alone = [moved([group]) for group in groups]
    assert step.training_tokens == sum(results[0].training_tokens for results, _ in alone)
    assert step.loss == pytest.approx(np.mean([results[0].loss for results, _ in alone]), abs=1e-6)
    for name, change in together.items():
        torch.testing.assert_close(change, (alone[0][1][name] + alone[1][1][name]) / 2, rtol=1e-4, atol=1e-7)
    assert any(change.any() for change in together.values())


def test_a_group_without_advantage_leaves_its_place_to_the_next(new_model: Callable[..., Any]) -> None:
    """So often in a row as asked; the one after that takes the place, and steps on the KL term."""
    rule = GrpoSettings(redraws=2, prompts_per_step=2)
    teacher = GrpoLearner(attach_adapter(new_model(), SETTINGS, 3), SETTINGS, 0, rule)
    results = [teacher.step(group) for group in (FLAT, OTHER, FLAT, FLAT, FLAT)]
    assert [result.dropped for result in results] == ["no_advantage", None, *["no_advantage"] * 2, None]
    assert [result.training_tokens for result in results] == [0, 0, 0, 0, 10]
    assert len({result.adapter_sha256 for result in results[:4]}) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"updates": 0},
        {"updates": 1.5},
        {"epsilon": 0},
        {"clip": 0.2},
        {"prompts_per_step": 0},
        {"redraws": -1},
    ],
)
def test_settings_of_the_rule_are_checked(settings: dict[str, Any]) -> None:
    """Before a run begins."""
    with pytest.raises(ConfigError):
        get_rule("grpo").check(settings)

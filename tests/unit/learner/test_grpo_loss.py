"""The loss is TRL's: mean over completions of the mean over their tokens."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from search_to_signal.base.errors import LearnerError
from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.learner.grpo_loss import (
    TokenGroup,
    chosen_log_probabilities,
    grpo_loss,
    token_group,
    token_log_probabilities,
)
from search_to_signal.learner.settings import LearnerSettings

pytestmark = pytest.mark.slow  # it loads the largest libraries

trl = pytest.importorskip("trl")
OLD = trl.__version__ == "0.15.1"

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


def test_log_probabilities_are_trl_s(model: Any) -> None:
    """Reading the prompt once for all completions changes rounding alone, whatever the precision."""
    group = token_group(PROMPT, COMPLETIONS, pad_id=0)
    utils = pytest.importorskip("trl.trainer.utils")
    ids = torch.cat([group.prompt_ids, group.completion_ids], dim=1)
    for precision in (torch.float32, torch.bfloat16):
        logits = model(input_ids=ids).logits[:, len(PROMPT) - 1 : -1].to(precision)
        theirs = utils.selective_log_softmax(logits, group.completion_ids)
        assert torch.equal(chosen_log_probabilities(logits, group.completion_ids), theirs)
        if precision == torch.float32:
            counted = group.completion_mask.bool()
            torch.testing.assert_close(token_log_probabilities(model, group)[counted], theirs[counted])


def of_trl(
    logps: torch.Tensor, group: TokenGroup, inputs: dict[str, Any], epsilon: float
) -> tuple[torch.Tensor, Any]:
    """Loss and metrics by the method of TRL's trainer, on what it reads of a trainer and nothing else."""

    def same(tensor: torch.Tensor, reduction: str = "") -> torch.Tensor:
        return tensor

    metrics: Any = defaultdict(list)
    trainer = SimpleNamespace(
        beta=KL,
        accelerator=SimpleNamespace(gather=same, gather_for_metrics=same, reduce=same),
        _metrics=metrics if OLD else defaultdict(lambda: metrics),
        _get_per_token_logps=lambda *_: logps,
        # What newer releases read as well.
        _get_per_token_logps_and_entropies=lambda *_, **__: (logps, torch.zeros_like(logps), None),
        **{"loss_type": "grpo", "importance_sampling_level": "token", "top_entropy_quantile": 1.0},
        **{"epsilon_low": epsilon, "epsilon_high": epsilon, "current_gradient_accumulation_steps": 1},
        **dict.fromkeys(("aux_loss_enabled", "use_vllm", "_entropy_bonus_enabled"), False),
        off_policy_mask_threshold=None,
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None),
        model=SimpleNamespace(training=True),
    )
    inputs = {
        "prompt_ids": group.prompt_ids,
        "prompt_mask": torch.ones_like(group.prompt_ids),
        "completion_ids": group.completion_ids,
        "completion_mask": group.completion_mask,
        **inputs,
    }
    method = trl.GRPOTrainer.compute_loss if OLD else trl.GRPOTrainer._compute_loss
    return method(trainer, None, inputs), metrics


@pytest.mark.parametrize(
    "epsilon",
    [math.inf, pytest.param(0.2, marks=pytest.mark.skipif(OLD, reason="TRL 0.15.1 clips nothing"))],
)
def test_loss_and_gradient_are_trl_s(epsilon: float) -> None:
    """On random groups, of TRL 0.15.1 to the bit with the KL; of newer releases, which clip, the loss."""
    draw = torch.Generator().manual_seed(1)
    for number in range(200):
        size, width = 1 + number % 5, 1 + number % 37
        lengths = torch.randint(1, width + 1, (size,), generator=draw).tolist()
        group = token_group(PROMPT, [[3] * length for length in lengths], pad_id=0)
        shape = group.completion_ids.shape
        reference, step, older = (torch.randn(shape, generator=draw) for _ in range(3))
        policy, advantages = reference + 0.3 * step, torch.randn(size, generator=draw)
        given: dict[str, Any] = {"ref_per_token_logps": reference, "advantages": advantages}
        sampled = None
        if math.isfinite(epsilon):
            sampled = given["old_per_token_logps"] = policy + 0.3 * older
        ours, theirs = (policy.clone().requires_grad_() for _ in range(2))
        loss, kl = grpo_loss(ours, group, reference, advantages, KL, sampled=sampled, epsilon=epsilon)
        expected, metrics = of_trl(theirs, group, given, epsilon)
        assert torch.equal(loss, expected)
        assert not OLD or [kl] == metrics["kl"]
        gradients = *torch.autograd.grad(loss, ours), *torch.autograd.grad(expected, theirs)
        if OLD:
            assert torch.equal(*gradients)
        else:  # which add up in another order
            torch.testing.assert_close(*gradients)


def test_a_ratio_beyond_the_clip_has_no_gradient() -> None:
    """A token that became likelier than 1 + epsilon allows earns nothing more."""
    group = token_group(PROMPT, ((11,), (12,), (13,)), pad_id=0)
    sampled = torch.full((3, 1), -2.0)
    policy = (sampled + torch.tensor([[0.5], [0.5], [0.1]])).requires_grad_()
    credit = torch.tensor([1.0, -1.0, 1.0])
    loss, _ = grpo_loss(policy, group, sampled, credit, kl=0.0, sampled=sampled, epsilon=0.2)
    loss.backward()  # type: ignore[no-untyped-call]
    assert policy.grad is not None
    assert policy.grad[0] == 0.0
    assert policy.grad[1] > 0.0 > policy.grad[2]
    assert float(loss) == pytest.approx((-1.2 + math.exp(0.5) - math.exp(0.1)) / 3)


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

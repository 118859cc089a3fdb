"""What of the advantage reaches the tokens: as a configuration names it, and by lengths under each rule."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.unit.audit.test_trainer_scalars import run

from search_to_signal import audit
from search_to_signal.audit.loss import Loss, loss_advice, loss_lines, loss_of
from search_to_signal.audit.scalars import scalars

# One group: a right answer of 100 tokens, a wrong one of 100, and a long one that was cut off.
TOKENS = (100, 100, 800)


def findings(**columns: Any) -> audit.Findings:
    given = {
        "advantage": [1.0, -0.5, -0.5],
        "tokens": TOKENS,
        "status": ["stop", "stop", "length"],
        "step": [1],
    }
    return audit.audit(audit.of_arrays([1, 0, 0], [3], **given | columns))


def test_shares_of_the_weight_by_rule() -> None:
    """Token by token the long answer has 400 of 550, completion by completion a quarter."""
    lengths = findings().lengths
    assert lengths["token_mean"].part(lengths["token_mean"].cut_weight) == pytest.approx(400 / 550)
    assert lengths["sequence_mean"].part(lengths["sequence_mean"].cut_weight) == pytest.approx(0.25)
    assert lengths["sequence_mean"].part(lengths["sequence_mean"].raised_weight) == pytest.approx(0.5)
    assert lengths["constant_length"].part(lengths["constant_length"].raised_weight) == pytest.approx(
        100 / 550
    )


def test_tokens_that_the_trainer_masked_are_weighed() -> None:
    """Of the long answer 300 of 800 tokens are outside the trust region: 150 of 550."""
    groups = audit.of_arrays([1, 0, 0], [3], advantage=[1.0, -0.5, -0.5], tokens=TOKENS)
    found = audit.audit(replace(groups, metrics={"is_masked": np.array([0.0, 0.0, 300.0])}))
    sums = found.lengths["token_mean"]
    assert sums.part(sums.clipped_weight) == pytest.approx(150 / 550)
    assert any("importance ratio" in one.says for one in loss_advice(Loss(), found))
    assert not any("importance ratio" in one.says for one in loss_advice(Loss(), audit.audit(groups)))


@pytest.mark.parametrize(
    ("settings", "loss"),
    [
        (
            {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": None, "mask_truncated_completions": True},
            Loss("token_mean", "loss_type=dapo", 0.2, 0.2, masks_cut=True),
        ),
        (
            {
                "loss_type": ["dr_grpo"],
                "epsilon": 0.2,
                "epsilon_high": 0.28,
                "importance_sampling_level": "sequence",
            },
            Loss("constant_length", "loss_type=dr_grpo", 0.2, 0.28, sequences=True),
        ),
        (
            {
                "a/actor/loss_agg_mode": "seq-mean-token-mean",
                "a/actor/clip_ratio": 0.2,
                "a/actor/clip_ratio_c": 3.0,
            },
            Loss("sequence_mean", "a.actor.loss_agg_mode=seq-mean-token-mean", 0.2, 0.2, 3.0),
        ),
        (
            {"loss_fn/token_level_loss": True, "loss_fn/ratio_clip_min": 0.2, "loss_fn/ratio_clip_max": 0.3},
            Loss("token_mean", "loss_fn.token_level_loss=True", 0.2, 0.3),
        ),
        ({"learning_rate": 1e-6}, Loss()),
    ],
)
def test_a_configuration_names_the_loss(settings: dict[str, Any], loss: Loss) -> None:
    assert loss_of(settings) == loss


def test_without_a_configuration_the_frameworks_usual_rule_is_said() -> None:
    """Of a framework whose formula explains the log; of no other anything is said."""
    groups = audit.of_arrays([1, 0, 0], [3], tokens=TOKENS)
    assert loss_of({}, audit.audit(groups, normalizer="verl-grpo")).rule == "token_mean"
    assert loss_of({}, audit.audit(groups, normalizer="group")) == Loss()


def test_cut_completions_that_are_trained_are_a_finding() -> None:
    """With the share under other rules; not where they are masked, nor where they carry little."""
    found = findings()
    (cut,) = [one for one in loss_advice(Loss("token_mean"), found) if "cut off" in one.says]
    assert cut.cost == pytest.approx(400 / 550)
    assert "25 % under sequence_mean" in cut.instead
    assert not [
        one for one in loss_advice(Loss("token_mean", masks_cut=True), found) if "cut off" in one.says
    ]
    short = findings(tokens=(800, 800, 20))
    assert not [one for one in loss_advice(Loss("token_mean"), short) if "cut off" in one.says]


def test_long_completions_that_decide_are_a_finding_with_a_setting() -> None:
    """The option of the log's framework for the rule under which they weigh least."""
    groups = audit.of_arrays([1, 0, 0], [3], tokens=TOKENS)
    found = audit.audit(groups, normalizer="verl-grpo")
    (long,) = [one for one in loss_advice(loss_of({}, found), found) if "longest" in one.says]
    assert "loss_agg_mode=seq-mean-token-mean" in long.change
    assert not [one for one in loss_advice(Loss("sequence_mean"), found) if "longest" in one.says]


def test_bounds_without_effect_are_said() -> None:
    never = scalars([run({"clip_ratio/region_mean": np.zeros(9)})])
    some = scalars([run({"clip_ratio/region_mean": np.full(9, 0.01)})])
    assert any("No token was ever clipped" in line for line in loss_lines(Loss(), never))
    assert not loss_lines(Loss(), some)

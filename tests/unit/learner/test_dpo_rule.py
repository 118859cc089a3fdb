"""DPO in rounds: TRL's own trainer beside ours, what a round is made of, and going on after a stop."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from stock_dpo_trainer import stock_dpo_trainer
from trl import DPOTrainer

from search_to_signal.base.errors import ConfigError, LearnerError
from search_to_signal.base.seeding import stream
from search_to_signal.base.settings import settings_of
from search_to_signal.learner import get_rule
from search_to_signal.learner.adapter import adapter_sha256, adapter_tensors, attach_adapter
from search_to_signal.learner.base import LearnerSetup, StepResult, TrainingGroup
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.records.reader import read_groups
from search_to_signal.records.schema import CompletionRecord, PreferencePair
from search_to_signal.search.hosts.evotune.learner import DpoLearner, TokenPair, dpo_loss
from search_to_signal.search.hosts.evotune.rule import DpoSettings

pytestmark = pytest.mark.slow

LEARNER = LearnerSettings(lora_rank=4, lora_alpha=8, learning_rate=5e-3, max_grad_norm=1.0)
SEED = 7
TEXTS = [
    (f"node = {i} * distance", f"def score(nodes): return {i}" + "+ 1" * (i % 4), "unvisited" + " x" * i)
    for i in range(11)
]
Make = Callable[..., DpoLearner]


@pytest.fixture
def learner(new_model: Callable[..., Any], tokenizer: Any) -> Make:
    """Make a learner with a fresh adapter; settings of the rule by name."""

    def make(seed: int = SEED, **settings: Any) -> DpoLearner:
        model = attach_adapter(new_model(), LEARNER, 3)
        return DpoLearner(LearnerSetup(model, LEARNER, tokenizer.pad_token_id, settings, seed))

    return make


def tokens(tokenizer: Any) -> list[TokenPair]:
    """The pairs as TRL reads them: with an end behind every completion."""
    ids = [[tokenizer.encode(text, add_special_tokens=False) for text in texts] for texts in TEXTS]
    end = [tokenizer.eos_token_id]
    return [TokenPair(prompt, chosen + end, rejected + end) for prompt, chosen, rejected in ids]


@pytest.mark.parametrize("divergence", ["alpha_divergence", "reverse_kl", "js_divergence"])
def test_loss_and_gradient_are_trl_s_to_the_bit(divergence: Any) -> None:
    """On random batches, also where the ratio is beyond what a float holds."""
    draw = torch.Generator().manual_seed(1)
    for number in range(60):
        settings = DpoSettings(
            f_divergence_type=divergence, f_alpha_divergence_coef=(0.5, 1.0, 2.0)[number % 3]
        )
        reference, step = (torch.randn(1 + number % 5, 2, generator=draw) for _ in range(2))
        policy = reference + (0.0, 0.1, 5.0, 60.0)[number % 4] * step
        ours, theirs = (policy.clone().requires_grad_() for _ in range(2))
        trainer = SimpleNamespace(
            accelerator=SimpleNamespace(device=policy.device),
            **{"beta": settings.beta, "loss_type": "sigmoid", "label_smoothing": 0.0},
            **{"reference_free": False, "f_divergence_type": divergence},
            f_divergence_params={"alpha_divergence_coef": settings.f_alpha_divergence_coef},
        )
        losses, chosen, rejected = DPOTrainer.dpo_loss(trainer, *theirs.unbind(1), *reference.unbind(1))
        loss, accuracy, margin = dpo_loss(ours, reference, settings)
        assert torch.equal(loss, losses.mean())
        assert torch.equal(*torch.autograd.grad(loss, ours), *torch.autograd.grad(losses.mean(), theirs))
        assert accuracy == float((chosen > rejected).float().mean())
        assert margin == float((chosen - rejected).mean())


@pytest.mark.parametrize("divergence", ["alpha_divergence", "reverse_kl", "js_divergence"])
def test_a_round_is_the_stock_trainer_s(
    learner: Make, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path, divergence: str
) -> None:
    """Eleven pairs, batches of two, two batches a step, two epochs: the adapter of TRL's loop."""
    rule: dict[str, Any] = {
        "f_divergence_type": divergence,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
    }
    ours = learner(**rule)
    updates = list(ours.round(tokens(tokenizer), step=0))
    orders = [stream(SEED, "pairs", 0, epoch).permutation(len(TEXTS)) for epoch in range(2)]
    stock = stock_dpo_trainer(
        attach_adapter(new_model(), LEARNER, 3),
        tokenizer,
        TEXTS,
        orders,
        LEARNER,
        DpoSettings(**rule),
        tmp_path,
    )
    stock.train()
    assert len(updates) == stock.state.global_step == 6
    expected, moved = adapter_tensors(stock.model), adapter_tensors(ours.model)
    for name, tensor in expected.items():
        torch.testing.assert_close(moved[name], tensor, rtol=0, atol=5e-5)
    assert all(float(moved[name].abs().max()) > 0.01 for name in moved if "lora_B" in name)


def group(records: Sequence[CompletionRecord], step: int) -> TrainingGroup:
    """A group of four whose tokens follow from step and index."""
    ids = [(30 + index, 40 + step % 20, *range(50, 50 + index), 2) for index in range(len(records))]
    return TrainingGroup((5, 6, 7 + step % 20), ids, np.zeros(len(records)), records=records)


@pytest.fixture
def groups(make_run: Callable[..., Path], tmp_path: Path) -> list[TrainingGroup]:
    """Nine groups: an improvement, a failure, a copy of the best and a worse one each."""
    recorded = read_groups(make_run(tmp_path / "run", "frozen", groups=9))
    return [group(records, step) for step, records in enumerate(recorded)]


def taught(made: DpoLearner, given: Sequence[TrainingGroup]) -> list[StepResult]:
    """The results of steps."""
    return [made.step(one) for one in given]


RULE: dict[str, Any] = {"finetuning_frequency": 3, "gradient_accumulation_steps": 2}


def test_only_a_round_trains(learner: Make, groups: list[TrainingGroup]) -> None:
    """Two groups of three teach nothing; the third trains, and the adapter stays until the next round."""
    made = learner(**RULE)
    first = adapter_sha256(made.model)
    results = taught(made, groups)
    trained = [result.training_tokens > 0 for result in results]
    assert trained == [False, False, True] * 3
    assert [result.adapter_sha256 == first for result in results[:3]] == [True, True, False]
    assert results[2].adapter_sha256 == results[3].adapter_sha256 != results[5].adapter_sha256
    assert all((result.loss is None) is not told for result, told in zip(results, trained, strict=True))


def test_a_round_takes_every_pair_so_far_above_the_threshold(
    learner: Make, groups: list[TrainingGroup]
) -> None:
    """The threshold is a percentile of the valid scores since the last round; pairs are kept for good."""
    results = taught(learner(**RULE, percentile=30), groups)
    told = [result.pairs for result in results]
    rounds = [record.round for record in told if record and record.round]
    assert [one.collected for one in rounds] == [6, 12, 18]
    for number, one in enumerate(rounds):
        recent = groups[3 * number : 3 * number + 3]
        scores = [r.score for g in recent for r in g.records if r.score is not None]
        assert one.threshold == np.percentile(scores, 70)
        seen = [pair for record in told[: 3 * number + 3] if record for pair in record.pairs]
        assert one.kept == sum(pair.chosen_score >= one.threshold for pair in seen)
    assert rounds[-1].kept < rounds[-1].collected
    assert told[0] is not None
    assert [(p.chosen, p.rejected) for p in told[0].pairs] == [(0, 2), (0, 1)]


def test_a_round_begins_with_the_first_adapter(learner: Make, groups: list[TrainingGroup]) -> None:
    """What a round learned is forgotten by the next, as the host trains its base model anew."""
    one, two = learner(**RULE), learner(**RULE)
    taught(one, groups[:6])
    taught(two, groups[:3])
    with torch.no_grad():
        for parameter in two.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.5)
    taught(two, groups[3:6])
    assert adapter_sha256(one.model) == adapter_sha256(two.model)


def test_the_last_round_alone_makes_the_adapter(learner: Make, groups: list[TrainingGroup]) -> None:
    """Groups that were collected without their rounds count in the next, and only since the last one."""
    whole, last = learner(**RULE, percentile=30), learner(**RULE, percentile=30)
    taught(whole, groups)
    for one in groups[:8]:
        last.collect(one)
    assert last.step(groups[8]).adapter_sha256 == adapter_sha256(whole.model)


def test_groups_without_a_valid_completion_train_nothing(learner: Make, groups: list[TrainingGroup]) -> None:
    """Without anything to choose there is no pair, no threshold and no round."""
    failed = [
        msgspec.structs.replace(groups[0].records[1], index=index, response_sha256=f"{index}")
        for index in range(4)
    ]
    results = taught(learner(**RULE), [group(failed, step) for step in range(3)])
    assert [result.training_tokens for result in results] == [0, 0, 0]
    assert all(result.pairs and not result.pairs.pairs and not result.pairs.round for result in results)


def test_a_stopped_learner_goes_on_to_the_same_adapters(learner: Make, groups: list[TrainingGroup]) -> None:
    """Five groups are the same adapters with a dump and another learner after any of them."""
    rule, groups = {**RULE, "finetuning_frequency": 2}, groups[:5]
    undisturbed = [result.adapter_sha256 for result in taught(learner(**rule), groups)]
    first = learner(**rule)
    for stop, one in enumerate(groups):
        second = learner(**rule)
        second.load(first.dump())
        assert [r.adapter_sha256 for r in taught(second, groups[stop:])] == undisturbed[stop:]
        assert first.step(one).adapter_sha256 == undisturbed[stop]


def test_another_learner_s_checkpoint_is_refused(learner: Make, new_model: Callable[..., Any]) -> None:
    """A checkpoint of another rank is none of this run."""
    other = LearnerSettings(lora_rank=8, lora_alpha=8)
    foreign = DpoLearner(LearnerSetup(attach_adapter(new_model(), other, 3), other, 0, {}))
    with pytest.raises(LearnerError, match="another run"):
        learner().load(foreign.dump())


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        ("dpo", {"rate": 1.0}),
        ("dpo", {"beta": 0.0}),
        ("dpo", {"lr_scheduler_type": "linear"}),
        ("entropic", {"beta": 1.0}),
        ("entropic", {"groups_per_batch": 0}),
    ],
)
def test_settings_of_another_rule_are_refused(rule: str, settings: dict[str, Any]) -> None:
    """A wrong key or value of [rule_settings] is one line that names it."""
    with pytest.raises(ConfigError, match=rf"rule_settings.*{next(iter(settings))}"):
        get_rule(rule).check(settings)


def test_the_defaults_are_the_host_s() -> None:
    """EvoTune's configuration for TSP, as published."""
    published = {
        "beta": 0.4,
        "percentile": 70,
        "finetuning_frequency": 400,
        "num_train_epochs": 2,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 16,
        "lr_scheduler_type": "cosine",
        "f_divergence_type": "alpha_divergence",
        "f_alpha_divergence_coef": 1.0,
    }
    assert settings_of(published, DpoSettings, "rule_settings") == DpoSettings()


def test_a_pair_has_the_scores_of_its_completions(learner: Make, groups: list[TrainingGroup]) -> None:
    """What is recorded of a pair are its completions' own scores, none for a failure."""
    (result,) = taught(learner(), groups[:1])
    scores = [record.score for record in groups[0].records]
    assert result.pairs is not None
    assert result.pairs.pairs == tuple(
        PreferencePair(chosen=a, rejected=b, chosen_score=scores[a] or 0.0, rejected_score=scores[b])
        for a, b in ((0, 2), (0, 1))
    )


@pytest.mark.parametrize("rule", ["dpo", "entropic"])
def test_knobs_of_grpo_are_refused(new_model: Callable[..., Any], rule: str) -> None:
    """A knob of [learner] that the rule would pass over is one line."""
    settings = LearnerSettings(lora_rank=4, lora_alpha=8, truncated="exclude")
    with pytest.raises(ConfigError, match="learner.truncated is set"):
        get_rule(rule).learner(LearnerSetup(attach_adapter(new_model(), settings, 3), settings, 0, {}))

"""What goes wrong with this stack when nobody looks; the table in learner/README.md names these tests."""

import copy
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import search_to_signal.learner as learner_package
from search_to_signal.base.errors import ConfigError, LearnerError, ModelFileError
from search_to_signal.credit.normalizers import group_advantages, trl_float32
from search_to_signal.learner.adapter import (
    adapter_sha256,
    adapter_tensors,
    attach_adapter,
    load_adapter,
    merge_adapter,
    save_adapter,
)
from search_to_signal.learner.base import StepResult, TrainingGroup
from search_to_signal.learner.grpo import GrpoLearner, PreparedGroup
from search_to_signal.learner.grpo_loss import token_group, token_log_probabilities
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models import local
from search_to_signal.models.device import load_4bit
from search_to_signal.models.sampling import SampledGroup, sample_group
from search_to_signal.models.settings import NF4

PROMPT = (5, 6, 7, 8)
COMPLETIONS = ((11, 12, 13, 2), (14, 15, 2), (16, 17, 18, 19, 20), (21, 2))
ADVANTAGES = np.array([1.2, -0.9, 0.4, -0.7])
SHAPE: dict[str, Any] = {"lora_rank": 4, "lora_alpha": 8, "learning_rate": 5e-3}
SETTINGS = LearnerSettings(**SHAPE)

Model = Callable[..., Any]


def learner(model: Any, **changes: Any) -> GrpoLearner:
    """A learner with a fresh adapter."""
    settings = LearnerSettings(**{**SHAPE, **changes})
    return GrpoLearner(attach_adapter(model, settings, 3), settings, pad_id=0)


def taught(model: Any, steps: int = 3) -> GrpoLearner:
    """A learner whose adapter says something else than its base."""
    teacher = learner(model)
    for _ in range(steps):
        teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
    return teacher


def sampled(model: Any, ends: frozenset[int] = frozenset([2])) -> SampledGroup:
    """What the model says to a fixed prompt and seeds."""
    return sample_group(model, PROMPT, seeds=(1, 2, 3, 4), max_new_tokens=24, temperature=0.9, end_ids=ends)


def test_a_group_beyond_the_context_is_refused(new_model: Model) -> None:
    """Prompt and completion are scored whole up to the model's last position; one token more is an error."""
    teacher = learner(new_model())
    limit = teacher.model.config.max_position_embeddings
    fits = [5] * (limit - 5)
    assert teacher.step(TrainingGroup(fits, COMPLETIONS, ADVANTAGES)).training_tokens == 14
    with pytest.raises(LearnerError, match=f"{limit + 1} tokens.*reads {limit}"):
        teacher.step(TrainingGroup([*fits, 5], COMPLETIONS, ADVANTAGES))


def history(model: Any, seed: int) -> tuple[str, StepResult, SampledGroup]:
    """A seeded start, a step and a sample, with the global streams disturbed before each of them."""

    def disturb(moved: int) -> None:
        random.seed(moved)
        np.random.seed(moved)
        torch.manual_seed(moved)

    plain = copy.deepcopy(model)
    disturb(seed)
    teacher = learner(model)
    start = adapter_sha256(teacher.model)
    disturb(seed + 1)
    result = teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
    merge_adapter(teacher.model, plain)
    disturb(seed + 2)
    return start, result, sampled(plain)


def test_global_random_state_plays_no_part(new_model: Model) -> None:
    """Adapter, update and sample are the same after any library has reset the global streams."""
    assert history(new_model(), 0) == history(new_model(), 1000)


def test_global_random_state_is_left_alone(new_model: Model) -> None:
    """Drawing an adapter and stepping take nothing from the global streams of others."""
    model = new_model()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    taught(model, steps=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_reference_stays_the_base_after_publishing(new_model: Model) -> None:
    """Steps and publications leave the reference log-probabilities as they were, bit for bit."""
    plain = new_model()
    teacher = learner(copy.deepcopy(plain))
    group = teacher.group(PROMPT, COMPLETIONS)
    before = teacher.reference(group)
    for _ in range(3):
        teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
        merge_adapter(teacher.model, plain)
    assert torch.equal(teacher.reference(group), before)
    assert not any(module.merged for module in teacher.model.modules() if hasattr(module, "lora_A"))


def test_a_restart_speaks_with_its_adapter_at_once(new_model: Model, tmp_path: Path) -> None:
    """The first rollout from a stored adapter is what its parent would have said next, not the base."""
    parent = taught(new_model())
    save_adapter(parent.model, tmp_path)
    spoken = new_model()
    merge_adapter(parent.model, spoken)

    sampler = new_model()
    untaught = sampled(sampler)
    restarted = load_adapter(copy.deepcopy(sampler), tmp_path)
    merge_adapter(restarted, sampler)
    assert adapter_sha256(restarted) == adapter_sha256(parent.model)
    assert sampled(sampler) == sampled(spoken) != untaught


def test_a_restart_without_its_files_is_refused(new_model: Model, tmp_path: Path) -> None:
    """A missing or damaged adapter is an error, never a silent start from the base."""
    save_adapter(taught(new_model(), steps=1).model, tmp_path)
    weights = tmp_path / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ModelFileError, match="restore its files"):
        load_adapter(new_model(), tmp_path)
    (tmp_path / "adapter_config.json").unlink()
    with pytest.raises(ModelFileError, match="adapter_config.json"):
        load_adapter(new_model(), tmp_path)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_tight_groups_have_the_bits_of_torch(size: int) -> None:
    """The float32 option rounds as torch does one group at a time, also where rewards hardly differ (D16)."""
    rng = np.random.default_rng(7)
    centre, spread = rng.uniform(-5.0, 5.0, (2_000, 1)), 10.0 ** rng.uniform(-7.0, 1.0, (2_000, 1))
    rewards = (centre + spread * rng.standard_normal((2_000, size))).astype(np.float32)
    groups = torch.from_numpy(rewards).split(1)
    expected = torch.cat([(group - group.mean(dim=1)) / (group.std(dim=1) + 1e-4) for group in groups])
    np.testing.assert_array_equal(trl_float32(rewards.astype(np.float64)), expected.numpy())


def test_adam_would_amplify_the_residue_of_a_flat_group(new_model: Model) -> None:
    """Rounding residue in equal rewards moves weights by the whole rate; exact zeros move none (D16)."""
    rewards = np.full((1, 8), -0.95)
    residue, zeros = trl_float32(rewards)[0], group_advantages(rewards)[0]
    assert 0.0 < np.abs(residue).max() < 2e-3
    assert not zeros.any()
    moved = []
    for advantages in (residue, zeros):
        teacher = learner(new_model())
        teacher.step(TrainingGroup(PROMPT, COMPLETIONS * 2, advantages))
        tensors = adapter_tensors(teacher.model)
        moved.append(max(float(tensors[name].abs().max()) for name in tensors if "lora_B" in name))
    assert moved[0] > 0.9 * SETTINGS.learning_rate
    assert moved[1] == 0.0


def test_an_opportunity_without_credit_can_be_skipped(new_model: Model) -> None:
    """Skipping leaves adapter and optimizer as they were, and says that nothing was trained on."""
    skipping, waiting = learner(new_model(), zero_advantage="skip"), learner(new_model())
    for teacher in (skipping, waiting):
        teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
    here = adapter_sha256(skipping.model)
    assert skipping.step(TrainingGroup(PROMPT, COMPLETIONS, np.zeros(4))) == StepResult(
        None, None, None, 0, here
    )
    assert skipping.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES)) == waiting.step(
        TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES)
    )


def test_what_was_cut_can_be_left_out_of_the_loss(new_model: Model) -> None:
    """Under the other reading of D25 the step is that of the others, at their share of the group."""
    cut = (False, True, False, False)
    teacher = learner(new_model(), truncated="exclude", optimizer="sgd", max_grad_norm=float("inf"))
    other = learner(new_model(), optimizer="sgd", max_grad_norm=float("inf"))
    result = teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES, cut))
    whole = [index for index in range(4) if not cut[index]]
    group = other.group(PROMPT, [COMPLETIONS[index] for index in whole])
    # Credit is linear in the loss, and the KL of a fresh adapter is zero.
    expected = other.update([PreparedGroup(group, other.reference(group), 0.75 * ADVANTAGES[whole])])
    assert result.training_tokens == expected.training_tokens == sum(len(COMPLETIONS[i]) for i in whole)
    assert result.loss == pytest.approx(expected.loss, rel=1e-5)
    assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    plain, seen = learner(new_model()), learner(new_model())
    assert plain.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES, cut)) == seen.step(
        TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES)
    )


def test_a_group_of_nothing_but_cut_completions_is_no_step(new_model: Model) -> None:
    """Nothing carries loss, so adapter and optimizer stay as they are."""
    teacher = learner(new_model(), truncated="exclude")
    here = adapter_sha256(teacher.model)
    found = teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES, (True,) * 4))
    assert found == StepResult(None, None, None, 0, here)


def test_a_skipped_group_is_still_checked(new_model: Model) -> None:
    """A group that could not be scored is an error in either use of its opportunity."""
    with pytest.raises(LearnerError, match="empty"):
        learner(new_model(), zero_advantage="skip").step(TrainingGroup(PROMPT, ((), (2,)), np.zeros(2)))


def test_plain_descent_follows_the_scale_of_credit(new_model: Model) -> None:
    """The control has neither momentum nor decay: twice the advantages give twice the step."""
    steps = []
    for factor in (1.0, 2.0):
        teacher = learner(new_model(), optimizer="sgd", max_grad_norm=float("inf"), learning_rate=1.0)
        start = adapter_tensors(teacher.model)
        start = {name: value.clone() for name, value in start.items()}
        teacher.step(TrainingGroup(PROMPT, COMPLETIONS, factor * ADVANTAGES))
        after = adapter_tensors(teacher.model)
        steps.append({name: after[name] - start[name] for name in after if "lora_B" in name})
    for name, once in steps[0].items():
        torch.testing.assert_close(steps[1][name], 2.0 * once, rtol=1e-4, atol=1e-9)


def test_checkpointing_changes_memory_alone(new_model: Model) -> None:
    """With activations recomputed, which allows no cache, the adapter moves as it does without."""
    plain, saving = learner(new_model()), learner(new_model(), gradient_checkpointing=True)
    for teacher in (plain, saving):
        for _ in range(2):
            teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
    assert saving.model.is_gradient_checkpointing
    assert adapter_sha256(saving.model) != adapter_sha256(attach_adapter(new_model(), SETTINGS, 3))
    expected, moved = adapter_tensors(plain.model), adapter_tensors(saving.model)
    for name, tensor in expected.items():
        torch.testing.assert_close(moved[name], tensor, rtol=0, atol=1e-4)


def test_equal_weights_have_no_divergence_when_checkpointed(new_model: Model) -> None:
    """Policy and reference are read in the same way, so rounding does not pass for a KL."""
    result = learner(new_model(), gradient_checkpointing=True).step(
        TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES)
    )
    assert result.kl == 0.0


def test_a_model_of_unsloth_is_given_no_cache(new_model: Model) -> None:
    """Its forward pass would take a single token behind one; the log-probabilities are the same."""
    model = new_model()
    group = token_group(PROMPT, COMPLETIONS, pad_id=0)
    expected, forward = token_log_probabilities(model, group), model.forward

    def without_cache(*arguments: Any, **keywords: Any) -> Any:
        assert keywords.get("past_key_values") is None
        return forward(*arguments, **keywords)

    model.forward, model.config.unsloth_version = without_cache, "2025.3.18"
    found = token_log_probabilities(model, group)
    mask = group.completion_mask.bool()
    torch.testing.assert_close(found[mask], expected[mask])


def test_reentrant_checkpointing_finds_the_gradient(new_model: Model) -> None:
    """Unsloth checkpoints in the reentrant way, which gives no gradient unless an input asks for one."""
    teacher = learner(new_model(), gradient_checkpointing=True)
    teacher.model.gradient_checkpointing_enable({"use_reentrant": True})
    result = teacher.step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
    plain = learner(new_model()).step(TrainingGroup(PROMPT, COMPLETIONS, ADVANTAGES))
    assert result.grad_norm == pytest.approx(plain.grad_norm, rel=1e-3)


def test_a_reference_is_not_checkpointed(new_model: Model) -> None:
    """From the first reference on the model is in evaluation mode, whatever mode it was loaded in."""
    teacher = learner(new_model().train(), gradient_checkpointing=True)
    assert not any(module.training for module in teacher.model.modules())


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_low_precision_needs_a_gpu(new_model: Model, tmp_path: Path) -> None:
    """8-bit AdamW and a 4-bit base are refused by the name of the setting where there is no GPU."""
    with pytest.raises(ConfigError, match=r"learner\.optimizer = 'adamw_8bit' needs a GPU"):
        learner(new_model(), optimizer="adamw_8bit")
    with pytest.raises(ConfigError, match=r"learner\.load_in_4bit\) needs a GPU"):
        load_4bit(tmp_path)


def test_a_base_in_4_bits_without_its_library_is_refused_by_what_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile that says ``model.quantization`` is not sent to a setting that it does not have."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(local, "prepare_device", lambda device: None)
    monkeypatch.setattr(local, "try_model", lambda directory: None)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ConfigError, match=r'^model\.quantization = "nf4" .*needs bitsandbytes'):
        local.open_base_model(tmp_path, NF4)


def test_the_table_of_traps_names_tests_that_exist() -> None:
    """Every test that the learner's README names stands in this tree."""
    table = Path(learner_package.__file__).with_name("README.md").read_text(encoding="utf-8")
    tests = (path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    defined = set(re.findall(r"^def (test_\w+)\(", "\n".join(tests), re.MULTILINE))
    named = set(re.findall(r"`(?:\w+/)?(test_\w+)`", table))
    assert len(named) > 15
    assert named <= defined

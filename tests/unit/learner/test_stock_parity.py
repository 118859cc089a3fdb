"""Our step beside the loop it comes from: TRL's own trainer on equal prompts, tokens and rewards."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stock_trainer import replayed, stock_trainer

from search_to_signal.credit.normalizers import group_advantages
from search_to_signal.learner.adapter import adapter_tensors, attach_adapter
from search_to_signal.learner.grpo import GrpoLearner, PreparedGroup
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.base import GenerationSettings, cut_prompt

SETTINGS = LearnerSettings(lora_rank=4, lora_alpha=8, learning_rate=5e-3)
PROMPTS = ("node = 4 * distance", "def score(nodes): return", "unvisited")
REWARDS = ((1.1, -0.3, -0.85, 0.2), (0.0, 0.0, 0.0, 0.0), (-1.0, -1.0, 1.5, -0.95))
END, SECOND = 2, 1
# Ended at once, ended early, cut at the limit; then one with another special token in its middle.
COMPLETIONS = (
    ((END,), (40, 41, END), (50, 51, 52, 53, 54, 55), (60, 61, 62, 63, 64, END)),
    ((40, SECOND, 41, END), (SECOND, SECOND, END), (50, 51, END), (60, END)),
    ((70, 71, END), (72, END), (73, 74, 75, 76, 77, 78), (79, END)),
)


@pytest.fixture
def play(new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path) -> Callable[..., Any]:
    """Let TRL's trainer go through groups of given tokens; ``stops`` are the ids at which generation ends."""
    assert tokenizer.eos_token_id == END

    def run(groups: Sequence[Sequence[Sequence[int]]], stops: int | list[int] = END, **options: Any) -> Any:
        rewards = iter(REWARDS)
        model = attach_adapter(new_model(), SETTINGS, 3)
        model.generation_config.eos_token_id = stops
        trainer = stock_trainer(
            model,
            tokenizer,
            PROMPTS[: len(groups)],
            lambda **_: list(next(rewards)),
            SETTINGS,
            tmp_path,
            max_completion_length=6,
            **options,
        )
        with replayed(groups, END):
            trainer.train()
        return trainer

    return run


def test_steps_are_those_of_the_stock_trainer(
    play: Callable[..., Any], new_model: Callable[..., Any], tokenizer: Any
) -> None:
    """Three steps, one of them without credit: the same tokens, masks, references, advantages, adapter."""
    stock = play(COMPLETIONS)
    teacher = GrpoLearner(attach_adapter(new_model(), SETTINGS, 3), SETTINGS, tokenizer.pad_token_id)
    for prompt, completions, rewards, theirs in zip(
        PROMPTS, COMPLETIONS, REWARDS, stock.prepared, strict=True
    ):
        group = teacher.group(tokenizer.encode(prompt, add_special_tokens=False), completions)
        advantages, reference = group_advantages(np.array([rewards]))[0], teacher.reference(group)
        counted = group.completion_mask.bool()
        assert torch.equal(group.prompt_ids, theirs["prompt_ids"])
        assert torch.equal(group.completion_mask, theirs["completion_mask"])
        assert torch.equal(group.completion_ids[counted], theirs["completion_ids"][counted])
        torch.testing.assert_close(reference[counted], theirs["ref_per_token_logps"][counted])
        np.testing.assert_allclose(advantages, theirs["advantages"], atol=1e-6)
        teacher.update([PreparedGroup(group, reference, advantages)])
    expected, moved = adapter_tensors(stock.model), adapter_tensors(teacher.model)
    assert list(expected) == list(moved)
    for name, tensor in expected.items():
        torch.testing.assert_close(moved[name], tensor, rtol=0, atol=5e-5)
    assert all(float(moved[name].abs().max()) > 0.01 for name in moved if "lora_B" in name)


def test_padding_after_a_second_stop_id_never_counts(
    play: Callable[..., Any], new_model: Callable[..., Any], tokenizer: Any
) -> None:
    """Where generation may stop on another id, TRL trains on the padding behind it, and we do not."""
    group = ((60, SECOND), (40, END), (50, 51, 52, 53, 54, 55), (61, 62, END))
    theirs = play([group], stops=[END, SECOND]).prepared[0]
    teacher = GrpoLearner(attach_adapter(new_model(), SETTINGS, 3), SETTINGS, tokenizer.pad_token_id)
    ours = teacher.group(tokenizer.encode(PROMPTS[0], add_special_tokens=False), group)
    assert torch.equal(ours.completion_ids[0], theirs["completion_ids"][0])
    assert theirs["completion_mask"].sum(dim=1).tolist() == [6, 2, 6, 3]
    assert ours.completion_mask.sum(dim=1).tolist() == [2, 2, 6, 3]


def test_long_prompts_are_cut_as_by_the_stock_trainer(
    play: Callable[..., Any], new_model: Callable[..., Any], tokenizer: Any
) -> None:
    """A prompt over the limit is scored as TRL scores it, by its last tokens, and not as the whole one."""
    theirs = play(COMPLETIONS[:1], max_prompt_length=4).prepared[0]
    ids = tokenizer.encode(PROMPTS[0], add_special_tokens=False)
    teacher = GrpoLearner(attach_adapter(new_model(), SETTINGS, 3), SETTINGS, tokenizer.pad_token_id)
    ours = teacher.group(cut_prompt(ids, GenerationSettings(max_prompt_tokens=4)), COMPLETIONS[0])
    assert len(ids) > 4
    assert torch.equal(ours.prompt_ids, theirs["prompt_ids"])
    counted, scored = ours.completion_mask.bool(), teacher.reference(ours)
    torch.testing.assert_close(scored[counted], theirs["ref_per_token_logps"][counted])
    whole = teacher.reference(teacher.group(ids, COMPLETIONS[0]))
    assert not torch.allclose(scored[counted], whole[counted], atol=1e-3)

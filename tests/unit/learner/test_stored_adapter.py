"""A restart really speaks with the stored adapter from its first token on, or does not start."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.learner.adapter import adapter_sha256, attach_adapter, save_adapter
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.base import GenerationSettings
from search_to_signal.models.local import LocalGenerator
from search_to_signal.run.learning import load_stored_adapter

pytestmark = pytest.mark.slow  # it loads the largest libraries

SETTINGS = LearnerSettings(lora_rank=2, lora_alpha=4)
IDS = torch.tensor([[3, 4, 5]])


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    """What a model computes."""
    found: torch.Tensor = model(input_ids=IDS).logits
    return found


def generator(model: Any, tokenizer: Any) -> LocalGenerator:
    """A fresh generator over a model."""
    return LocalGenerator(model, tokenizer, GenerationSettings())


@pytest.fixture
def stored(new_model: Callable[..., Any], tmp_path: Path) -> tuple[Path, Any]:
    """A trained adapter in files, and the adapted model that they came from."""
    adapted = attach_adapter(new_model(), SETTINGS, 7)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(1))
    save_adapter(adapted, tmp_path / "adapter")
    return tmp_path / "adapter", adapted


def test_the_sampler_computes_what_the_adapted_model_computes(
    stored: tuple[Path, Any], new_model: Callable[..., Any], tokenizer: Any
) -> None:
    """The trap of the paper's stack: an adapter that is loaded, but not into the weights sampled from."""
    directory, adapted = stored
    sampler = generator(new_model(), tokenizer)
    before = logits(sampler.model)
    assert load_stored_adapter(directory, adapter_sha256(adapted), sampler.base(), sampler) == adapter_sha256(
        adapted
    )
    assert not torch.allclose(logits(sampler.model), before, atol=1e-2)
    torch.testing.assert_close(logits(sampler.model), logits(adapted), atol=1e-4, rtol=1e-4)


def test_another_adapter_than_the_recorded_one_stops_the_restart(
    stored: tuple[Path, Any], new_model: Callable[..., Any], tokenizer: Any
) -> None:
    """The checksum is of what was loaded; a mismatch leaves the sampler as it was."""
    directory, _ = stored
    sampler = generator(new_model(), tokenizer)
    before = logits(sampler.model)
    with pytest.raises(RunDirectoryError, match=r"checksum.*recorded 0000"):
        load_stored_adapter(directory, "0000", sampler.base(), sampler)
    assert torch.equal(logits(sampler.model), before)


def test_a_shared_model_holds_the_adapter_itself(
    stored: tuple[Path, Any], new_model: Callable[..., Any], tokenizer: Any
) -> None:
    """As a 4-bit model does, which cannot take up a sum: attached is spoken with, and nothing is copied."""
    directory, adapted = stored
    sampler = LocalGenerator(new_model(), tokenizer, GenerationSettings(), shared=True)
    load_stored_adapter(directory, adapter_sha256(adapted), sampler.base(), sampler)
    torch.testing.assert_close(logits(sampler.model), logits(adapted), atol=1e-4, rtol=1e-4)

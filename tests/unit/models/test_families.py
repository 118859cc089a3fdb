"""Models of several families, tiny and random, sample and learn; where layers fit, by the fast paths.

Families that the installed transformers does not know are left out: tests/core/stack.sh has a newer one.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from search_to_signal.learner.adapter import adapter_sha256, attach_adapter, load_adapter, save_adapter
from search_to_signal.learner.grpo_loss import fitting_group, grpo_loss, token_log_probabilities
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.cpu_decoder import CpuDecoder, can_decode, has_fitting_layers
from search_to_signal.models.local import gives_its_logits
from search_to_signal.models.releases import OLDER
from search_to_signal.models.sampling import CachedDecoder, open_decoder, sample

pytestmark = pytest.mark.slow  # it loads the largest libraries

SIZES = {
    **{"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128},
    **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 32, "rope_theta": 10000.0}
# The configuration, what it has besides the sizes, and whether the fast paths compute it.
FAMILIES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "Qwen2": ("Qwen2Config", {}, True),
    "Qwen3": ("Qwen3Config", {"head_dim": 16}, True),
    "Llama 3.2": ("LlamaConfig", {"tie_word_embeddings": True, "rope_scaling": LLAMA3}, True),
    "Gemma 3": ("Gemma3TextConfig", {"head_dim": 16, "sliding_window": 8}, False),
    "SmolLM3": ("SmolLM3Config", {}, False),
    "Phi-3": ("Phi3Config", {}, False),
    "Granite": ("GraniteConfig", {"residual_multiplier": 0.2}, False),
}
PROMPT = tuple(range(3, 20))


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """A family that the installed transformers knows."""
    if not hasattr(transformers, FAMILIES[request.param][0]):
        pytest.skip(f"transformers {transformers.__version__} does not know {request.param}")
    return str(request.param)


def model_of(family: str) -> Any:
    """A random model, its norms too, since at one they would hide what leaves them out."""
    name, more, _ = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, name)(**SIZES, **more)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    for parameter_name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.data.uniform_(0.5, 1.5)
        elif "embed" not in parameter_name:
            parameter.data.mul_(5.0)
    return model


@torch.no_grad()
def test_every_family_samples_the_tokens_of_its_own_forward_pass(family: str) -> None:
    """Where a fast decoder takes a model, it draws what the model's own passes draw."""
    model = model_of(family)
    decoder = open_decoder(model, PROMPT, 3, 24)
    assert isinstance(decoder, CpuDecoder) == FAMILIES[family][2]
    decoders = (decoder, CachedDecoder(model, PROMPT, 3))
    drawn = [sample(each, (1, 2, 3), 24, 1.0, frozenset({2})) for each in decoders]
    assert drawn[0] == drawn[1]


@torch.no_grad()
def test_the_cards_token_step_computes_what_the_fast_decoder_does(family: str) -> None:
    """Read token by token with plain tensors, a fitting model gives its logits; a scaled one does not."""
    model = model_of(family)
    if has_fitting_layers(model):
        assert gives_its_logits(model) == can_decode(model) == FAMILIES[family][2]


def test_every_family_learns(family: str, tmp_path: Path) -> None:
    """An adapter on what layers there are has a gradient, and is stored and loaded."""
    adapted = attach_adapter(model_of(family), LearnerSettings(lora_rank=4, lora_alpha=8), seed=1)
    group = fitting_group(adapted, PROMPT, [(5, 6, 7, 2), (8, 9)], 0)
    with torch.no_grad(), adapted.disable_adapter():
        reference = token_log_probabilities(adapted, group)
    logps = token_log_probabilities(adapted, group)
    loss, divergence = grpo_loss(logps, group, reference, torch.tensor([1.0, -1.0]), 0.04)
    loss.backward()
    gradients = [parameter.grad for name, parameter in adapted.named_parameters() if "lora_B" in name]
    assert divergence == 0.0
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients)
    assert any(bool(gradient.any()) for gradient in gradients if gradient is not None)
    save_adapter(adapted, tmp_path)
    assert adapter_sha256(load_adapter(model_of(family), tmp_path)) == adapter_sha256(adapted)


def test_an_adapted_model_samples_by_the_fast_path_too() -> None:
    """The adapter's product belongs to what the decoder multiplies with, under norms of heads as well."""
    family = "Qwen2" if OLDER else "Qwen3"
    adapted = attach_adapter(model_of(family), LearnerSettings(lora_rank=4, lora_alpha=8), seed=1).eval()
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0.0, 0.1)
    with torch.no_grad():
        fast, own = open_decoder(adapted, PROMPT, 2, 8), CachedDecoder(adapted, PROMPT, 2)
        assert isinstance(fast, CpuDecoder)
        assert sample(fast, (1, 2), 8, 1.0, frozenset()) == sample(own, (1, 2), 8, 1.0, frozenset())

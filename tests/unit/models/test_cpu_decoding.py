"""The CPU decoder: the model's own logits, for every model that it accepts, and no other model accepted."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models import cpu_decoder
from search_to_signal.models.cpu_decoder import CpuDecoder, can_decode
from search_to_signal.models.sampling import CachedDecoder, Decoder, open_decoder

pytestmark = pytest.mark.slow  # it loads the largest libraries

IDS = [40, 41, 42, 43, 44, 3, 2, 1]
SIZES = {
    "vocab_size": 90,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}
LONG_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def _llama(**changes: Any) -> Any:
    return LlamaForCausalLM(LlamaConfig(**(SIZES | changes)))


def _qwen(**changes: Any) -> Any:
    model = Qwen2ForCausalLM(Qwen2Config(**(SIZES | changes)))
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj"):
            torch.nn.init.normal_(getattr(layer.self_attn, name).bias)
        torch.nn.init.normal_(layer.input_layernorm.weight, 1.0, 0.1)
    return model


def _adapted(**changes: Any) -> Any:
    model = attach_adapter(_qwen(**changes), LearnerSettings(lora_rank=4, lora_alpha=8), 1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, 0.0, 0.1)
    return model


ACCEPTED: dict[str, Callable[[], Any]] = {
    "qwen2": _qwen,
    "tied": lambda: _qwen(tie_word_embeddings=True),
    "llama": _llama,
    "llama with scaled rope": lambda: _llama(rope_scaling=LONG_ROPE),
    "every head its own keys": lambda: _llama(head_dim=16),
    "with an adapter": _adapted,
}
REFUSED: dict[str, Callable[[], Any]] = {
    "half precision": lambda: _qwen().bfloat16(),
    "training": lambda: _qwen().train(),
    "sliding window": lambda: _qwen(use_sliding_window=True, sliding_window=4, max_window_layers=0),
    "rope that depends on the length": lambda: _llama(rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
    "biases everywhere": lambda: _llama(attention_bias=True),
    "no language model": lambda: object(),
}


def logits(decoder: Decoder, tokens: torch.Tensor) -> torch.Tensor:
    """The logits before each column of tokens, and after the last."""
    seen = [decoder.logits]
    for column in tokens.unbind(dim=1):
        decoder.read(column)
        seen.append(decoder.logits)
    return torch.stack(seen, dim=1)


@pytest.fixture
def tokens() -> torch.Tensor:
    """What three completions say."""
    return torch.randint(0, 90, (3, 12), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", ACCEPTED)
@torch.no_grad()
def test_every_step_sees_what_an_uncached_pass_sees(name: str, tokens: torch.Tensor) -> None:
    """The logits of every step are those of the whole text read afresh by transformers."""
    torch.manual_seed(3)
    model = ACCEPTED[name]().eval()
    decoder = open_decoder(model, IDS, 3, 12)
    assert isinstance(decoder, CpuDecoder)
    whole = model(torch.cat([torch.tensor([IDS] * 3), tokens], dim=1)).logits[:, len(IDS) - 1 :]
    torch.testing.assert_close(logits(decoder, tokens), whole, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_an_adapter_counts_while_it_is_on(tokens: torch.Tensor) -> None:
    """A disabled adapter leaves the base model's logits; enabled, they differ from those."""
    model = _adapted().eval()
    on = logits(open_decoder(model, IDS, 3, 12), tokens)
    with model.disable_adapter():
        off = logits(open_decoder(model, IDS, 3, 12), tokens)
        plain = logits(CachedDecoder(model, IDS, 3), tokens)
    torch.testing.assert_close(off, plain, rtol=1e-4, atol=1e-4)
    assert (on - off).abs().max() > 0.1


@pytest.mark.parametrize("kind", ["cpu", "cached"])
@torch.no_grad()
def test_rows_that_stay_are_not_disturbed(kind: str, tokens: torch.Tensor) -> None:
    """When a row leaves, the others go on as if nothing had happened."""
    model = _llama().eval()
    whole = logits(CachedDecoder(model, IDS, 3), tokens)
    decoder = open_decoder(model, IDS, 3, 12) if kind == "cpu" else CachedDecoder(model, IDS, 3)
    logits(decoder, tokens[:, :4])
    decoder.keep([0, 2])
    rest = logits(decoder, tokens[[0, 2], 4:])[:, 1:]
    torch.testing.assert_close(rest, whole[[0, 2], 5:], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_torchscript_computes_the_bits_of_the_same_code_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records hold: no operation is fused, split or put in another order, with several rows or one."""
    torch.manual_seed(3)
    model = _qwen(hidden_size=192, intermediate_size=640).eval()
    tokens = torch.randint(0, 90, (3, 12))

    def decode() -> list[torch.Tensor]:
        decoder = open_decoder(model, IDS, 3, 12)
        group = logits(decoder, tokens[:, :6])
        decoder.keep([1])
        return [group, logits(decoder, tokens[1:2, 6:])]

    scripted = decode()
    monkeypatch.setattr(cpu_decoder, "_scripted_next_logits", cpu_decoder._next_logits)
    assert all(map(torch.equal, scripted, decode()))


@pytest.mark.parametrize("name", REFUSED)
def test_other_models_keep_their_own_forward_pass(name: str) -> None:
    """What the CPU decoder would compute differently, or slower, goes through transformers."""
    model = REFUSED[name]()
    assert not can_decode(model if name == "training" or not hasattr(model, "eval") else model.eval())


@torch.no_grad()
def test_weights_are_read_when_the_prompt_is(tokens: torch.Tensor) -> None:
    """A learner may change the weights between two groups; the next group speaks with the new ones."""
    model = _qwen().eval()
    before = logits(open_decoder(model, IDS, 3, 12), tokens)
    model.model.layers[1].mlp.down_proj.weight.mul_(1.5)
    after = logits(open_decoder(model, IDS, 3, 12), tokens)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, logits(CachedDecoder(model, IDS, 3), tokens), rtol=1e-4, atol=1e-4)

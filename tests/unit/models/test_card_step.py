"""The kernels for a card compute what the plain token step computes; here Triton interprets them."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

# Triton decides when it is loaded whether it interprets.
_COMPARE = """
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from search_to_signal.models import local
from search_to_signal.models.card_step import CardStep
from search_to_signal.models.card_step import can_step
from search_to_signal.models.token_step import copy_adapter
from search_to_signal.models.token_step import read_tokens
from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.learner.settings import LearnerSettings

torch.manual_seed(0)
sizes = dict(vocab_size=192, hidden_size=128, intermediate_size=128, num_hidden_layers=1)
model = Qwen2ForCausalLM(Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=1)).eval()
for parameter in model.parameters():
    if parameter.dim() == 1:
        parameter.data.normal_(1, 0.1)
adapted = attach_adapter(model, LearnerSettings(lora_rank=16, lora_alpha=32), seed=1)
for name, parameter in adapted.named_parameters():
    if "lora_B" in name:
        parameter.data.normal_(0, 0.05)
factors = []
weights = local._weights(adapted, 80, factors)
copy_adapter(factors)
plain, ours = (local._state(adapted, 2, 80) for _ in range(2))
for cache, other in zip(plain.caches, ours.caches):
    for part, same in zip(cache, other):
        same.copy_(part.normal_())
assert can_step(weights, 2)
norms = tuple(torch.rand(64) + 0.5 for _ in range(2))
normed = weights._replace(layers=[layer._replace(head_norms=norms) for layer in weights.layers])
with torch.no_grad():
    for position, weights in ((0, weights), (33, weights), (79, weights), (5, normed), (79, normed)):
        step = CardStep(weights, ours)
        tokens = torch.randint(0, 192, (2,))
        plain.position.fill_(position)
        ours.position.fill_(position)
        read_tokens(tokens, weights, plain)
        step(tokens)
        torch.testing.assert_close(ours.logits, plain.logits, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours.caches[0][0], plain.caches[0][0], rtol=1e-4, atol=1e-5)
print("equal")
"""


def test_the_kernels_compute_the_plain_step() -> None:
    """Logits and cache agree at the first place, within a block and at the last, with an adapter; so they do
    where queries and keys of a head have norms."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": "artifact"}
    done = subprocess.run(
        [sys.executable, "-c", _COMPARE], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.stdout.strip() == "equal", done.stderr[-2000:]

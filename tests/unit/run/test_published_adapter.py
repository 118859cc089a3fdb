"""What a learner learned reaches the sampler, and an endpoint's counts reach the records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from search_to_signal.learner.adapter import TrainedAdapter, adapter_sha256, attach_adapter
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.base import Completion, Generation, GenerationSettings
from search_to_signal.models.local import LocalGenerator
from search_to_signal.problems import get_problem
from search_to_signal.records.schema import ArchiveEvent, Outcome, RequestRecord
from search_to_signal.run.group import EvaluatedCompletion, completion_records
from search_to_signal.search.hosts.calm.host import ReferenceHost
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import initial_state
from search_to_signal.search.member import Prompt, seed_member

pytestmark = pytest.mark.slow  # it loads the largest libraries

PROMPT = Prompt("", "score += 0.4")


def adapted(generator: LocalGenerator) -> Any:
    """A learner's model over the generator's, after some learning."""
    model = attach_adapter(generator.base(), LearnerSettings(lora_rank=4, lora_alpha=8), 1).eval()
    generated = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(0.0, 0.3, generator=generated)
    return model


def test_the_next_group_speaks_with_the_adapter(new_model: Callable[..., Any], tokenizer: Any) -> None:
    """After adoption the sampler says what the adapted model says, without touching the learner's base."""
    settings = GenerationSettings(group_size=3, max_completion_tokens=12)
    generator = LocalGenerator(new_model(), tokenizer, settings)
    model = adapted(generator)
    before = generator.generate(PROMPT, 7)
    generator.load_adapter(TrainedAdapter(model))
    after = generator.generate(PROMPT, 7)
    assert after.completions != before.completions
    assert after == LocalGenerator(model, tokenizer, settings).generate(PROMPT, 7)
    with model.disable_adapter():
        assert before == LocalGenerator(model, tokenizer, settings).generate(PROMPT, 7)


def test_an_adapter_is_offered_as_files(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    """For an engine the adapter is written in PEFT's form, and nothing of it changes."""
    model = adapted(LocalGenerator(new_model(), tokenizer, GenerationSettings()))
    before = adapter_sha256(model)
    TrainedAdapter(model).save(tmp_path)
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {path.name for path in tmp_path.iterdir()}
    assert adapter_sha256(model) == before


def test_reported_counts_are_recorded() -> None:
    """Where an endpoint gives no ids, a record holds the counts that it reported for that completion."""
    problem = get_problem("tsp")
    request = ReferenceHost(problem, SearchSettings()).propose(
        initial_state(seed_member(problem.seed, -7.0)), np.random.default_rng(1)
    )
    requests = [
        RequestRecord(
            seed=index,
            model="m",
            fingerprint=None,
            id="x",
            finish_reason="stop",
            prompt_tokens=90 + index,
            completion_tokens=5 + index,
        )
        for index in range(2)
    ]
    completions = tuple(Completion((), "no", False, request) for request in requests)
    judged = [
        EvaluatedCompletion(completion, Outcome.MISSING_CODE, "", None, None, None, None)
        for completion in completions
    ]
    records = completion_records(
        request, 0, "tsp", Generation("[]", (), completions), judged, [ArchiveEvent.INVALID] * 2, [None] * 2
    )
    assert [(record.prompt_tokens, record.completion_tokens) for record in records] == [(90, 5), (91, 6)]

"""A prompt over its limit: what is cut, and that sampler and learner read the same tokens."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_to_signal.base.errors import ConfigError
from search_to_signal.credit.normalizers import group_advantages
from search_to_signal.models.base import cut_prompt
from search_to_signal.models.settings import GenerationSettings
from search_to_signal.problems import get_problem
from search_to_signal.search.hosts.calm.prompts import INJECTION, build_prompt
from search_to_signal.search.member import Prompt

END = 1
lengths, limits = st.integers(1, 40), st.integers(1, 40)
tokens = st.lists(st.integers(0, 99), min_size=1, max_size=40)


def settings(limit: int, **changes: Any) -> GenerationSettings:
    """Groups of two completions of one token."""
    return GenerationSettings(group_size=2, max_prompt_tokens=limit, max_completion_tokens=1, **changes)


@given(prompt=tokens, limit=limits)
def test_the_cut_is_on_the_left(prompt: list[int], limit: int) -> None:
    """R-GEN-01: A prompt keeps its last tokens, as many as its limit, in their order (D26)."""
    kept = cut_prompt(prompt, settings(limit))
    assert len(kept) == min(len(prompt), limit)
    assert prompt[len(prompt) - len(kept) :] == kept


@given(prompt=tokens, limit=limits)
def test_refusing_is_a_setting(prompt: list[int], limit: int) -> None:
    """R-GEN-02: A long prompt that is to be refused is an error that names both settings (D26)."""
    refusing = settings(limit, long_prompts="refuse")
    if len(prompt) <= limit:
        assert cut_prompt(prompt, refusing) == prompt
        return
    with pytest.raises(ConfigError, match=r"max_prompt_tokens is \d+: raise it .* generation\.long_prompts"):
        cut_prompt(prompt, refusing)


def test_trl_cuts_so_what_it_scores() -> None:
    """R-GEN-03: The installed TRL scores a prompt's last tokens; with vLLM it samples from its text (D26)."""
    spec = importlib.util.find_spec("trl")
    if spec is None or spec.origin is None:
        pytest.skip("TRL is not installed")
    source = (Path(spec.origin).parent / "trainer" / "grpo_trainer.py").read_text(encoding="utf-8")
    assert "prompt_ids = prompt_ids[:, -self.max_prompt_length :]" in source
    assert "self.llm.generate(all_prompts_text" in source


class Tokenizer:
    """Makes the same tokens of any text."""

    pad_token_id, eos_token_id = 0, END

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = list(ids)

    def apply_chat_template(self, chat: Any, **options: Any) -> str:
        return "text"

    def encode(self, text: str, **options: Any) -> list[int]:
        return list(self._ids)

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        return ""


def local(ids: Sequence[int], own: GenerationSettings, read: list[list[int]]) -> Any:
    """The local generator over a model that notes what it reads."""
    import torch

    from search_to_signal.models.local import LocalGenerator

    def model(input_ids: Any, past_key_values: Any, **options: Any) -> Any:
        read.extend(input_ids.tolist())
        return SimpleNamespace(logits=torch.zeros(*input_ids.shape, 9), past_key_values=past_key_values)

    model.device = "cpu"  # type: ignore[attr-defined]
    return LocalGenerator(model, Tokenizer(ids), own)


def engine(ids: Sequence[int], own: GenerationSettings, read: list[list[int]]) -> Any:
    """The engine's generator, which Unsloth's is too, over one that notes what it reads."""
    from search_to_signal.models.vllm import Engine, VllmGenerator

    def generate(prompts: Any, **options: Any) -> list[Any]:
        asked = [prompt["prompt_token_ids"] for prompt in prompts]
        read.append(asked[0])
        answer = SimpleNamespace(token_ids=[END], finish_reason="stop")
        return [SimpleNamespace(prompt_token_ids=one, outputs=[answer]) for one in asked]

    model = SimpleNamespace(model_config=SimpleNamespace(max_model_len=4096))
    llm = SimpleNamespace(llm_engine=model, generate=generate, reset_prefix_cache=lambda: True)
    made = Engine(llm, lambda **options: None, lambda *arguments: None)
    return VllmGenerator(made, Tokenizer(ids), own, Path(), frozenset({END}))


@pytest.mark.parametrize("opened", [local, engine])
@given(prompt=tokens, limit=limits)
def test_what_is_sampled_from_is_what_is_scored(opened: Any, prompt: list[int], limit: int) -> None:
    """R-GEN-04: The learner scores the prompt tokens that were sampled from, which the record holds (D26)."""
    pytest.importorskip("trl", reason="a learner needs torch and TRL")
    from search_to_signal.credit import get_mapping
    from search_to_signal.run.group import generation_record
    from search_to_signal.run.learning import Training

    read: list[list[int]] = []
    scored: list[list[int]] = []
    learner = SimpleNamespace(model=None, step=lambda group: scored.append(list(group.prompt_ids)))
    unchanged = SimpleNamespace(load_adapter=lambda adapter: None)
    training = Training(
        get_mapping("native"),
        group_advantages,
        learner,
        "",
        unchanged,  # type: ignore[arg-type]
    )
    generation = opened(prompt, settings(limit), read).generate(Prompt("", ""), 7)
    training.update(generation, [SimpleNamespace(advantage=0.0, step=0)] * 2)  # type: ignore[list-item]
    kept = prompt[-limit:]
    assert read[0] == scored[0] == list(generation_record(0, generation).prompt_ids) == kept
    assert generation.prompt_tokens_cut == len(prompt) - len(kept)


@given(explored=st.lists(st.builds(str.__mul__, st.sampled_from("abc"), st.integers(1, 5000)), max_size=20))
def test_no_completion_lengthens_every_later_prompt(explored: list[str]) -> None:
    """R-GEN-05: A prompt names ten explored components, each by at most 200 characters (D26)."""
    problem = get_problem("tsp")
    asked, plain = (
        build_prompt(problem, INJECTION, (), injected=injected).user for injected in (explored, ())
    )
    named = asked.removeprefix(plain)
    assert len(named) <= len(" Already explored: .") + 10 * 202
    assert all(phrase[:200] in named for phrase in explored[-10:])

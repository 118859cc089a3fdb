"""TRL's own trainer, the locked one, with our reward: the example on a tiny random model."""

import importlib.util
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "trl_reward.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trl_reward", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_trainer_trains_ten_steps(
    example: ModuleType, tokenizer: Any, new_model: Callable[..., Any]
) -> None:
    tokenizer = deepcopy(tokenizer)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'][-8:] }}{% endfor %}"
    tokenizer.padding_side = "left"
    log = example.train(new_model(), tokenizer, longest=4)
    assert [entry["reward"] for entry in log] == [-0.5] * 10
    example.REWARD.close()

"""A language model small enough to make in a blink, for the tests of generators and learner."""

from collections.abc import Callable
from typing import Any

import pytest

SAMPLE = (
    "def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):\n"
    "    score = distance_matrix[current_node, nodes] * 0.4\n    return int(nodes[np.argmin(score)])\n"
)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A byte-level tokenizer with a few merges."""
    from search_to_signal.generators.chat import train_tokenizer

    return train_tokenizer([SAMPLE], 300)


@pytest.fixture(scope="session")
def new_model(tokenizer: Any) -> Callable[..., Any]:
    """Make a fresh two-layer Qwen2 whose weights follow from the seed, with a far from uniform answer."""
    from search_to_signal.learner.pretrain import Architecture, build_model

    def make(seed: int = 0) -> Any:
        shape = Architecture("qwen2", 32, 64, 2, 4, 2, 256, 0.2)
        return build_model(shape, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, seed).eval()

    return make

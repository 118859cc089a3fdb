"""Make an embedded model from its recipe: corpus, tokenizer, training, files."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from search_to_signal.corpus.pairs import Pair
from search_to_signal.corpus.recipe import mixed_pairs
from search_to_signal.generators.chat import END, messages, train_tokenizer
from search_to_signal.learner.pretrain import (
    Architecture,
    Example,
    Optimization,
    batches,
    begin,
    build_model,
    train,
)
from search_to_signal.progress import Progress
from search_to_signal.seeding import derive_seed, stream

RECIPE = "recipe.toml"


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that decides an embedded model's weights."""

    name: str
    problems: tuple[str, ...]
    seed: int
    threads: int
    vocabulary_size: int
    tokenizer_examples: int
    architecture: Architecture
    optimization: Optimization
    defect_shares: dict[str, float]


def _text(tokenizer: Any, pair: Pair) -> tuple[str, str]:
    prompt = tokenizer.apply_chat_template(messages(pair.prompt), tokenize=False, add_generation_prompt=True)
    return prompt, pair.response + END


def _examples(tokenizer: Any, drawn: Iterator[Pair]) -> Iterator[Example]:
    for pair in drawn:
        prompt, response = (
            tokenizer.encode(part, add_special_tokens=False) for part in _text(tokenizer, pair)
        )
        yield Example(np.array(prompt + response, dtype=np.int64), len(prompt))


def _tokenizer(recipe: Recipe) -> Any:
    drawn = mixed_pairs(recipe.problems, recipe.defect_shares, stream(recipe.seed, "tokenizer"))
    sample = itertools.islice(drawn, recipe.tokenizer_examples)
    return train_tokenizer(
        (f"{pair.prompt.user}\n{pair.response}" for pair in sample), recipe.vocabulary_size
    )


def pretrain(recipe: Recipe, out: Path, progress: Progress) -> None:
    """Train the recipe's model into ``out``; an unfinished run goes on where it stopped."""
    torch.set_num_threads(recipe.threads)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(recipe)
    model = build_model(
        recipe.architecture,
        len(tokenizer),
        tokenizer.eos_token_id,
        tokenizer.pad_token_id,
        derive_seed(recipe.seed, "weights"),
    )
    training = begin(model, recipe.optimization)
    unfinished = out / "training.pt"
    if unfinished.exists():
        training.load(unfinished)
    drawn = mixed_pairs(recipe.problems, recipe.defect_shares, stream(recipe.seed, "corpus"))
    order = stream(recipe.seed, "order")
    examples = batches(_examples(tokenizer, drawn), recipe.optimization.batch_size, order)

    def report(step: int, steps: int, loss: float) -> None:
        progress.update("pretrain", step, steps, f"loss {loss:.4f}")
        if step % 100 == 0:
            training.save(unfinished)

    train(training, examples, recipe.optimization, pad_id=tokenizer.pad_token_id, report=report)
    model.save_pretrained(out, safe_serialization=True)
    tokenizer.save_pretrained(out)
    unfinished.unlink(missing_ok=True)

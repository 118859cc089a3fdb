"""Make an embedded model from its recipe: corpus, tokenizer, training, files."""

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from search_to_signal.corpus.pairs import TrainingPair, mixed_pairs
from search_to_signal.errors import ModelFileError
from search_to_signal.generators.base import messages
from search_to_signal.generators.chat import END, encoded, train_tokenizer
from search_to_signal.generators.local import load_tokenizer
from search_to_signal.learner.device import (
    Device,
    prepare_device,
    prepare_processor,
    processor,
    torch_version,
)
from search_to_signal.learner.pretrain import (
    Architecture,
    Example,
    Optimization,
    Pretraining,
    batches,
    begin,
    build_model,
    train,
)
from search_to_signal.progress import Progress
from search_to_signal.runtime import end_with_parent
from search_to_signal.seeding import derive_seed, stream

RECIPE = "recipe.toml"
MADE = "made.json"
WINDOW = 16  # batches that are drawn, and sorted by length, together


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that decides an embedded model's weights; the shares of ``problems`` sum to 1."""

    name: str
    problems: dict[str, float]
    seed: int
    device: Device
    threads: int
    vocabulary_size: int
    tokenizer_examples: int
    architecture: Architecture
    optimization: Optimization
    defect_shares: dict[str, float]


class TrainingFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where and with what a model was trained, and how long that took."""

    processor: str
    torch: str
    examples: int
    seconds: float


def _examples(tokenizer: Any, drawn: Iterator[TrainingPair]) -> Iterator[Example]:
    for pair in drawn:
        _, prompt = encoded(tokenizer, messages(pair.prompt))
        response = tokenizer.encode(pair.response + END, add_special_tokens=False)
        yield Example(np.array(prompt + response, dtype=np.int64), len(prompt))


def window(recipe: Recipe, tokenizer: Any, number: int) -> list[list[Example]]:
    """The batches of one window, which follow from its number alone: any process can make them."""
    drawn = mixed_pairs(recipe.problems, recipe.defect_shares, stream(recipe.seed, "corpus", number))
    size = recipe.optimization.batch_size
    examples = itertools.islice(_examples(tokenizer, drawn), WINDOW * size)
    return batches(examples, size, stream(recipe.seed, "order", number))


def _in_order(
    make: Callable[[int], list[list[Example]]], numbers: range, workers: int
) -> Iterator[list[list[Example]]]:
    if not workers:
        yield from map(make, numbers)
        return
    ahead: deque[Future[list[list[Example]]]] = deque()
    with ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent, (os.getpid(),)) as pool:
        for number in numbers:
            ahead.append(pool.submit(make, number))
            if len(ahead) > 2 * workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def corpus(recipe: Recipe, tokenizer: Any, first_step: int, workers: int) -> Iterator[list[Example]]:
    """The run's batches from a step on; the number of processes that make them changes nothing."""
    steps = recipe.optimization.examples // recipe.optimization.batch_size
    numbers = range(first_step // WINDOW, -(-steps // WINDOW))
    windows = _in_order(partial(window, recipe, tokenizer), numbers, workers)
    return itertools.islice(itertools.chain.from_iterable(windows), first_step % WINDOW, None)


def _tokenizer(recipe: Recipe, out: Path) -> Any:
    # A run that goes on keeps the tokenizer that it began with.
    if not (out / "tokenizer.json").exists():
        drawn = mixed_pairs(recipe.problems, recipe.defect_shares, stream(recipe.seed, "tokenizer"))
        sample = itertools.islice(drawn, recipe.tokenizer_examples)
        texts = (f"{pair.prompt.user}\n{pair.response}" for pair in sample)
        train_tokenizer(texts, recipe.vocabulary_size).save_pretrained(out)
    return load_tokenizer(out)


def _begin(recipe: Recipe, tokenizer: Any) -> Pretraining:
    seed = derive_seed(recipe.seed, "weights")
    model = build_model(
        recipe.architecture, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, seed
    )
    return begin(model.to(recipe.device), recipe.optimization)


def _finish(recipe: Recipe, training: Pretraining, out: Path) -> None:
    training.model.to("cpu").save_pretrained(out, safe_serialization=True)
    examples, seconds = recipe.optimization.examples, round(training.seconds, 1)
    made = TrainingFacts(processor(recipe.device), torch_version(), examples, seconds)
    (out / MADE).write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n")


def read_training_facts(directory: Path) -> TrainingFacts:
    """How the model of a directory was made; raises ModelFileError."""
    try:
        return msgspec.json.decode((directory / MADE).read_bytes(), type=TrainingFacts)
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelFileError(
            f"{directory / MADE} does not say how the model was made: restore it, or train again"
        ) from error


def pretrain(recipe: Recipe, out: Path, progress: Progress) -> None:
    """Train the recipe's model into ``out``; an unfinished run goes on where it stopped.

    Raises ConfigError for a device that this machine lacks.
    """
    prepare_device(recipe.device)
    prepare_processor(recipe.threads)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(recipe, out)
    training = _begin(recipe, tokenizer)
    unfinished = out / "training.pt"
    if unfinished.exists():
        training.load(unfinished)

    def report(step: int, steps: int, loss: float) -> None:
        progress.update("pretrain", step, steps, f"loss {loss:.4f}")
        if step % 100 == 0:
            training.save(unfinished)

    # A GPU waits for batches, so all other processors make them; a CPU makes its own.
    workers = max(1, len(os.sched_getaffinity(0)) - 1) if recipe.device == "cuda" else 0
    drawn = corpus(recipe, tokenizer, training.step, workers)
    train(training, drawn, recipe.optimization, pad_id=tokenizer.pad_token_id, report=report)
    _finish(recipe, training, out)
    unfinished.unlink(missing_ok=True)

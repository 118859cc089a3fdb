"""Make an embedded model from its recipe: corpus, tokenizer, training, files."""

import itertools
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from recipe.pairs import TrainingPair, mixed_pairs
from search_to_signal.base.errors import ModelFileError
from search_to_signal.base.processes import end_with_parent
from search_to_signal.base.progress import Progress
from search_to_signal.base.seeding import derive_seed, stream
from search_to_signal.models.base import encoded, messages
from search_to_signal.models.device import Device, prepare_device, prepare_processor, processor, torch_version
from search_to_signal.models.local import load_tokenizer
from search_to_signal.models.releases import in_precision

# The tokenizer of the embedded models, with its chat template.

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

# The embedded models know their problems from the code in the prompt, so their template leaves the
# system message out; a 7B model brings its own template and reads it.
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# Words keep their underscores and dots, numbers stay whole, and a line break keeps its indent: the
# pieces that Python code is made of.
_PIECES = r"\n[^\S\n]*| ?[A-Za-z_.]+\(?| ?[0-9]*\.?[0-9]+| ?[^\sA-Za-z_0-9]+|\s+"


def train_tokenizer(texts: Iterable[str], vocabulary_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer; every byte string can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_PIECES), behavior="isolated")
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.clean_up_tokenization_spaces = False
    return wrapped


# Train an embedded model from nothing on the generated corpus.


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shape of the decoder; ``model_type`` is a transformers architecture such as qwen2 or llama."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    initializer_range: float


class Optimization(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Budget and optimizer of pretraining; learning rate warms up, then falls on a cosine to a tenth."""

    examples: int
    batch_size: int
    learning_rate: float
    warmup_steps: int
    weight_decay: float
    max_grad_norm: float
    prompt_loss_weight: float


@dataclass(frozen=True)
class Example:
    """Token ids of one example; the first ``prompt_length`` belong to the prompt."""

    ids: NDArray[np.int64]
    prompt_length: int


def build_model(architecture: Architecture, vocabulary_size: int, end_id: int, pad_id: int, seed: int) -> Any:
    """A freshly initialised float32 model; the seed alone decides its weights."""
    torch.manual_seed(seed)
    shape = {name: getattr(architecture, name) for name in architecture.__struct_fields__}
    config = AutoConfig.for_model(
        shape.pop("model_type"),
        vocab_size=vocabulary_size,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end_id,
        pad_token_id=pad_id,
        use_cache=True,
        **shape,
    )
    config.sliding_window = None  # every context fits; without this each load warns
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", **in_precision(torch.float32))


def batches(examples: Iterable[Example], size: int, rng: np.random.Generator) -> list[list[Example]]:
    """Batches of similar length: the examples are sorted by length, then shuffled as whole batches."""
    ordered = sorted(examples, key=lambda e: len(e.ids))
    starts = rng.permutation(len(ordered) // size) * size
    return [ordered[start : start + size] for start in starts.tolist()]


def _padded(batch: list[Example], pad_id: int, prompt_weight: float) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(example.ids) for example in batch)
    ids = torch.full((len(batch), width), pad_id)
    weight = torch.zeros((len(batch), width))
    for row, example in enumerate(batch):
        ids[row, : len(example.ids)] = torch.from_numpy(example.ids)
        weight[row, : example.prompt_length] = prompt_weight
        weight[row, example.prompt_length : len(example.ids)] = 1.0
    return ids, weight


def _loss(model: Any, ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    # Padding stands on the right of a causal model, so no attention mask is needed.
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    share = weight[:, 1:].flatten()
    return (nll * share).sum() / share.sum()


def _rate(step: int, steps: int, settings: Optimization) -> float:
    warm = min(1.0, (step + 1) / settings.warmup_steps)
    return settings.learning_rate * warm * (0.55 + 0.45 * math.cos(math.pi * step / steps))


@dataclass
class Pretraining:
    """A run of pretraining that can be put down after any step and taken up again.

    ``seconds`` is the time that its steps took, batches included.
    """

    model: Any
    optimizer: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        """Write everything needed to go on, atomically."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
        }
        torch.save(state, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").replace(path)

    def load(self, path: Path) -> None:
        """Take up what ``save`` put down."""
        state = torch.load(path, map_location=self.model.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]


def begin(model: Any, settings: Optimization) -> Pretraining:
    """A training run at step 0."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=settings.weight_decay
    )
    return Pretraining(model, optimizer)


def train(
    training: Pretraining,
    stream: Iterator[list[Example]],
    settings: Optimization,
    *,
    pad_id: int,
    report: Callable[[int, int, float], None],
) -> None:
    """Minimise the weighted next-token loss in place; ``report(step, steps, loss)`` follows every step.

    ``stream`` has the batches from ``training.step`` on.
    """
    model, optimizer = training.model, training.optimizer
    steps = settings.examples // settings.batch_size
    model.train()
    started = time.monotonic() - training.seconds
    for step, batch in zip(range(training.step, steps), stream, strict=False):
        ids, weight = _padded(batch, pad_id, settings.prompt_loss_weight)
        loss = _loss(model, ids.to(model.device), weight.to(model.device))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = _rate(step, steps, settings)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        training.step, training.seconds = step + 1, time.monotonic() - started
        report(training.step, steps, float(loss.detach()))
    model.eval()


RECIPE = "recipe.toml"
MADE = "made.json"
_SAVED_EVERY = 100  # steps
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
        if step % _SAVED_EVERY == 0:
            training.save(unfinished)

    # A GPU waits for batches, so all other processors make them; a CPU makes its own.
    workers = max(1, len(os.sched_getaffinity(0)) - 1) if recipe.device == "cuda" else 0
    drawn = corpus(recipe, tokenizer, training.step, workers)
    train(training, drawn, recipe.optimization, pad_id=tokenizer.pad_token_id, report=report)
    _finish(recipe, training, out)
    unfinished.unlink(missing_ok=True)

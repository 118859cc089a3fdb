"""Generation, updates and whole runs, beside the stock loops of TRL and transformers on the same work."""

import copy
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
import torch
from tests.oracles.stock_dpo_trainer import Texts, stock_dpo_trainer
from tests.oracles.stock_trainer import replayed, stock_trainer

from search_to_signal.base.processes import keep_freed_memory
from search_to_signal.base.progress import PlainProgress
from search_to_signal.base.seeding import derive_seed, stream
from search_to_signal.credit.mappings import pairs_of_records
from search_to_signal.learner.adapter import adapter_tensors, attach_adapter, merge_adapter
from search_to_signal.learner.base import LearnerSetup, TrainingGroup
from search_to_signal.learner.grpo import GrpoLearner
from search_to_signal.models.base import end_ids, request_seeds
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_model, load_tokenizer
from search_to_signal.models.sampling import CachedDecoder, open_decoder, sample, sample_group
from search_to_signal.records.reader import GENERATIONS, read_groups, read_records
from search_to_signal.records.schema import CompletionRecord, GenerationRecord
from search_to_signal.run.config import RunConfig
from search_to_signal.run.loop import run
from search_to_signal.run.profile import load_profile
from search_to_signal.search.hosts.evotune.learner import DpoLearner, TokenPair
from search_to_signal.search.hosts.evotune.rule import DpoSettings

Tensors = dict[str, torch.Tensor]


def numbers(given: Sequence[str], *usual: int) -> list[int]:
    """The given numbers, and the usual ones in place of those that were not given."""
    return [*map(int, given), *usual[len(given) :]]


def recorded(
    config: RunConfig, groups: int, out: Path
) -> tuple[list[GenerationRecord], list[list[CompletionRecord]]]:
    """What a run of so many groups recorded, on one thread."""
    run(msgspec.structs.replace(config, groups=groups, threads=1), out, PlainProgress())
    return list(read_records(out / GENERATIONS, GenerationRecord)), list(map(list, read_groups(out)))


def apart(found: Tensors, expected: Tensors) -> str:
    """How far two adapters lie from each other."""
    differences = [float((found[name] - expected[name]).abs().max()) for name in found]
    largest = max(float(tensor.abs().max()) for tensor in found.values())
    return f"final adapters differ by {max(differences):.1e} of {largest:.2f}"


def learner(given: Sequence[str]) -> None:
    """Prompts of a recorded run through our sampler and learner, and through TRL's trainer.

    Ours must speak the recorded tokens. TRL's sampler draws as ever and is then given them.
    """
    (groups,) = numbers(given, 24)
    torch.set_num_threads(1)
    config = next(one for one in load_profile("embedded").runs() if one.condition == "native")
    with tempfile.TemporaryDirectory() as scratch:
        generations, completions = recorded(config, groups, Path(scratch) / "run")
        theirs, expected = _stock(config, generations, completions, Path(scratch) / "stock")
    mine, found = _ours(config, generations, completions)
    print(f"{groups} groups; {apart(found, expected)}")
    for name, seconds in (("TRL's stock loop", theirs), ("ours", mine)):
        print(f"{name}: {seconds / groups:.3f} s per group, {60 * groups / seconds:.1f} a minute and core")
    print(f"ratio: {theirs / mine:.2f}")


def _ours(
    config: RunConfig, generations: list[GenerationRecord], completions: list[list[CompletionRecord]]
) -> tuple[float, Tensors]:
    path = model_directory(config.model)
    sampler, tokenizer = load_model(path), load_tokenizer(path)
    model = attach_adapter(copy.deepcopy(sampler), config.learner, derive_seed(config.seed, "adapter"))
    trained = GrpoLearner(model, config.learner, tokenizer.pad_token_id)
    settings, started = config.generation, time.process_time()
    for told, group in zip(generations, completions, strict=True):
        spoken = sample_group(
            sampler,
            told.prompt_ids,
            seeds=request_seeds(derive_seed(config.seed, "sample", told.step), settings.group_size),
            max_new_tokens=settings.max_completion_tokens,
            temperature=settings.temperature,
            end_ids=end_ids(tokenizer, sampler.generation_config),
        )
        assert spoken.completion_ids == told.completion_ids
        advantages = np.array([record.advantage for record in group])
        trained.step(TrainingGroup(told.prompt_ids, spoken.completion_ids, advantages))
        merge_adapter(model, sampler)
    return time.process_time() - started, adapter_tensors(model)


def _stock(
    config: RunConfig,
    generations: list[GenerationRecord],
    completions: list[list[CompletionRecord]],
    out: Path,
) -> tuple[float, Tensors]:
    path, settings = model_directory(config.model), config.generation
    tokenizer = load_tokenizer(path)
    rewards = iter([[record.reward or 0.0 for record in group] for group in completions])
    model = attach_adapter(load_model(path), config.learner, derive_seed(config.seed, "adapter"))
    trainer = stock_trainer(
        model,
        tokenizer,
        [told.prompt for told in generations],
        lambda **_: next(rewards),
        config.learner,
        out,
        num_generations=settings.group_size,
        max_completion_length=settings.max_completion_tokens,
        temperature=settings.temperature,
    )
    with replayed([told.completion_ids for told in generations], tokenizer.eos_token_id):
        started = time.process_time()
        trainer.train()
        seconds = time.process_time() - started
    for told, prepared in zip(generations, trainer.prepared, strict=True):
        spoken = prepared["completion_ids"][prepared["completion_mask"].bool()].tolist()
        assert spoken == [token for row in told.completion_ids for token in row]
    return seconds, adapter_tensors(model)


def dpo(given: Sequence[str]) -> None:
    """The pairs of a frozen run through both loops, turn by turn, in the same order."""
    groups, repeats = numbers(given, 3, 3)
    profile = load_profile("evotune")
    settings = msgspec.convert({**profile.rule_settings, "gradient_accumulation_steps": 4}, DpoSettings)
    path = model_directory(profile.model)
    torch.set_num_threads(1)

    def loaded() -> tuple[Any, Any]:
        return attach_adapter(load_model(path), profile.learner, 1), load_tokenizer(path)

    def ours(pairs: list[Texts]) -> tuple[float, Tensors]:
        model, tokenizer = loaded()
        rule = msgspec.structs.asdict(settings)
        learner = DpoLearner(LearnerSetup(model, profile.learner, tokenizer.pad_token_id, rule))
        ids = [[tokenizer(text, add_special_tokens=False)["input_ids"] for text in one] for one in pairs]
        end = [tokenizer.eos_token_id]
        tokens = [TokenPair(prompt, chosen + end, rejected + end) for prompt, chosen, rejected in ids]
        started = time.process_time()
        list(learner.round(tokens, step=0))
        return time.process_time() - started, adapter_tensors(model)

    def stock(pairs: list[Texts], out: Path) -> tuple[float, Tensors]:
        model, tokenizer = loaded()
        epochs = range(settings.num_train_epochs)
        orders = [stream(0, "pairs", 0, epoch).permutation(len(pairs)) for epoch in epochs]
        trainer = stock_dpo_trainer(model, tokenizer, pairs, orders, profile.learner, settings, out)
        started = time.process_time()
        trainer.train()
        return time.process_time() - started, adapter_tensors(model)

    mine, theirs = [], []
    with tempfile.TemporaryDirectory() as scratch:
        generations, completions = recorded(profile.runs()[0], groups, Path(scratch) / "run")
        pairs: list[Texts] = [
            (told.prompt, told.completions[pair.chosen], told.completions[pair.rejected])
            for group, told in zip(completions, generations, strict=True)
            for pair in pairs_of_records(group)
        ]
        for _ in range(repeats):
            seconds, expected = stock(pairs, Path(scratch) / "stock")
            theirs.append(seconds)
            seconds, found = ours(pairs)
            mine.append(seconds)
    passes = settings.num_train_epochs * len(pairs)
    print(f"{len(pairs)} pairs, {passes} passes; {apart(found, expected)}")
    for name, one in (("TRL's stock loop", theirs), ("ours", mine)):
        print(f"{name}: {median(one) / passes:.3f} s per pair, median of {repeats}")
    print(f"ratio: {median(a / b for a, b in zip(theirs, mine, strict=True)):.2f}")


def generation(given: Sequence[str]) -> None:
    """One group of four by three ways, interleaved: milliseconds per token step of every unfinished row."""
    name, groups = (*given, *("qwen2-2.1m", "12")[len(given) :])
    torch.set_num_threads(1)
    keep_freed_memory()
    directory = model_directory(name)
    model, tokenizer = load_model(directory), load_tokenizer(directory)
    ends, (size, limit, temperature) = end_ids(tokenizer, model.generation_config), (4, 320, 0.9)

    def ours(decoder: Any, seed: int) -> Any:
        return sample(decoder, request_seeds(seed, size), limit, temperature, ends)

    def stock(prompt: list[int], seed: int) -> Any:
        torch.manual_seed(seed)
        out = model.generate(
            torch.tensor([prompt] * size),
            attention_mask=torch.ones(size, len(prompt), dtype=torch.long),
            do_sample=True,
            temperature=temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=limit,
            eos_token_id=sorted(ends),
            pad_token_id=tokenizer.pad_token_id,
        )
        return out[:, len(prompt) :].tolist()

    ways: dict[str, Callable[[list[int], int], Any]] = {
        "generate": stock,
        "cached": lambda prompt, seed: ours(CachedDecoder(model, prompt, size), seed),
        "cpu": lambda prompt, seed: ours(open_decoder(model, prompt, size, limit), seed),
    }
    config = next(one for one in load_profile("embedded").runs() if one.condition == "frozen")
    with tempfile.TemporaryDirectory() as scratch:
        told, _ = recorded(config, int(groups), Path(scratch) / "run")
    spent: dict[str, list[tuple[float, int]]] = {label: [] for label in ways}
    for seed, one in enumerate([told[0], *told]):  # the first group warms up
        for label, way in ways.items():
            with torch.inference_mode():
                started = time.process_time()
                rows = list(way(list(one.prompt_ids), seed))
                spent[label].append((time.process_time() - started, max(map(len, rows))))
    for label, times in spent.items():
        seconds, steps = map(sum, zip(*times[1:], strict=True))
        print(f"{label:9} {1000 * seconds / steps:6.2f} ms per token step, {steps} steps")

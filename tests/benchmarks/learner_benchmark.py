"""Generation and update of one live run, ours beside TRL's stock GRPOTrainer loop on the same tokens.

    OMP_NUM_THREADS=1 PYTHONPATH=artifact python tests/benchmarks/learner_benchmark.py [GROUPS]

First a live run is recorded. Then its prompts go through our sampler and learner again, which must speak
the same tokens, and through TRL's trainer, whose sampler draws as ever and is then given those tokens, so
that both do one and the same work and end with one and the same adapter. Processor seconds of this process,
set-up excluded; one thread.
"""

import copy
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "oracles"))

from stock_trainer import replayed, stock_trainer

from search_to_signal.base.progress import PlainProgress
from search_to_signal.base.seeding import derive_seed
from search_to_signal.learner.adapter import adapter_tensors, attach_adapter, merge_adapter
from search_to_signal.learner.base import TrainingGroup
from search_to_signal.learner.grpo import GrpoLearner
from search_to_signal.models.base import request_seeds
from search_to_signal.models.chat import end_ids
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_model, load_tokenizer
from search_to_signal.models.sampling import sample_group
from search_to_signal.records.reader import read_groups, read_records
from search_to_signal.records.schema import GenerationRecord
from search_to_signal.run.config import RunConfig
from search_to_signal.run.loop import run
from search_to_signal.run.profile import load_profile

GROUPS = 24


@dataclass(frozen=True)
class Measured:
    """Processor seconds of all groups, and the adapter that they left."""

    seconds: float
    adapter: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Recorded:
    """A live run: its prompts and tokens, and what its learner was told."""

    config: RunConfig
    generations: list[GenerationRecord]
    rewards: list[list[float]]
    advantages: list[np.ndarray]
    per_minute: float


def recorded(groups: int, out: Path) -> Recorded:
    """Run the embedded profile's native condition for a number of groups."""
    profile = load_profile("embedded")
    config = next(config for config in profile.runs() if config.condition == "native")
    config = msgspec.structs.replace(config, groups=groups, threads=1)
    manifest = run(config, out, PlainProgress())
    assert manifest.timing is not None
    completions = list(read_groups(out))
    return Recorded(
        config,
        list(read_records(out / "generations.jsonl", GenerationRecord)),
        [[record.reward or 0.0 for record in group] for group in completions],
        [np.array([record.advantage for record in group]) for group in completions],
        manifest.timing.groups_per_minute,
    )


def ours(given: Recorded) -> Measured:
    """Our sampler and learner over the recorded prompts."""
    config, path = given.config, model_directory(given.config.model)
    sampler, tokenizer = load_model(path), load_tokenizer(path)
    model = attach_adapter(copy.deepcopy(sampler), config.learner, derive_seed(config.seed, "adapter"))
    learner = GrpoLearner(model, config.learner, tokenizer.pad_token_id)
    started = time.process_time()
    for generation, advantages in zip(given.generations, given.advantages, strict=True):
        spoken = sample_group(
            sampler,
            generation.prompt_ids,
            seeds=request_seeds(
                derive_seed(config.seed, "sample", generation.step), config.generation.group_size
            ),
            max_new_tokens=config.generation.max_completion_tokens,
            temperature=config.generation.temperature,
            end_ids=end_ids(tokenizer, sampler.generation_config),
        )
        assert spoken.completion_ids == generation.completion_ids
        learner.step(TrainingGroup(generation.prompt_ids, spoken.completion_ids, advantages))
        merge_adapter(model, sampler)
    return Measured(time.process_time() - started, adapter_tensors(model))


def stock(given: Recorded, out: Path) -> Measured:
    """TRL's trainer over the recorded prompts."""
    config, path = given.config, model_directory(given.config.model)
    tokenizer, rewards = load_tokenizer(path), iter(given.rewards)
    model = attach_adapter(load_model(path), config.learner, derive_seed(config.seed, "adapter"))
    trainer = stock_trainer(
        model,
        tokenizer,
        [generation.prompt for generation in given.generations],
        lambda **_: next(rewards),
        config.learner,
        out,
        num_generations=config.generation.group_size,
        max_completion_length=config.generation.max_completion_tokens,
        temperature=config.generation.temperature,
    )
    with replayed([one.completion_ids for one in given.generations], tokenizer.eos_token_id):
        started = time.process_time()
        trainer.train()
        seconds = time.process_time() - started
    for generation, prepared in zip(given.generations, trainer.prepared, strict=True):
        assert prepared["prompt_ids"][0].tolist() == list(generation.prompt_ids)
        spoken = prepared["completion_ids"][prepared["completion_mask"].bool()].tolist()
        assert spoken == [token for row in generation.completion_ids for token in row]
    return Measured(seconds, adapter_tensors(model))


def main(groups: int) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        given = recorded(groups, Path(scratch) / "run")
        theirs, mine = stock(given, Path(scratch) / "stock"), ours(given)
    tokens = sum(len(row) for one in given.generations for row in one.completion_ids)
    apart = max(float((mine.adapter[name] - theirs.adapter[name]).abs().max()) for name in mine.adapter)
    largest = max(float(tensor.abs().max()) for tensor in mine.adapter.values())
    print(
        f"{groups} groups, {tokens} completion tokens; final adapters differ by {apart:.1e} of {largest:.2f}"
    )
    print("| generation and update | s per group | groups per minute and core |")
    print("| :-- | --: | --: |")
    for name, one in (("TRL's stock loop", theirs), ("ours", mine)):
        print(f"| {name} | {one.seconds / groups:.3f} | {60 * groups / one.seconds:.1f} |")
    print(f"ratio: {theirs.seconds / mine.seconds:.2f}; aim: at least 1.5")
    print(f"complete live groups, evaluation included, by the wall clock: {given.per_minute:.1f} per minute")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else GROUPS)

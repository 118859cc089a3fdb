"""One backend of ``backends_benchmark``, run in this process."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from backends_measured import Extra, Group
from transformers import TrainerCallback

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.progress import PlainProgress
from search_to_signal.base.seeding import derive_seed
from search_to_signal.learner.adapter import attach_adapter
from search_to_signal.models.device import prepare_processor
from search_to_signal.models.files import model_directory
from search_to_signal.models.local import load_model, load_tokenizer
from search_to_signal.models.settings import NF4, EngineSettings, ModelLoading
from search_to_signal.records.provenance import accelerator
from search_to_signal.records.reader import GENERATIONS, read_groups, read_records
from search_to_signal.records.schema import GenerationRecord
from search_to_signal.run.config import RunConfig
from search_to_signal.run.loop import run
from search_to_signal.run.profile import Profile, load_profile

_CARD = ModelLoading(device="cuda", dtype="bfloat16")


def run_backend(name: str, given: argparse.Namespace) -> None:
    """Run it, and write what no record holds."""
    profile = load_profile(given.profile)

    def write(groups: tuple[Group, ...]) -> None:
        peak = torch.cuda.max_memory_allocated() >> 20 if torch.cuda.is_initialized() else None
        extra = Extra(torch_peak_mib=peak, groups=groups)
        (given.out / f"{name}.extra.json").write_bytes(msgspec.json.encode(extra))

    groups: tuple[Group, ...] = ()
    try:
        if name.startswith("trl"):
            config = configuration("local", profile, given)
            groups = stock_groups(config, given, write, checkpointing=name == "trl-checkpointed")
        else:
            config = configuration(name, profile, given)
            every = profile.checkpoint_every
            run(config, given.out / name, PlainProgress(), checkpoint_every=every)
    finally:
        write(groups)


def configuration(name: str, profile: Profile, given: argparse.Namespace) -> RunConfig:
    """The run of one of our backends: the profile's but for the backend, its model and its groups."""
    generation, learner, evaluation = profile.generation, profile.learner, profile.evaluation
    loading: ModelLoading | msgspec.UnsetType = _CARD if given.device == "cuda" else msgspec.UNSET
    if name == "local-nf4":
        loading = NF4
    if name in ("unsloth", "vllm"):
        shared = name == "unsloth"
        engine = EngineSettings(
            gpu_memory_utilization=given.engine_gib * 1024 / card_mib(),
            load_in_4bit=shared,
            lora_rank=learner.lora_rank,
        )
        generation = msgspec.structs.replace(generation, backend=name, engine=engine)
        learner = msgspec.structs.replace(learner, load_in_4bit=shared)
        loading = msgspec.UNSET if shared else loading
    if given.timeout_s is not None:
        evaluation = msgspec.structs.replace(evaluation, timeout_s=given.timeout_s)
    return profile.run(
        "factorized",
        given.seed,
        purpose="smoke",
        model=given.model,
        groups=given.groups,
        loading=loading,
        generation=generation,
        learner=learner,
        evaluation=evaluation,
    )


def card_mib() -> int:
    """The memory of the first card. Torch is not asked: Unsloth sets up its allocator, before it starts."""
    card = accelerator()
    if card is None:
        raise ConfigError("nvidia-smi finds no card here: an engine needs one")
    return card.memory_mib


class Clock(TrainerCallback):  # type: ignore[misc]
    """Wall seconds of each step of a trainer, and of the ``generate`` within it; ``told`` after each."""

    def __init__(self, model: Any, told: Callable[["Clock"], None]) -> None:
        self._told = told
        self.steps: list[float] = []
        self.generation: list[float] = []
        self._began = 0.0
        model.generate = self._timed(model.generate)

    def _timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            began = now()
            found = work(*arguments, **options)
            self.generation.append(now() - began)
            return found

        return timed

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """A step starts: what it samples comes within."""
        self._began = now()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """The optimizer has stepped."""
        self.steps.append(now() - self._began)
        print(f"step {len(self.steps)}: {self.steps[-1]:.1f} s", flush=True)
        self._told(self)


def now() -> float:
    """The clock, once the card has done what it was given."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def stock_groups(
    config: RunConfig,
    given: argparse.Namespace,
    write: Callable[[tuple[Group, ...]], None],
    *,
    checkpointing: bool,
) -> tuple[Group, ...]:
    """TRL's stock trainer over prompts, tokens and rewards of the local run; raises where there is none.

    What is done goes through ``write`` after every group: a trainer that is ended by its limit still counts.
    """
    out: Path = given.out
    sys.path.insert(0, str(Path(__file__).parents[1] / "oracles"))
    from stock_trainer import replayed, stock_trainer

    recorded = out / "local"
    if not (recorded / GENERATIONS).exists():
        raise FileNotFoundError(f"{recorded} has no generations: run the backend local first")
    generations = list(read_records(recorded / GENERATIONS, GenerationRecord))[: given.stock_groups]
    rewards = iter([[record.reward or 0.0 for record in group] for group in read_groups(recorded)])
    prepare_processor(config.threads)
    path, on_card = model_directory(config.model), config.base.device == "cuda"
    tokenizer = load_tokenizer(path)
    model = load_model(path, torch.bfloat16 if on_card else torch.float32)
    model = attach_adapter(model, config.learner, derive_seed(config.seed, "adapter"))
    trainer = stock_trainer(
        model,
        tokenizer,
        [one.prompt for one in generations],
        lambda **_: next(rewards),
        config.learner,
        out / "trl-files",
        num_generations=config.generation.group_size,
        max_prompt_length=config.generation.max_prompt_tokens,
        max_completion_length=config.generation.max_completion_tokens,
        temperature=config.generation.temperature,
        use_cpu=not on_card,
        bf16=on_card,
        gradient_checkpointing=checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if checkpointing else None,
    )
    clock = Clock(model, lambda clock: write(done_groups(clock, generations)))
    trainer.add_callback(clock)
    with replayed([one.completion_ids for one in generations], tokenizer.eos_token_id):
        trainer.train()
    for one, prepared in zip(generations, trainer.prepared, strict=True):
        if prepared["prompt_ids"][0].tolist() != list(one.prompt_ids):
            raise RuntimeError(f"the stock trainer read another prompt than the local run in step {one.step}")
        tokens = sum(map(len, one.completion_ids))
        if int(prepared["completion_mask"].sum()) != tokens:
            raise RuntimeError(
                f"the stock trainer learned from other tokens than the local run, step {one.step}"
            )
    return done_groups(clock, generations)


def done_groups(clock: Clock, generations: Sequence[GenerationRecord]) -> tuple[Group, ...]:
    """The groups that a trainer has done so far."""
    return tuple(
        Group(
            tokens=sum(map(len, one.completion_ids)),
            completions=len(one.completion_ids),
            generation=generation,
            update=step - generation,
            total=step,
        )
        for one, generation, step in zip(generations, clock.generation, clock.steps, strict=False)
    )

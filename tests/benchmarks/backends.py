"""Validity, speed and memory of each backend on one card, one after the other, with one model.

    python -m tests.benchmarks backends mounts/qwen2.5-coder-0.5b-instruct --groups 20 --out DIR
    python -m tests.benchmarks backends qwen2-2.1m --profile embedded --device cpu --groups 2 \\
        --backends local,trl --out DIR     to try this

Ours are live runs, condition factorized, one seed, with the profile's search, limits and learner: local
(bfloat16), local-nf4, unsloth (engine and learner share its 4-bit weights, the paper's arrangement) and vllm
(bfloat16, the learner beside it with weights of its own). Both engines are given --engine-gib of the card.
trl is TRL's stock GRPOTrainer with transformers' generate, in bfloat16: it gets the prompts and rewards that
the run of local recorded, and its sampler draws as ever and is then given that run's tokens.

Every backend has a process of its own, and an error of one ends none of the others. One whose DIR/NAME.json
is there is not run again.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import mean, median
from typing import Any

import msgspec

from search_to_signal.base.processes import end_with_parent
from search_to_signal.records.provenance import accelerator, visible_cards
from search_to_signal.records.reader import GENERATIONS, STEPS, TIMINGS, read_groups, read_records
from search_to_signal.records.schema import GenerationRecord, StepRecord, StepTiming

BACKENDS = ("local", "local-nf4", "unsloth", "vllm", "trl")
# Nothing asks a network, and one process does everything.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "UNSLOTH_DISABLE_STATISTICS": "1",
    "UNSLOTH_DISABLE_AUTO_UPDATES": "1",
    "VLLM_USE_V1": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "0",
    "PYTHONUNBUFFERED": "1",
}
COLUMNS = (
    *("backend", "groups", "valid", "completion tokens", "tokens/s", "settled", "update, median s"),
    *("mean settled", "generation and update of a settled group, s", "torch's peak, MiB", "the card's, MiB"),
)
FIRST_TIME = 3.0
"""An update that takes so many times the median also captured or compiled something."""


class Group(msgspec.Struct, frozen=True):
    """Completion tokens of a group, seconds by phase, and the share of valid completions where evaluated."""

    tokens: int
    generation: float
    update: float
    valid: float | None = None


class Backend(msgspec.Struct, frozen=True):
    """A backend's groups in order. ``torch_peak_mib`` is what torch allocated at most, ``card_peak_mib`` what
    the card held at most beyond what it held before; ``error`` is empty where the backend ended well.
    """

    name: str
    groups: tuple[Group, ...] = ()
    torch_peak_mib: int | None = None
    card_peak_mib: int | None = None
    error: str = ""

    def settled(self) -> set[int]:
        """The groups after the first in whose update nothing was captured or compiled."""
        usual = median(group.update for group in self.groups) if self.groups else 0.0
        return {i for i, group in enumerate(self.groups) if i and group.update <= FIRST_TIME * usual}

    def seconds(self, chosen: Sequence[int]) -> float:
        """Generation and update of these groups."""
        return sum(self.groups[i].generation + self.groups[i].update for i in chosen)

    def row(self) -> str:
        """Its row of the table."""
        settled = [self.groups[i] for i in sorted(self.settled())]
        valid = [group.valid for group in self.groups if group.valid is not None]
        values: list[Any] = [
            *(self.name, len(self.groups), mean(valid) if valid else None),
            *(sum(group.tokens for group in self.groups), speed(self.groups), speed(settled)),
            median(group.update for group in self.groups) if self.groups else None,
            mean(group.update for group in settled) if settled else None,
            mean(group.generation + group.update for group in settled) if settled else None,
            *(self.torch_peak_mib, self.card_peak_mib),
        ]
        texts = (
            "-" if value is None else f"{value:.3f}" if type(value) is float else str(value)
            for value in values
        )
        return f"| {' | '.join(texts)} |"


def speed(groups: Sequence[Group]) -> int | None:
    """Tokens a second."""
    return round(sum(g.tokens for g in groups) / sum(g.generation for g in groups)) if groups else None


def backends(arguments: Sequence[str]) -> int:
    """Run what has not been run, print the table; 1 where a backend failed."""
    parser = argparse.ArgumentParser(
        prog="backends", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", help="the name of an embedded model, or a model directory")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--profile", default="pretrained")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--engine-gib", type=float, default=8.0, help="memory that an engine is given")
    parser.add_argument("--stock-groups", type=int, help="of trl, which takes many times as long")
    parser.add_argument("--limit-s", type=float, default=1200.0, help="of a backend")
    parser.add_argument("--only", choices=BACKENDS, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.only:
        end_with_parent(os.getppid())
        run_backend(given.only, given)
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    found = []
    for name in given.backends.split(","):
        path = given.out / f"{name}.json"
        if not path.exists():
            path.write_bytes(msgspec.json.encode(run_apart(name, given, arguments)))
        found.append(msgspec.json.decode(path.read_bytes(), type=Backend))
        print(f"{name}: {len(found[-1].groups)} groups {found[-1].error}", flush=True)
    print(f"| {' | '.join(COLUMNS)} |\n| :-- |{' --: |' * (len(COLUMNS) - 1)}")
    print("\n".join(backend.row() for backend in found))
    known = {backend.name: backend for backend in found}
    if {"local", "trl"} <= known.keys():
        compare(known["local"], known["trl"])
    return int(any(backend.error for backend in found))


def compare(local: Backend, stock: Backend) -> None:
    """How many times as long the stock trainer took for the same groups."""
    every = range(min(len(local.groups), len(stock.groups)))
    for label, chosen in (("all", every), ("settled in both", sorted(local.settled() & stock.settled()))):
        if ours := local.seconds(chosen):
            theirs = stock.seconds(chosen)
            print(
                f"trl against local, generation and update of {len(chosen)} groups ({label}): "
                f"{theirs:.1f} s against {ours:.1f} s, {theirs / ours:.2f} times"
            )


def run_apart(name: str, given: argparse.Namespace, arguments: Sequence[str]) -> Backend:
    """One backend in a process of its own; what it printed goes to DIR/NAME.log."""
    command = [sys.executable, "-m", "tests.benchmarks", "backends", *arguments, "--only", name]
    log, peak, error = given.out / f"{name}.log", CardMemory(), ""
    with log.open("w") as lines:
        # A group of its own, because a run starts processes that evaluate.
        child = subprocess.Popen(
            command,
            stdout=lines,
            stderr=subprocess.STDOUT,
            env={**ENVIRONMENT, **os.environ},
            start_new_session=True,
        )
        try:
            if code := child.wait(given.limit_s):
                error = f"exit status {code}: see {log}"
        except subprocess.TimeoutExpired:
            error = f"ended after {given.limit_s:.0f} s (--limit-s)"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, 9)
            child.wait()
    extra = given.out / f"{name}.extra.json"
    found = msgspec.json.decode(extra.read_bytes(), type=Backend) if extra.exists() else Backend(name)
    groups = found.groups or groups_of_run(given.out / name)
    return msgspec.structs.replace(found, groups=groups, card_peak_mib=peak.ended(), error=error)


def groups_of_run(run: Path) -> tuple[Group, ...]:
    """The groups of a live run, also of one that ended before its time."""
    if not all((run / file).exists() for file in (TIMINGS, GENERATIONS, STEPS)):
        return ()
    records = zip(
        read_records(run / TIMINGS, StepTiming),
        read_records(run / GENERATIONS, GenerationRecord),
        read_records(run / STEPS, StepRecord),
        strict=False,
    )
    return tuple(
        Group(
            sum(map(len, told.completion_ids)),
            timing.seconds["generation"],
            timing.seconds["update"],
            step.valid / len(told.completion_ids),
        )
        for timing, told, step in records
    )


class CardMemory:
    """The most memory that the first card held since this was made, beyond what it held then, in MiB.

    Asked of nvidia-smi every second; None where there is no card.
    """

    def __init__(self) -> None:
        self._held = [held for held in [self._now()] if held is not None]
        self._end = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        if self._held:
            self._watch.start()

    @staticmethod
    def _now() -> int | None:
        return next((-card.free_mib for card in visible_cards()), None)

    def _look(self) -> None:
        while not self._end.wait(1.0):
            if (held := self._now()) is not None:
                self._held.append(held)

    def ended(self) -> int | None:
        """The peak; nothing is watched any more."""
        self._end.set()
        return max(self._held) - self._held[0] if self._held else None


def run_backend(name: str, given: argparse.Namespace) -> None:
    """Run it in this process, and write what no record holds."""
    import torch

    from search_to_signal.base.progress import PlainProgress
    from search_to_signal.run.loop import run
    from search_to_signal.run.profile import load_profile

    profile = load_profile(given.profile)
    config = configuration("local" if name == "trl" else name, profile, given)
    groups: tuple[Group, ...] = ()

    def write(groups: tuple[Group, ...]) -> None:
        peak = torch.cuda.max_memory_allocated() >> 20 if torch.cuda.is_initialized() else None
        (given.out / f"{name}.extra.json").write_bytes(msgspec.json.encode(Backend(name, groups, peak)))

    try:
        if name == "trl":
            groups = stock_groups(config, given, write)
        else:
            every = profile.checkpoint_every
            run(config, given.out / name, PlainProgress(), checkpoint_every=every)
    finally:
        write(groups)


def configuration(name: str, profile: Any, given: argparse.Namespace) -> Any:
    """The run of one of our backends: the profile's but for the backend, its model and its groups."""
    from search_to_signal.models.settings import NF4, EngineSettings, ModelLoading

    generation, learner = profile.generation, profile.learner
    card = ModelLoading(device="cuda", dtype="bfloat16") if given.device == "cuda" else msgspec.UNSET
    loading: Any = NF4 if name == "local-nf4" else card
    if name in ("unsloth", "vllm"):
        shared, memory = name == "unsloth", accelerator()
        if memory is None:
            raise SystemExit("nvidia-smi finds no card here: an engine needs one")
        engine = EngineSettings(
            gpu_memory_utilization=given.engine_gib * 1024 / memory.memory_mib,
            load_in_4bit=shared,
            lora_rank=learner.lora_rank,
        )
        generation = msgspec.structs.replace(generation, backend=name, engine=engine)
        learner = msgspec.structs.replace(learner, load_in_4bit=shared)
        loading = msgspec.UNSET if shared else loading
    return profile.run(
        "factorized",
        given.seed,
        purpose="smoke",
        model=given.model,
        groups=given.groups,
        loading=loading,
        generation=generation,
        learner=learner,
    )


def stock_groups(
    config: Any, given: argparse.Namespace, write: Callable[[tuple[Group, ...]], None]
) -> tuple[Group, ...]:
    """TRL's stock trainer over prompts, tokens and rewards of the local run.

    What is done goes through ``write`` after every group: a trainer that is ended by its limit still counts.
    """
    import torch
    from tests.oracles.stock_trainer import replayed, stock_trainer
    from transformers import TrainerCallback

    from search_to_signal.base.seeding import derive_seed
    from search_to_signal.learner.adapter import attach_adapter
    from search_to_signal.models.device import prepare_processor
    from search_to_signal.models.files import model_directory
    from search_to_signal.models.local import load_model, load_tokenizer

    recorded, on_card = given.out / "local", config.base.device == "cuda"
    told = list(read_records(recorded / GENERATIONS, GenerationRecord))[: given.stock_groups]
    rewards = iter([[record.reward or 0.0 for record in group] for group in read_groups(recorded)])
    prepare_processor(config.threads)
    path = model_directory(config.model)
    tokenizer, model = load_tokenizer(path), load_model(path, torch.bfloat16 if on_card else torch.float32)
    model = attach_adapter(model, config.learner, derive_seed(config.seed, "adapter"))
    done: list[Group] = []
    generation: list[float] = []
    generate = model.generate

    def now() -> float:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return time.perf_counter()

    def timed(*arguments: Any, **options: Any) -> Any:
        began = now()
        rows = generate(*arguments, **options)
        generation.append(now() - began)
        return rows

    class Clock(TrainerCallback):
        """Wall seconds of each step, and of the ``generate`` within it."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = now()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            tokens = sum(map(len, told[len(done)].completion_ids))
            done.append(Group(tokens, generation[-1], now() - self.began - generation[-1]))
            write(tuple(done))

    model.generate = timed
    trainer = stock_trainer(
        model,
        tokenizer,
        [one.prompt for one in told],
        lambda **_: next(rewards),
        config.learner,
        given.out / "trl-files",
        num_generations=config.generation.group_size,
        max_prompt_length=config.generation.max_prompt_tokens,
        max_completion_length=config.generation.max_completion_tokens,
        temperature=config.generation.temperature,
        use_cpu=not on_card,
        bf16=on_card,
    )
    trainer.add_callback(Clock())
    with replayed([one.completion_ids for one in told], tokenizer.eos_token_id):
        trainer.train()
    for one, prepared in zip(told, trainer.prepared, strict=True):
        assert prepared["prompt_ids"][0].tolist() == list(one.prompt_ids), one.step
        assert int(prepared["completion_mask"].sum()) == sum(map(len, one.completion_ids)), one.step
    return tuple(done)

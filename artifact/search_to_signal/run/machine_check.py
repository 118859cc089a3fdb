"""Checks that this machine's cards can hold a profile's parallel runs, before the first run starts."""

import json
import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Any

from search_to_signal.base.errors import ConfigError, ModelFileError
from search_to_signal.layers.settings import AuditCell, BreadthCell
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.files import model_directory
from search_to_signal.models.settings import (
    ENGINES,
    GenerationSettings,
    ModelLoading,
    ModelSettings,
    model_name,
)
from search_to_signal.records.conditions import FROZEN
from search_to_signal.records.provenance import named_cards, visible_cards
from search_to_signal.run.config import RunConfig
from search_to_signal.run.profile import Profile

# An estimate of the card memory of a run, from the sizes of its model, before it starts.

_MIB = 1 << 20
# Memory of a process's CUDA context, and what torch's allocator and its graphs keep beyond the tensors, so
# that the estimate covers the largest measured run (artifact/evidence/NOTEBOOK.md).
_CONTEXT_MIB, _SLACK = 1000, 1.4


def required_mib(
    directory: Path, loading: ModelLoading, generation: GenerationSettings, learner: LearnerSettings | None
) -> int:
    """Return the memory in MiB of a run at its longest prompt and completions; ``learner`` is None if frozen.

    It is an upper estimate, compared with measured runs in artifact/evidence/NOTEBOOK.md. Raises
    ModelFileError for a directory without a configuration.
    """
    parts = required_bytes(directory, loading, generation, learner)
    return int(_SLACK * sum(parts.values()) / _MIB) + _CONTEXT_MIB


def required_bytes(
    directory: Path, loading: ModelLoading, generation: GenerationSettings, learner: LearnerSettings | None
) -> dict[str, int]:
    """Return the bytes of the same run's tensors by what they are; raises as ``required_mib``."""
    sizes = _sizes(directory)
    layers, vocabulary, hidden = (sizes[n] for n in ("num_hidden_layers", "vocab_size", "hidden_size"))
    inner, number = sizes["intermediate_size"], 4 if loading.dtype == "float32" else 2
    heads, others = (sizes[n] * sizes["head_dim"] for n in ("num_attention_heads", "num_key_value_heads"))
    # (outputs, inputs) of a layer's seven projections.
    attention = [(heads, hidden), (others, hidden), (others, hidden), (hidden, heads)]
    projections = [*attention, (inner, hidden), (inner, hidden), (hidden, inner)]
    weights = layers * sum(out * into for out, into in projections)
    # The sampler unpacks weights that are stored in 4 bits.
    stored = weights * number + (weights * 9 // 16 if loading.quantization == "nf4" else 0)
    # The embedding, the output head in float32, and the sampler's copy of the head.
    table = vocabulary * hidden * (number + 4 + number)
    # Keys, values and logits of every row, and of the pass over the prompt.
    tokens = generation.max_prompt_tokens + generation.max_completion_tokens
    cache = (generation.group_size + 1) * (tokens * 2 * others * number * layers + 16 * vocabulary)
    parts = {"weights": stored + table, "cache": cache}
    if learner is None:
        return parts
    if loading.device == "cpu":
        parts["weights"] *= 2  # adapters are merged into a copy
    ranks = sum(out + into for out, into in projections)
    # What the backward pass stores for every token, and the logits of one completion.
    layer = 16 * hidden * number + 7 * inner * number
    checkpoints = layers * hidden * number + layer
    of_token = checkpoints if learner.gradient_checkpointing else layers * layer
    logits = 3 * 4 * generation.max_completion_tokens * vocabulary
    return {
        **parts,
        # Adapter, gradient, two moments, the sampler's copy and its pieces, and the hashed copy.
        "adapter": 8 * 4 * layers * learner.lora_rank * ranks,
        "update": generation.group_size * tokens * of_token + logits,
    }


def _sizes(directory: Path) -> dict[str, int]:
    try:
        config: dict[str, Any] = json.loads((directory / "config.json").read_bytes())
        names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
        sizes = {name: int(config[name]) for name in names}
        heads = sizes["num_attention_heads"]
        sizes["num_key_value_heads"] = int(config.get("num_key_value_heads") or heads)
        sizes["head_dim"] = int(config.get("head_dim") or sizes["hidden_size"] // heads)
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, AttributeError) as error:
        raise ModelFileError(
            f"{directory} has no valid config.json of a causal language model: restore it"
        ) from error
    return sizes


def memory_line(profile: Profile, model: str, trained: bool) -> str:
    """Say what memory a run of a local model takes, for people; raises as ``required_mib``."""
    loading, learner = _loading(profile), profile.learner if trained else None
    made = (model_directory(model), loading, profile.generation, learner)
    told = ", ".join(f"{name} {size / (1 << 30):.1f}" for name, size in required_bytes(*made).items())
    run, of_card = "trained" if trained else "frozen", loading.device == "cuda"
    whole = required_mib(*made) / 1024 if of_card else sum(required_bytes(*made).values()) / (1 << 30)
    where = "of a card, libraries included" if of_card else "of memory, and what libraries take"
    return f"{model}: a {run} run takes up to {whole:.1f} GiB {where} (GiB: {told})"


# Checks that engines, low precision and endpoints of a profile can start here, before its first run does.


def require_engine(
    generation: GenerationSettings, learner: LearnerSettings | None, jobs: int, nf4: bool = False
) -> None:
    """Raise ConfigError where an engine, 4-bit weights or the 8-bit optimizer lack a package, a card or room.

    ``learner`` is None where nothing is trained; ``nf4`` says that the base is stored in 4 bits.
    """
    asked = dict(_packages(generation, learner, nf4))
    if not asked:
        return
    for package, setting in asked.items():
        if find_spec(package) is None:
            raise ConfigError(
                f"{setting} needs {package}, which is not installed: install the extra 'gpu' "
                "(in a checkout: uv sync --locked --extra gpu)"
            )
    cards = visible_cards()
    if not cards:
        setting = next(iter(asked.values()))
        raise ConfigError(
            f"{setting} needs an NVIDIA card, and nvidia-smi finds none here: run it on a machine that has "
            "one, or use the profile embedded, which needs none"
        )
    if generation.backend not in ENGINES:
        return
    if not all(name.isdigit() for name in named_cards()):
        raise ConfigError(
            f"CUDA_VISIBLE_DEVICES is {','.join(named_cards())}, but vLLM 0.7.3 only reads numbers: set "
            f"it to {','.join(card.number for card in cards)}, with CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    share = generation.engine.gpu_memory_utilization
    beside = -(-jobs // len(cards))
    if beside > 1 and beside * share > 1:
        raise ConfigError(
            f"jobs = {jobs} puts {beside} engines on a card, each with {share:g} of its memory "
            f"(generation.engine.gpu_memory_utilization): set jobs = {len(cards)}, one for each card here"
        )
    for card in cards:
        taken = int(beside * share * card.total_mib)
        if card.free_mib < taken:
            raise ConfigError(
                f"the engine takes {share:g} of a card's memory, {taken:,} MiB, and card {card.number} has "
                f"{card.free_mib:,} of {card.total_mib:,} MiB free: stop other processes on it, or choose "
                "another with CUDA_VISIBLE_DEVICES"
            )


def _packages(
    generation: GenerationSettings, learner: LearnerSettings | None, nf4: bool
) -> Iterator[tuple[str, str]]:
    if generation.backend in ENGINES:
        backend = f'generation.backend = "{generation.backend}"'
        yield generation.backend, backend
        yield "vllm", backend  # Unsloth's engine is vLLM's.
        if generation.engine.load_in_4bit:
            yield "bitsandbytes", "generation.engine.load_in_4bit"
    if nf4:
        yield "bitsandbytes", 'model.quantization = "nf4"'
    if learner is not None and learner.load_in_4bit:
        yield "bitsandbytes", "learner.load_in_4bit"
    if learner is not None and learner.optimizer == "adamw_8bit":
        yield "bitsandbytes", 'learner.optimizer = "adamw_8bit"'


_MPS = Path("/tmp/nvidia-mps")

Part = Profile | BreadthCell | AuditCell


def require_card(profile: Profile, parts: Sequence[Part]) -> None:
    """Raise ConfigError where runs of these parts find no card, or too little free memory for their share.

    Also where their engine or low precision cannot start.
    """
    learner = profile.learner if any(map(trains, parts)) else None
    if parts:
        nf4 = _loading(profile).quantization == "nf4"
        require_engine(profile.generation, learner, profile.jobs, nf4)
    needed = [requirement for part in parts for requirement in _required_memory(profile, part)]
    if not needed:
        return
    cards = visible_cards()
    if not cards:
        raise ConfigError(
            'model.device = "cuda" asks for an NVIDIA card, and nvidia-smi finds none here: run it on '
            "a machine that has one, or use the profile embedded, which needs none"
        )
    model, most = max(needed, key=itemgetter(1))
    free = min(card.free_mib for card in cards)
    beside = -(-profile.jobs // len(cards))
    if beside * most > free:
        fitting = free // most * len(cards)
        remedy = f"set jobs = {fitting}" if fitting else "use another card, or a smaller group or model"
        raise ConfigError(
            f"{beside} runs of {model} at the same time take up to {beside * most:,} MiB of the "
            f"card, which has {free:,} MiB free: {remedy}"
        )


def require_card_of_run(config: RunConfig) -> None:
    """Raise ConfigError where a recorded run computed on a card and this machine has none."""
    if _computes_on_card(config.base.device, config.generation) and not visible_cards():
        raise ConfigError(
            "the run used an NVIDIA card, and nvidia-smi finds none here: use a machine that has one; "
            "s2s verify --draws checks its tokens without one"
        )


def trains(part: Part) -> bool:
    """Whether a condition of these runs updates an adapter."""
    return bool(set(part.conditions) - {FROZEN})


def cards_of(profile: Profile) -> tuple[str, ...]:
    """The names of the visible cards that the runs share; none where no run of the profile needs one.

    For engines they are numbers: vLLM 0.7.3 reads nothing else.
    """
    if profile.generation.backend in ENGINES:
        return tuple(card.number for card in visible_cards())
    return tuple(card.name for card in visible_cards()) if _needs_card(profile) else ()


def card_warnings(profile: Profile) -> Iterator[str]:
    """Yield a warning where parallel runs on the card would take turns, for lack of NVIDIA MPS."""
    has_mps = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", _MPS)).exists()
    if _loading(profile).device == "cuda" and profile.jobs > 1 and not has_mps:
        yield (
            f"warning: {profile.jobs} runs take turns on one card: start nvidia-cuda-mps-control -d first, "
            "and they compute side by side, about twice as fast in all"
        )


def _loading(profile: Profile) -> ModelLoading:
    """How the profile's model is loaded; models of cells are loaded the same way."""
    return profile.model.loading if isinstance(profile.model, ModelSettings) else ModelLoading()


def _needs_card(profile: Profile) -> bool:
    return _computes_on_card(_loading(profile).device, profile.generation)


def _computes_on_card(device: str, generation: GenerationSettings) -> bool:
    """Whether our sampler, or the learner beside a server, is on a card; an engine sees to its own card."""
    return device == "cuda" and generation.backend in ("local", "server")


def _required_memory(profile: Profile, part: Part) -> Iterator[tuple[str, int]]:
    learner = profile.learner if trains(part) else None
    if not _needs_card(profile) or (learner is None and profile.generation.backend == "server"):
        return
    name = model_name(part.model)
    yield name, required_mib(model_directory(name), _loading(profile), profile.generation, learner)

"""Checks that this machine's cards can hold a profile's parallel runs, before the first run starts."""

import os
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path

from search_to_signal.errors import ConfigError
from search_to_signal.generators.model_files import model_directory
from search_to_signal.generators.settings import (
    ENGINES,
    GenerationSettings,
    ModelLoading,
    ModelSettings,
    model_name,
)
from search_to_signal.profiles.layer_settings import AuditCell, BreadthCell
from search_to_signal.profiles.profile import Profile
from search_to_signal.profiles.run_config import RunConfig
from search_to_signal.provenance.environment import visible_cards
from search_to_signal.records.conditions import FROZEN
from search_to_signal.scheduling.card_memory_estimate import required_mib
from search_to_signal.scheduling.engine_check import require_engine

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
            "one that has a card; the profile embedded needs none"
        )
    model, most = max(needed, key=itemgetter(1))
    free = min(card.free_mib for card in cards)
    beside = -(-profile.jobs // len(cards))
    if beside * most > free:
        fitting = free // most * len(cards)
        remedy = f"set jobs = {fitting}" if fitting else 'use another card, or model.quantization = "nf4"'
        raise ConfigError(
            f"{beside} runs of {model} side by side take up to {beside * most:,} MiB of the "
            f"card, which has {free:,} MiB free: {remedy}"
        )


def require_card_of_run(config: RunConfig) -> None:
    """Raise ConfigError where a recorded run computed on a card and this machine has none."""
    if _samples_on_card(config.base.device, config.generation) and not visible_cards():
        raise ConfigError(
            "it computed on an NVIDIA card, and nvidia-smi finds none here: give the command where there is "
            "one; s2s verify --draws reads its tokens on a processor"
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
            f"warning: {profile.jobs} runs take turns on one card: nvidia-cuda-mps-control -d, started "
            "before, lets them compute side by side, about twice as many groups in all"
        )


def _loading(profile: Profile) -> ModelLoading:
    """How the profile's model is loaded; models of cells are loaded the same way."""
    return profile.model.loading if isinstance(profile.model, ModelSettings) else ModelLoading()


def _needs_card(profile: Profile) -> bool:
    return _samples_on_card(_loading(profile).device, profile.generation)


def _samples_on_card(device: str, generation: GenerationSettings) -> bool:
    """Whether this package's own sampler runs on a card; an engine sees to its card itself."""
    return device == "cuda" and generation.backend == "local"


def _required_memory(profile: Profile, part: Part) -> Iterator[tuple[str, int]]:
    """The model and the memory in MiB of one run of a part; none for runs without the card."""
    if not _needs_card(profile):
        return
    learner = profile.learner if trains(part) else None
    name = model_name(part.model)
    yield name, required_mib(model_directory(name), _loading(profile), profile.generation, learner)

"""Checks that engines, low precision and endpoints of a profile can start here, before its first run does."""

from collections.abc import Iterator
from importlib.util import find_spec

from search_to_signal.errors import ConfigError
from search_to_signal.generators.settings import ENGINES, GenerationSettings
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.provenance.environment import named_cards, visible_cards


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
            "one; the profile embedded needs none"
        )
    if generation.backend not in ENGINES:
        return
    if not all(name.isdigit() for name in named_cards()):
        raise ConfigError(
            f"CUDA_VISIBLE_DEVICES is {','.join(named_cards())}, and vLLM 0.7.3 reads numbers alone: set "
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
                f"{card.free_mib:,} of {card.total_mib:,} MiB free: end what else runs on it, or choose "
                "another with CUDA_VISIBLE_DEVICES"
            )


def _packages(
    generation: GenerationSettings, learner: LearnerSettings | None, nf4: bool
) -> Iterator[tuple[str, str]]:
    """Yield the packages of the extra ``gpu`` that are needed, each with a setting that needs it."""
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

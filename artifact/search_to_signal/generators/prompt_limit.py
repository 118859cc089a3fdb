"""Prompts longer than the limit: cut on their left, or refused (D26)."""

from collections.abc import Sequence

from search_to_signal.errors import ConfigError
from search_to_signal.generators.settings import GenerationSettings


def check_prompt(tokens: int, settings: GenerationSettings) -> None:
    """Raise ConfigError for a prompt over its limit where such are refused."""
    if settings.long_prompts == "refuse" and tokens > settings.max_prompt_tokens:
        raise ConfigError(
            f"a prompt has {tokens} tokens, generation.max_prompt_tokens is {settings.max_prompt_tokens}: "
            'raise it in the profile, or set generation.long_prompts to "cut"'
        )


def cut_prompt(prompt_ids: Sequence[int], settings: GenerationSettings) -> list[int]:
    """What of a prompt a group is sampled from, and scored on: at most its last ``max_prompt_tokens`` (D26).

    TRL 0.15.1 cuts so what it scores; with vLLM it samples from the whole text. Raises as ``check_prompt``.
    """
    check_prompt(len(prompt_ids), settings)
    return list(prompt_ids[-settings.max_prompt_tokens :])

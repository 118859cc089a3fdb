"""What proposes completions: a local model, a server, or a recording; the search never knows which."""

from dataclasses import dataclass
from typing import Protocol

import msgspec

from search_to_signal.errors import ConfigError


class GenerationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Group size G, limits in tokens, and the sampling temperature (nothing else filters, D23)."""

    group_size: int = 4
    max_prompt_tokens: int = 2048
    max_completion_tokens: int = 1024
    temperature: float = 0.9

    def __post_init__(self) -> None:
        """Refuse values that could never sample; raises ConfigError."""
        for name in ("group_size", "max_prompt_tokens", "max_completion_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"generation.{name} is {getattr(self, name)}: give at least 1")
        if not self.temperature > 0:
            raise ConfigError(f"generation.temperature is {self.temperature}: give a number above 0")


class ChatPrompt(Protocol):
    """The two chat messages that a search asks with."""

    @property
    def system(self) -> str: ...
    @property
    def user(self) -> str: ...


@dataclass(frozen=True)
class Completion:
    """One sampled answer: its tokens with the end token where one was drawn, and its text without."""

    ids: tuple[int, ...]
    text: str
    truncated: bool


@dataclass(frozen=True)
class Generation:
    """The G completions of one prompt, with the exact prompt that they were sampled from."""

    prompt: str
    prompt_ids: tuple[int, ...]
    completions: tuple[Completion, ...]


class Generator(Protocol):
    """Samples a group; equal prompt and seed give equal completions on one machine."""

    def generate(self, prompt: ChatPrompt, seed: int) -> Generation: ...

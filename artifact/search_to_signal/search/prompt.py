"""A prompt as data: what a host asks, whatever its words."""

from dataclasses import dataclass
from typing import Literal

PromptForm = Literal["compact", "released"]
"""How a host that has both lays its prompts out (D36)."""


@dataclass(frozen=True)
class Prompt:
    """The two chat messages of one prompt."""

    system: str
    user: str

"""The knobs of the search, with the host's values."""

import math
from typing import Literal

import msgspec

from search_to_signal.errors import ConfigError

PromptForm = Literal["compact", "released"]
TWENTIETH = -1


class SearchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes, operator weights, collapse and prompts of the host (HOST.md, points 8, 9, 14, 25 and 28).

    ``collapse_speed`` is the chance of a collapse per stagnant round so far, ``collapse_threshold`` the
    number of stagnant rounds that forces one: 0 is a collapse before every prompt, -1 a twentieth of the
    groups of a run (D35). ``components`` says whose components an injection prompt remembers: those of
    every valid child, or of admitted ones (D31). ``prompts`` is the form of the prompts (D36). Raises
    ConfigError for what cannot be.
    """

    population_size: int = 10
    simplification: float = 1.0
    injection: float = 1.0
    replacement: float = 2.0
    crossover: float = 4.0
    collapse_threshold: int = 25
    collapse_speed: float = 0.0005
    components: Literal["valid", "admitted"] = "valid"
    prompts: PromptForm = "compact"

    def __post_init__(self) -> None:
        for name, least in (("population_size", 1), ("collapse_threshold", TWENTIETH)):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"search.{name} is {getattr(self, name)}: give a whole number of at least {least}"
                )
        for name in ("simplification", "injection", "replacement", "crossover", "collapse_speed"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"search.{name} is {value}: give a finite number of at least 0")
        if self.simplification + self.injection + self.replacement + self.crossover <= 0:
            raise ConfigError("search has no operator with a positive weight: give at least one")

    def over(self, groups: int) -> "SearchSettings":
        """The same in a run of so many groups, where a threshold of -1 becomes a number, rounded down."""
        if self.collapse_threshold != TWENTIETH:
            return self
        return msgspec.structs.replace(self, collapse_threshold=groups // 20)

"""The knobs of CALM's search, with the host's values."""

from typing import Annotated, Literal

import msgspec

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.settings import Range, Settings
from search_to_signal.search.member import PromptForm

TWENTIETH = -1
Weight = Annotated[float, Range(0, 1e6)]


class SearchSettings(Settings, frozen=True):
    """Sizes, operator weights, collapse and prompts of the host (HOST.md, points 8, 9, 14, 25 and 28).

    ``collapse_speed`` is the chance of a collapse per stagnant round so far, ``collapse_threshold`` the
    number of stagnant rounds that forces one: 0 is a collapse before every prompt, -1 a twentieth of the
    groups of a run (D35). ``components`` says whose components an injection prompt remembers: those of
    every valid child, or of admitted ones (D31). ``prompts`` is the form of the prompts (D36). Raises
    ConfigError for what cannot be.
    """

    TABLE = "search"
    population_size: Annotated[int, Range(1, 1_000_000)] = 10
    simplification: Weight = 1.0
    injection: Weight = 1.0
    replacement: Weight = 2.0
    crossover: Weight = 4.0
    collapse_threshold: Annotated[int, Range(TWENTIETH, 1_000_000_000)] = 25
    collapse_speed: Annotated[float, Range(0, 1e6)] = 0.0005
    components: Literal["valid", "admitted"] = "valid"
    prompts: PromptForm = "compact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.simplification + self.injection + self.replacement + self.crossover <= 0:
            raise ConfigError("search has no operator with a positive weight: give at least one")

    def collapses_always(self, groups: int) -> bool:
        """Whether a run of so many groups is too short for the released rule: a twentieth of it is 0."""
        return self.collapse_threshold == TWENTIETH and not self.over(groups).collapse_threshold

    def over(self, groups: int) -> "SearchSettings":
        """The same in a run of so many groups, where a threshold of -1 becomes a number, rounded down."""
        if self.collapse_threshold != TWENTIETH:
            return self
        return msgspec.structs.replace(self, collapse_threshold=groups // 20)

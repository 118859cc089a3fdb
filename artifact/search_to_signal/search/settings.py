"""The knobs of the search, with the host's values."""

import math

import msgspec

from search_to_signal.errors import ConfigError


class SearchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes, operator weights and collapse of the host (host points 8, 9 and 14).

    ``collapse_speed`` is the chance of a collapse per stagnant round so far, ``collapse_threshold`` the
    number of stagnant rounds that forces one. Raises ConfigError when a value is out of range.
    """

    population_size: int = 10
    simplification: float = 1.0
    injection: float = 1.0
    replacement: float = 2.0
    crossover: float = 4.0
    collapse_threshold: int = 25
    collapse_speed: float = 0.0005

    def __post_init__(self) -> None:
        for name in ("population_size", "collapse_threshold"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"search.{name} is {getattr(self, name)}: give a whole number of at least 1"
                )
        for name in ("simplification", "injection", "replacement", "crossover", "collapse_speed"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"search.{name} is {value}: give a finite number of at least 0")
        if self.simplification + self.injection + self.replacement + self.crossover <= 0:
            raise ConfigError("search has no operator with a positive weight: give at least one")

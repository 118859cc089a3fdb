"""The knobs of TTT-Discover's rule, by its names; LoRA and the optimizer have theirs in ``[learner]``."""

from typing import Annotated

import msgspec

from search_to_signal.config import Range, check_ranges


class EntropicSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A step every ``groups_per_batch`` groups; ``kl_penalty_coef`` weighs the distance to the base (D57)."""

    groups_per_batch: Annotated[int, Range(1, 1_000_000)] = 8
    kl_penalty_coef: Annotated[float, Range(0, 1000)] = 0.1

    def __post_init__(self) -> None:
        """Refuse numbers out of their ranges; raises ConfigError."""
        check_ranges(self, "rule_settings")

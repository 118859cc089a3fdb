"""The knobs of the reuse buffer, by TTT-Discover's names (recipes/ttt/sampler.py)."""

from typing import Annotated

import msgspec

from search_to_signal.config import Range, check_ranges


class BufferSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``puct_c`` weighs rarely tried programs; a group adds its ``topk_children`` best, 0 for all of them.

    Beyond ``max_buffer_size`` the worst leave, the seed never.
    """

    puct_c: Annotated[float, Range(0, 1e6)] = 1.0
    topk_children: Annotated[int, Range(0, 1_000_000)] = 2
    max_buffer_size: Annotated[int, Range(2, 1_000_000)] = 1000

    def __post_init__(self) -> None:
        """Refuse numbers out of their ranges; raises ConfigError."""
        check_ranges(self, "host_settings")

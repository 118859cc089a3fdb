"""The profile's table ``[probe]``."""

from typing import Annotated

import msgspec

from search_to_signal.base.settings import Range, check_ranges


class ProbeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A bank of ``prompts`` from the Frozen runs, ``completions`` of every checkpoint to each."""

    prompts: Annotated[int, Range(1, 1_000_000)] = 64
    completions: Annotated[int, Range(1, 1024)] = 4

    def __post_init__(self) -> None:
        check_ranges(self, "probe")

"""The profile's table ``[probe]``."""

from typing import Annotated

from search_to_signal.base.settings import Range, Settings


class ProbeSettings(Settings, frozen=True, kw_only=True):
    """A bank of ``prompts`` from the Frozen runs, ``completions`` of every checkpoint to each."""

    TABLE = "probe"
    prompts: Annotated[int, Range(1, 1_000_000)] = 64
    completions: Annotated[int, Range(1, 1024)] = 4

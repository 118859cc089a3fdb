"""What a run of the released host is written with."""

from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from search_to_signal.records.schema import StepTiming

HOST = "host.jsonl"


class HostRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Native rewards of one group: as the released host returned them, and as our records give them."""

    step: int
    native: tuple[float, ...]
    recomputed: tuple[float, ...]


class Clock(Protocol):
    """The time of steps, split by phase."""

    def phase(self, name: str) -> AbstractContextManager[None]: ...
    def timing(self, step: int) -> StepTiming: ...

"""The profile's table ``[heldout]``."""

from typing import Annotated

from search_to_signal.base.settings import Range, Settings
from search_to_signal.run.config import Count


class HeldoutSettings(Settings, frozen=True, kw_only=True):
    """How much is evaluated: the first ``instances`` of every held-out split, all of them when None.

    ``timeout_s`` is the processor time of one heuristic on one split; large instances need more than the
    search allows. ``behaviour_instances`` are taken from the split of the embedded profile.
    """

    TABLE = "heldout"
    instances: Annotated[int | None, Range(1, 1_000_000)] = None
    timeout_s: Annotated[float, Range(0.01, 1e6)] = 600.0
    behaviour_split: str = "embedded"
    behaviour_instances: Annotated[int | None, Range(1, 1_000_000)] = 4
    slots: Count = 1

"""The profile's table ``[updates]``."""

from typing import Annotated

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.settings import Range, Settings
from search_to_signal.credit import PUBLISHED
from search_to_signal.credit.normalizers import NORMALIZERS
from search_to_signal.run.config import Count, Groups


class UpdateSettings(Settings, frozen=True, kw_only=True):
    """``groups`` consecutive groups to step on, ``withheld`` groups behind them to look at.

    The first normalizer is the one that the others are compared with. ``descent_rate`` is the learning rate
    of plain descent, whose steps are as small as its gradients. The layer runs alone, so it may take more
    ``threads`` than a run did; others give other last bits.
    """

    TABLE = "updates"
    groups: Groups = 3
    withheld: Groups = 1
    mappings: tuple[str, ...] = tuple(PUBLISHED)
    normalizers: tuple[str, ...] = tuple(NORMALIZERS)
    descent_rate: Annotated[float, Range(0, 10)] = 1.0
    threads: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mappings or not self.normalizers:
            raise ConfigError("matched updates need at least one mapping and one normalizer: name them")

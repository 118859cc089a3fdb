"""The profile's table ``[anchor]``."""

from typing import Annotated

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.settings import Range, Settings
from search_to_signal.records.anchor import Clock


class AnchorSettings(Settings, frozen=True, kw_only=True):
    """Frozen search for the time that the trained runs of ``conditions`` took (the paper's two by default).

    The Frozen run of a seed lasts ``1 + margin`` times its largest budget, so that an exact match of realized
    time is inside it although step times drift. ``clock`` says which seconds budgets are made of (D30):
    processor time does not see an accelerator, so runs on one take wall time.
    """

    TABLE = "anchor"
    conditions: tuple[str, ...] = ("native", "factorized")
    clock: Clock = "processor"
    margin: Annotated[float, Range(0, 10)] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.conditions:
            raise ConfigError("anchor.conditions is empty: name at least one trained condition")

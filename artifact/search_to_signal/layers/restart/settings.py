"""The profile's table ``[restart]``."""

from typing import Annotated

from search_to_signal.base.settings import Range, Settings


class RestartSettings(Settings, frozen=True, kw_only=True):
    """Frozen restarts of the cohort's trained runs; without ``conditions`` all of them.

    ``groups`` is the horizon, the cohort's when absent; only a smoke profile may give another. The restart
    of the initial model is the cohort's Frozen run of the same seed, which starts from the same population:
    nothing is run twice. Of ``archive_conditions`` the trained runs are also restarted with their last
    archive, once with the initial model and once with the final adapter: with the plain restart and the
    Frozen run these are all four of checkpoint x archive (D45).
    """

    TABLE = "restart"
    conditions: tuple[str, ...] | None = None
    archive_conditions: tuple[str, ...] = ()
    groups: Annotated[int | None, Range(1, 1_000_000)] = None

"""The profile's table ``[api]``."""

from typing import Annotated

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.settings import Range, Settings
from search_to_signal.models.settings import ApiSettings


class ApiReference(Settings, frozen=True, kw_only=True):
    """Frozen search through ``endpoint``, or through one on this machine over the profile's own model.

    ``completions`` per run, one request each: as many as a cohort run has when absent. ``model`` is the
    provider's name for its model. Without ``seeds`` those of the cohort.
    """

    TABLE = "api"
    seeds: Annotated[tuple[int, ...] | None, Range(0, 2**63 - 1)] = None
    completions: Annotated[int | None, Range(1, 1_000_000_000)] = None
    model: str | None = None
    endpoint: ApiSettings | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seeds is not None and (not self.seeds or len(set(self.seeds)) < len(self.seeds)):
            raise ConfigError(f"api.seeds is {list(self.seeds)}: give at least one seed, and each only once")
        if (self.model is None) != (self.endpoint is None):
            raise ConfigError("api.model is the endpoint's name for its model: give both model and endpoint")

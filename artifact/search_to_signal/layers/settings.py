"""The tables and cells that a profile has for the evidence layers of this project.

A layer of somebody else takes its own from ``[layers.KEY]``, by ``Profile.settings_of``.
"""

from typing import Annotated

import msgspec

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.settings import Range, Settings
from search_to_signal.credit import PUBLISHED
from search_to_signal.credit.normalizers import NORMALIZERS
from search_to_signal.models.settings import ApiSettings
from search_to_signal.records.anchor import Clock
from search_to_signal.records.conditions import FROZEN
from search_to_signal.run.config import Count, Groups, Seeds


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


class AuditCell(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One cell, task x model, recorded for the shared-record audit alone: Frozen runs, no comparison."""

    problem: str
    split: str
    model: str
    seeds: Seeds
    groups: Groups

    @property
    def conditions(self) -> tuple[str, ...]:
        """Frozen and nothing else: the audit needs evaluated groups, not a learner."""
        return (FROZEN,)


class BreadthCell(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One cell, task x model: live runs of their own, each paired with the cell's Frozen run of its seed."""

    problem: str
    split: str
    model: str
    conditions: tuple[str, ...]
    seeds: Seeds
    groups: Groups


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


class ProbeSettings(Settings, frozen=True, kw_only=True):
    """A bank of ``prompts`` from the Frozen runs, ``completions`` of every checkpoint to each."""

    TABLE = "probe"
    prompts: Annotated[int, Range(1, 1_000_000)] = 64
    completions: Annotated[int, Range(1, 1024)] = 4


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

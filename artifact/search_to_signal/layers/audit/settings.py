"""An entry of the profile's ``[[audit]]``."""

import msgspec

from search_to_signal.records.conditions import FROZEN
from search_to_signal.run.config import Groups, Seeds


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

"""An entry of the profile's ``[[breadth]]``."""

import msgspec

from search_to_signal.run.config import Groups, Seeds


class BreadthCell(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One cell, task x model: live runs of their own, each paired with the cell's Frozen run of its seed."""

    problem: str
    split: str
    model: str
    conditions: tuple[str, ...]
    seeds: Seeds
    groups: Groups

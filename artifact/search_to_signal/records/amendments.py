"""What was changed of a plan after it was written: each change with its date, its studies and its reason.

The plan's own bytes stay, since every manifest holds their SHA-256: amendments lie next to it, in a file of
their own. A closed study is recorded no further, and what it lacks is no longer waited for. A note changes
nothing: it tells of the recorded runs what their records do not.
"""

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from search_to_signal.config import load_toml
from search_to_signal.errors import ConfigError
from search_to_signal.records.plan import Plan

AMENDMENTS = "amendments.toml"


class Amendment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One change: ``closes`` ends the recording of these studies as they are, ``notes`` tells of them."""

    date: datetime.date
    what: Literal["closes", "notes"]
    studies: tuple[str, ...]
    why: str

    @property
    def words(self) -> str:
        """What tables and pages call it."""
        return f"amendment of {self.date.isoformat()}"


class Amendments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All changes of a plan, in the order in which they were made."""

    amendments: tuple[Amendment, ...] = ()


def read_amendments(plan_file: Path, plan: Plan) -> tuple[Amendment, ...]:
    """Those that lie beside a plan's file, none where nothing was changed.

    Raises ConfigError for an unreadable file, a study that the plan lacks, one that is closed twice, and
    dates out of order.
    """
    path = plan_file.with_name(AMENDMENTS)
    if not path.is_file():
        return ()
    amendments = load_toml(path, Amendments).amendments
    named = [study for amendment in amendments for study in amendment.studies]
    closed = [study for one in amendments if one.what == "closes" for study in one.studies]
    known = {study.key for study in plan.studies}
    if unknown := sorted(set(named) - known):
        raise ConfigError(f"{path} names {', '.join(unknown)}, which the plan does not have: correct it")
    if twice := sorted({key for key in closed if closed.count(key) > 1}):
        raise ConfigError(f"{path} closes {', '.join(twice)} twice: leave one")
    if list(amendments) != sorted(amendments, key=lambda amendment: amendment.date):
        raise ConfigError(f"{path}: amendments stand in the order of their dates: sort them")
    return amendments


def closed_studies(amendments: tuple[Amendment, ...]) -> Mapping[str, Amendment]:
    """The amendment that closed each closed study, by its key."""
    closings = (amendment for amendment in amendments if amendment.what == "closes")
    return {study: amendment for amendment in closings for study in amendment.studies}

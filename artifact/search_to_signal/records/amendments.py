"""What was changed of a plan after it was written, and which of its runs are still to come."""

import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.package_data import EVIDENCE
from search_to_signal.base.settings import load_toml
from search_to_signal.records.files import read_json, write_atomically
from search_to_signal.records.layers import LAYERS
from search_to_signal.records.manifest import REPORT, ROSTER, finished_manifest, planned_runs
from search_to_signal.records.plan import PLAN, Plan, evidence_roots, plan_sha256, read_plan

# What was changed of a plan after it was written: each change with its date, its studies and its reason.
#
# The plan's own bytes stay, since every manifest holds their SHA-256: amendments lie next to it, in a file of
# their own. A closed study is recorded no further, and what it lacks is no longer waited for. A note changes
# nothing: it tells of the recorded runs what their records do not.

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
        raise ConfigError(f"{path} names {', '.join(unknown)}, which is not in the plan: correct the name")
    if twice := sorted({key for key in closed if closed.count(key) > 1}):
        raise ConfigError(f"{path} closes {', '.join(twice)} twice: remove one")
    if list(amendments) != sorted(amendments, key=lambda amendment: amendment.date):
        raise ConfigError(f"{path}: the amendments are not sorted by date: sort them")
    return amendments


def closed_studies(amendments: tuple[Amendment, ...]) -> Mapping[str, Amendment]:
    """The amendment that closed each closed study, by its key."""
    closings = (amendment for amendment in amendments if amendment.what == "closes")
    return {study: amendment for amendment in closings for study in amendment.studies}


# A mark in a results directory of which runs are missing: what is made of it says so.

PARTIAL = "partial.json"


class Gap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many runs of a layer there are, and how many were to be recorded.

    A finished run that waits for an earlier seed is not there: it is recorded, and not packed.
    ``closed`` names the amendment by which the rest is no longer waited for; empty where it is.
    """

    recorded: int
    planned: int
    closed: str = ""

    @property
    def words(self) -> str:
        """For people."""
        if self.closed:
            return f"closed: {self.recorded} of {self.planned} planned runs, {self.closed}"
        return f"PARTIAL: {self.recorded} of {self.planned} planned runs are there"


class Partial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The layers that lack runs."""

    gaps: dict[str, Gap]

    @property
    def waits(self) -> bool:
        """Whether runs are still to come."""
        return any(not gap.closed for gap in self.gaps.values())

    @property
    def words(self) -> str:
        """For people."""
        return "; ".join(f"{layer} {gap.words}" for layer, gap in sorted(self.gaps.items()))

    @property
    def awaited(self) -> str:
        """What to say of the layers whose runs are still to come, empty where none is."""
        return Partial({layer: gap for layer, gap in self.gaps.items() if not gap.closed}).words

    def of(self, layer: str) -> str:
        """What to say of a layer, empty where it has all its runs."""
        return self.gaps[layer].words if layer in self.gaps else ""


def write_partial(directory: Path, mark: Partial) -> None:
    """Mark a directory."""
    write_atomically(directory / PARTIAL, msgspec.json.encode(mark) + b"\n")


def read_partial(directory: Path) -> Partial | None:
    """The mark of a directory, None where it has none; raises RunDirectoryError for an unreadable one."""
    path = directory / PARTIAL
    return read_json(path, Partial, f"{path} was removed while it was read") if path.is_file() else None


# Runs of a plan that are still to come: while one is, what is recorded decides nothing.


def awaited_runs(lacking: Mapping[str, Partial]) -> str:
    """Say which runs of each profile are still to come, empty where none is."""
    return "; ".join(f"{name}: {partial.awaited}" for name, partial in lacking.items() if partial.awaited)


def find_awaited_runs(results: Path, names: Collection[str] | None = None) -> str:
    """Say which runs of evidence, or of one profile of it, are still to come; empty where none is.

    ``names`` are the profiles that count, by default all.

    Packed or not, rosters list what a plan asks for, whose SHA-256 the manifests hold. What its amendments
    close is waited for no longer; they are known of a plan that lies here, beside the profile, or in the
    shipped evidence. Results that follow no plan await nothing. Raises ConfigError for an unreadable plan and
    RunDirectoryError for an unreadable roster or manifest.
    """
    top = results.resolve()
    top = top.parent if top.name == REPORT else top
    profiles = [path for path in (top, *sorted(top.glob("*"))) if _has_rosters(path)]
    profiles = [path for path in profiles if names is None or path.name in names]
    return awaited_runs({path.name: _awaited_of(path, top) for path in profiles})


def _has_rosters(directory: Path) -> bool:
    return any(next((directory / layer.key).rglob(ROSTER), None) for layer in LAYERS)


def _awaited_of(profile: Path, top: Path) -> Partial:
    found = {name: finished_manifest(profile / name) for name in planned_runs(profile)}
    recorded = {name: manifest for name, manifest in found.items() if manifest is not None}
    followed = {str(run.plan_sha256) for run in recorded.values() if run.plan_sha256 is not msgspec.UNSET}
    plan_file = _plan_file(profile, top, followed)
    if plan_file is None and not followed:
        return Partial({})
    closed: Mapping[str, str] = {}
    if plan_file is not None:
        plan = read_plan(plan_file)
        closed = closed_layers(plan, closed_studies(read_amendments(plan_file, plan)), profile.name)
    return Partial(dict(_gaps([*recorded], set(found), closed)))


def _plan_file(profile: Path, top: Path, followed: set[str]) -> Path | None:
    """Return the plan of the evidence itself, else the one that the runs follow, beside them or shipped."""
    if (top / PLAN.name).is_file():
        return top / PLAN.name
    known = (root / PLAN.name for root in (profile.parent, *evidence_roots(EVIDENCE)))
    return next((path for path in known if path.is_file() and plan_sha256(path) in followed), None)


def closed_layers(plan: Plan, closed: Mapping[str, Amendment], profile: str) -> dict[str, str]:
    """Return the layers of a profile whose studies are all closed, with the words of the last amendment."""
    words: dict[str, str] = {}
    studies = [study for study in plan.studies if profile in study.profiles]
    for layer in dict.fromkeys(layer for study in studies for layer in study.layers):
        keys = [study.key for study in studies if layer in study.layers]
        if all(key in closed for key in keys):
            last = max((closed[key] for key in keys), key=lambda amendment: amendment.date)
            words[layer] = last.words
    return words


def missing_runs(packed: Path, names: Sequence[str], closed: Mapping[str, str]) -> Partial:
    """Return the layers of a packed directory with fewer recorded runs, ``names``, than planned ones.

    ``closed`` are layers whose studies are closed, with the words of their amendment.
    """
    return Partial(dict(_gaps(names, {*planned_runs(packed), *names}, closed)))


def _gaps(recorded: Sequence[str], planned: set[str], closed: Mapping[str, str]) -> Iterator[tuple[str, Gap]]:
    for layer in sorted({_layer(name) for name in planned}):
        count, total = (sum(_layer(name) == layer for name in names) for names in (recorded, planned))
        if count < total:
            yield layer, Gap(count, total, closed.get(layer, ""))


def _layer(run: str) -> str:
    return run.partition("/")[0]

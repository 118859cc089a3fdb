"""Runs of a plan that are still to come: while one is, what is recorded decides nothing."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from search_to_signal.package_data import EVIDENCE
from search_to_signal.records.amendments import Amendment, closed_studies, read_amendments
from search_to_signal.records.layers import LAYERS
from search_to_signal.records.manifest import REPORT, ROSTER, finished_manifest, planned_runs
from search_to_signal.records.partial import Gap, Partial
from search_to_signal.records.plan import PLAN, Plan, evidence_roots, plan_sha256, read_plan


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
    """Whether a directory holds the layers of a profile."""
    return any(next((directory / layer.key).rglob(ROSTER), None) for layer in LAYERS)


def _awaited_of(profile: Path, top: Path) -> Partial:
    """Return the layers of a profile's directory that lack runs; none where it follows no plan."""
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
    """The layers with fewer recorded than planned runs."""
    for layer in sorted({_layer(name) for name in planned}):
        count, total = (sum(_layer(name) == layer for name in names) for names in (recorded, planned))
        if count < total:
            yield layer, Gap(count, total, closed.get(layer, ""))


def _layer(run: str) -> str:
    return run.partition("/")[0]

"""Checks of the runs of one table: complete, unchanged, of one protocol, and no run of the cohort missing.

Without these checks a table could look complete although runs are missing, so unsuitable runs are refused by
name (paper, supplement, Provenance and Exclusions).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from search_to_signal.errors import RunDirectoryError
from search_to_signal.provenance.checksums import read_sums, refuse_other_bytes
from search_to_signal.records.conditions import Condition, run_name
from search_to_signal.records.manifest import (
    MANIFEST,
    Manifest,
    read_manifest,
    read_roster,
    run_directories,
)
from search_to_signal.records.reader import COMPLETIONS, STEPS, TIMINGS

# Settings in which the runs of one cohort may differ; a condition may name its normalizer.
OWN = ("condition", "seed", "normalizer")
# Settings that two layers must share before a run of one is compared with a run of the other.
SHARED = ("problem", "split", "model", "search", "generation", "evaluation", "idea_end")
_READ = (MANIFEST, COMPLETIONS, STEPS, TIMINGS)


def read_cohort(directory: Path, own: Sequence[str] = OWN) -> dict[Path, Manifest]:
    """Read the manifests of the runs at or directly below a directory, which may differ only in ``own``.

    Raises RunDirectoryError, naming the run, where there is no run, or one is unfinished, changed, of another
    protocol, or missing (from the directory's roster, or from conditions x seeds).
    """
    manifests = read_unpaired((directory,), own)
    _check_grid(directory, manifests)
    return manifests


def read_unpaired(directories: Sequence[Path], own: Sequence[str] = OWN) -> dict[Path, Manifest]:
    """Read the manifests of runs in several directories, whatever runs are missing beside them.

    Otherwise raises as ``read_cohort`` does.
    """
    manifests = {
        place: read_manifest(place) for directory in directories for place in run_directories(directory)
    }
    if not manifests:
        raise RunDirectoryError(f"{directories[0]} holds no run: give the directory of a run or of a cohort")
    for place, manifest in manifests.items():
        _check_finished(place, manifest)
    _check_protocol(directories[0], manifests, own)
    return manifests


def protocol(manifest: Manifest, own: Sequence[str] = OWN) -> dict[str, Any]:
    """Return the settings that all runs of one cohort share."""
    shared = {key: value for key, value in manifest.config.items() if key not in own}
    checkout = manifest.checkout.sha256 if manifest.checkout else None
    made = {"source": manifest.made_by, "model files": manifest.model_files}
    return {**shared, **made, "host": manifest.host, "checkout": checkout}


def _check_finished(place: Path, manifest: Manifest) -> None:
    if manifest.status != "complete":
        raise RunDirectoryError(f"{place} is unfinished: finish or remove it, then report again")
    sums = read_sums(place)
    refuse_other_bytes(place, sums, [name for name in _READ if name in sums])


def _check_protocol(directory: Path, manifests: Mapping[Path, Manifest], own: Sequence[str]) -> None:
    protocols = {place: protocol(manifest, own) for place, manifest in manifests.items()}
    written = {place: repr(sorted(shared.items())) for place, shared in protocols.items()}
    common = Counter(written.values()).most_common(1)[0][0]
    usual = next(shared for place, shared in protocols.items() if written[place] == common)
    strange = {
        place.name: [key for key in {**usual, **other} if usual.get(key) != other.get(key)]
        for place, other in protocols.items()
        if other != usual
    }
    mixed = {
        manifest.facts.normalizer
        for manifest in manifests.values()
        if not Condition.parse(manifest.facts.condition).normalizer
    }
    if len(mixed) > 1:
        raise RunDirectoryError(
            f"{directory} mixes normalizers under conditions that name none: {', '.join(sorted(mixed))}. "
            "Report each in a directory of its own"
        )
    if strange:
        named = [f"{name} (in {', '.join(sorted(keys))})" for name, keys in strange.items()]
        raise RunDirectoryError(
            f"{directory} mixes protocols; other than the rest: {', '.join(named)}. "
            "Report each protocol in a directory of its own"
        )


def _check_grid(directory: Path, manifests: Mapping[Path, Manifest]) -> None:
    held = Counter((m.facts.condition, m.facts.seed) for m in manifests.values())
    twice = [run_name(condition, seed) for (condition, seed), number in held.items() if number > 1]
    whole = product(sorted({condition for condition, _ in held}), sorted({seed for _, seed in held}))
    missing = {run_name(condition, seed) for condition, seed in whole if (condition, seed) not in held}
    missing |= set(read_roster(directory)) - {place.name for place in manifests}
    if twice or missing:
        what = f"has no run {', '.join(sorted(missing))}" if missing else f"holds {', '.join(twice)} twice"
        raise RunDirectoryError(f"{directory} {what}: a table over the rest would look complete")

"""A run's manifest, compared with its configuration file, its timings, and shipped problems and models."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.base.package_data import MODELS
from search_to_signal.base.settings import canonical_sha256
from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import score_unit
from search_to_signal.records.checksums import SUMS
from search_to_signal.records.files import read_json
from search_to_signal.records.manifest import Manifest, Timing, sum_timings
from search_to_signal.records.reader import TIMINGS, read_records
from search_to_signal.records.schema import StepTiming

CONFIG = "config.json"
# The sandbox reports these facts of a worker; ``isolation`` may contain no others.
ISOLATION_FACTS = frozenset(
    {
        "clock",
        "landlock",
        "landlock_abi",
        "limits",
        "mode",
        "no_new_privs",
        "seccomp",
        "timers",
        "unprivileged",
    }
)
_PURPOSES = ("formal", "smoke")
_TOLERANCE = 1e-9


def manifest_problems(run: Path, manifest: Manifest) -> Iterator[str]:
    """Yield the contradictions between a manifest and the other files of its run."""
    config, facts = manifest.config, manifest.facts
    if read_json(run / CONFIG, dict[str, Any], f"{CONFIG} is missing") != config:
        yield f"{CONFIG} is not the configuration of the manifest"
    if canonical_sha256(config) != manifest.config_sha256:
        yield "config_sha256 is not that of the configuration"
    if facts.purpose not in _PURPOSES:
        yield f"purpose is {facts.purpose!r}: there are {' and '.join(_PURPOSES)}"
    yield from _isolation_problems(manifest.isolation, config)
    problem = PROBLEMS.get(facts.problem)
    if problem is not None and manifest.score_unit not in (None, score_unit(problem)):
        yield f"score_unit is {manifest.score_unit!r}, that of {problem.name} is {score_unit(problem)!r}"
    yield from model_problems(facts.model, manifest.model_files)
    yield from _timing_problems(run, manifest, facts.groups)


def _isolation_problems(isolation: dict[str, str | bool], config: dict[str, Any]) -> Iterator[str]:
    evaluation = config.get("evaluation")
    if evaluation is None:
        return
    if unknown := isolation.keys() - ISOLATION_FACTS:
        yield f"isolation has {', '.join(sorted(unknown))}, which no sandbox reports"
    if isolation.get("mode", evaluation["mode"]) != evaluation["mode"]:
        yield f"isolation ran in mode {isolation.get('mode')}, the configuration says {evaluation['mode']}"
    if evaluation["require_seccomp"] and isolation.get("seccomp") is False:
        yield "isolation ran without seccomp, which the configuration requires"


def model_problems(model: str, files: dict[str, str]) -> Iterator[str]:
    """Yield a line where a shipped model has other files; checksums of other models cannot be checked."""
    listing = MODELS / model / SUMS
    if not re.fullmatch(r"[\w.-]+", model) or not listing.is_file():
        return
    lines = (line.split(None, 1) for line in listing.read_text(encoding="utf-8").splitlines())
    if files and files != {name.lstrip("*"): digest for digest, name in lines}:
        yield f"model_files are not those shipped as {model}"


def _timing_problems(run: Path, manifest: Manifest, groups: int) -> Iterator[str]:
    steps = list(read_records(run / TIMINGS, StepTiming))
    if [step.step for step in steps] != list(range(groups)):
        yield f"{TIMINGS} does not hold the {groups} steps"
        return
    for step in steps:
        parts = dict(step.seconds)
        total = parts.pop("total", 0.0)
        if abs(sum(parts.values()) - total) > _TOLERANCE * max(1.0, total):
            yield f"{TIMINGS}:{step.step + 1}: the parts do not sum to the total"
        if min(step.seconds.values()) < -_TOLERANCE or (step.processor_seconds or 0.0) < 0:
            yield f"{TIMINGS}:{step.step + 1}: a time is negative"
    if manifest.timing != _total(steps):
        yield f"timing is not the sum of {TIMINGS}"


def _total(steps: list[StepTiming]) -> Timing:
    try:
        return sum_timings(steps)
    except (TypeError, KeyError, ZeroDivisionError) as error:
        raise RunDirectoryError(f"{TIMINGS} has no usable seconds ({error}); restore it") from error

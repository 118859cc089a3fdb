"""The implemented settings, one by one; the ledger compares the paper's settings with them."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

import msgspec
import numpy as np

from search_to_signal.base.package_data import PYPROJECT
from search_to_signal.credit import get_mapping
from search_to_signal.records.groups import Candidate, ExternalGroup, external_batch
from search_to_signal.records.provenance import read_lock
from search_to_signal.records.schema import Outcome
from search_to_signal.report.metrics.replay import TOLERANCES
from search_to_signal.report.tables.core import RECURRENCE_GROUPS, stage_bounds
from search_to_signal.run.profile import load_profile

PROFILE = "paper"


@cache  # this source does not change while it runs, and its lock is long
def implementation() -> dict[str, dict[str, str]]:
    """Return the paper's profile with its defaults, the locked versions, and constants of the code, as text.

    Raises ConfigError where profile or lock cannot be read.
    """
    profile = load_profile(PROFILE)
    locked = read_lock()
    versions = {package["name"]: package["version"] for package in locked["package"]}
    (environment,) = read_lock(PYPROJECT)["tool"]["uv"]["environments"]
    versions["python"] = environment.removeprefix("python_version == ").strip("'") + ".*"
    return {
        "profile": dict(_flattened("", msgspec.to_builtins(profile))),
        "lock": versions,
        "code": {name: str(value) for name, value in _constants(profile.groups).items()},
    }


def _flattened(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Settings by dotted name; a list of tables also by its length, a switch as 1 or 0."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flattened(f"{name}.{key}" if name else str(key), part)
    elif isinstance(value, list | tuple) and any(isinstance(part, Mapping) for part in value):
        yield name, str(len(value))
        for number, part in enumerate(value):
            yield from _flattened(f"{name}.{number}", part)
    elif isinstance(value, list | tuple):
        yield name, ", ".join(map(_text, value))
    else:
        yield name, _text(value)


def _text(value: Any) -> str:
    """A value as text; a number without exponent, as a paper prints it."""
    return f"{Decimal(str(float(value))):f}" if isinstance(value, bool | float) else str(value)


def _constants(groups: int) -> dict[str, float]:
    stages = {
        f"stage.{name}.{end}": at
        for name, (start, stop) in stage_bounds(groups).items()
        for end, at in (("first", start + 1), ("last", stop))
    }
    return {"equivalence": TOLERANCES[-1], "recurrence": RECURRENCE_GROUPS, **stages, **_factorized_weights()}


def _factorized_weights() -> dict[str, float]:
    """The weights of validity and quality in the Factorized reward, from one group of two scores."""
    candidates = tuple(Candidate(Outcome.VALID, score) for score in (-1.0, -4.0))
    credit = get_mapping("factorized")(external_batch([ExternalGroup(candidates, bases=(-2.0,))]))
    parts = np.stack([credit.components["validity"][0], credit.components["quality"][0]], axis=1)
    weights = np.linalg.solve(parts, credit.reward[0]).round(12).tolist()
    return dict(zip(("factorized.validity", "factorized.quality"), weights, strict=True))

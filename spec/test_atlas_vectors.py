"""The atlas against vectors that the frameworks' own functions gave (``vectors/atlas``)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search_to_signal.audit.atlas import RewardBatch, get_entry, sources
from search_to_signal.audit.atlas.compute import advantages
from search_to_signal.base.errors import IllFormedGroupError
from search_to_signal.base.numerics import Floats
from spec.rows import check_all

FILES = sorted((Path(__file__).parent / "vectors" / "atlas").glob("*.json"))


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every recorded case, named by entry and case."""
    for path in FILES:
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
            yield f"{case['entry']}-{case['case'].replace(' ', '-')}", case


ALL = list(cases())
ANSWERED = [(name, case) for name, case in ALL if "refused" not in case]
# Of the greatest advantage of its group (of the batch, for entries that look at all of it): a few roundings.
TOLERANCE = {"float32": 16 * 2.0**-24, "float64": 1e-7}


def numbers(values: list[float | str | None]) -> Floats:
    """Numbers as JSON has them: null is NaN, and infinities are texts."""
    return np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)


def batch(case: dict[str, Any]) -> RewardBatch:
    """The rewards of a case."""
    groups = [numbers(group).tolist() for group in case["groups"]]
    plain = RewardBatch.uneven(groups, case["lengths"])
    parts = {name: numbers(part) for name, part in case["components"].items()}
    return RewardBatch(plain.rewards, plain.offsets, plain.lengths, parts)


def bounds(case: dict[str, Any], precision: str) -> tuple[Floats, Floats]:
    """The least and greatest answer of a case: one and the same, but where a sum has no order of its own."""
    low, high = (numbers(case.get(f"{precision}{end}", case.get(precision))) for end in (" from", " to"))
    return low, high


def slack(case: dict[str, Any], greatest: Floats, precision: str) -> Floats:
    """What rounding may cost each answer."""
    entry = get_entry(case["entry"])
    size = np.where(np.isfinite(greatest), np.abs(greatest), 0.0)
    if entry.formula in ("entropic", "risk_seeking"):
        # These take 1 off an exponential, and it is that which is rounded.
        size = size + 1.0
    if entry.scope == "batch" or (entry.uneven == "whole batch" and not batch(case).is_even):
        return np.full(len(size), TOLERANCE[precision] * size.max())
    given = batch(case)
    return TOLERANCE[precision] * given.spread(np.maximum.reduceat(size, given.offsets[:-1]))


def check(case: dict[str, Any], precision: str) -> None:
    """The entry answers as its framework's function did: NaN, infinities, and between the bounds."""
    result = advantages(get_entry(case["entry"]), batch(case), precision)
    low, high = bounds(case, precision)
    if not np.array_equal(low, high, equal_nan=True):
        # Orders that were not tried, the entry's own among them, may go a little beyond those that were.
        with np.errstate(invalid="ignore"):
            more = np.nan_to_num(high - low, nan=0.0, posinf=0.0) / 2
        low, high = low - more, high + more
    rounding = slack(case, np.maximum(np.abs(low), np.abs(high)), precision)
    nearest = np.clip(result, low, high)
    finite = np.isfinite(low) & np.isfinite(high)
    said = ~finite & ~((low == -np.inf) & (high == np.inf))
    np.testing.assert_array_equal(result[said], low[said])
    off = np.abs(result[finite] - nearest[finite]) - rounding[finite]
    assert (off <= 0.0).all(), f"{result.tolist()} is not in {low.tolist()} to {high.tolist()}"


def test_float32() -> None:
    """R-ATL-01: Each entry gives what its framework's own function gave in float32, to 16 roundings."""
    check_all(ANSWERED, lambda case: check(case, "float32"))


def test_float64() -> None:
    """R-ATL-02: In float64, where a framework takes it, they agree to 1e-7, so epsilon is the same."""
    doubled = [(name, case) for name, case in ANSWERED if any(key.startswith("float64") for key in case)]
    check_all(doubled, lambda case: check(case, "float64"))


def test_refusals() -> None:
    """R-ATL-03: What a framework's function refuses, the entry refuses."""
    refused = [case for _, case in ALL if "refused" in case]
    assert refused
    for case in refused:
        with pytest.raises(IllFormedGroupError):
            advantages(get_entry(case["entry"]), batch(case))


def test_commits() -> None:
    """R-ATL-04: Vectors are of the commit that the atlas names for their source."""
    check_all([(path.stem, path) for path in FILES], check_commit)


def check_commit(path: Path) -> None:
    """Source, commit and functions of a file are those of the atlas."""
    document = json.loads(path.read_text(encoding="utf-8"))
    source = sources()[document["source"]]
    assert (document["repository"], document["commit"]) == (source.repository, source.commit)
    for name, function in document["functions"].items():
        assert function == f"{get_entry(name).path}:{get_entry(name).function}"

"""The atlas against vectors that the frameworks' own functions gave (``vectors/atlas``)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search_to_signal.audit.atlas import RewardBatch, advantages, get_entry, sources
from search_to_signal.errors import IllFormedGroupError
from search_to_signal.normalizer import Floats

FILES = sorted((Path(__file__).parent / "vectors" / "atlas").glob("*.json"))


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every recorded case, named by entry and case."""
    for path in FILES:
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
            yield f"{case['entry']}-{case['case'].replace(' ', '-')}", case


ALL = list(cases())
every = pytest.mark.parametrize("case", [case for _, case in ALL], ids=[name for name, _ in ALL])
answered = [(name, case) for name, case in ALL if "refused" not in case]


def numbers(values: list[float | None]) -> Floats:
    """Numbers as JSON has them, null being NaN."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def batch(case: dict[str, Any]) -> RewardBatch:
    """The rewards of a case."""
    groups = [numbers(group).tolist() for group in case["groups"]]
    plain = RewardBatch.uneven(groups, case["lengths"])
    parts = {name: numbers(part) for name, part in case["components"].items()}
    return RewardBatch(plain.rewards, plain.offsets, plain.lengths, parts)


def rounding(case: dict[str, Any]) -> float:
    """How far float32 may carry an advantage: a rounding of the greatest reward, magnified."""
    groups = [np.abs(numbers(group)) for group in case["groups"]]
    spreads = [np.ptp(numbers(group)) for group in case["groups"]]
    worst = max((np.nanmax(g) / s for g, s in zip(groups, spreads, strict=True) if s > 0), default=1.0)
    return 16.0 * float(np.finfo(np.float32).eps) * max(worst, 1.0)


@pytest.mark.parametrize("case", [case for _, case in answered], ids=[name for name, _ in answered])
def test_float32(case: dict[str, Any]) -> None:
    """R-ATL-01: Each entry gives what its framework's own function gave in float32, NaN included."""
    result, expected = advantages(get_entry(case["entry"]), batch(case), "float32"), numbers(case["float32"])
    size = float(np.nanmax(np.abs(expected), initial=1.0))
    np.testing.assert_allclose(result, expected, rtol=0.0, atol=rounding(case) * size)


doubled = [(name, case) for name, case in answered if "float64" in case]


@pytest.mark.parametrize("case", [case for _, case in doubled], ids=[name for name, _ in doubled])
def test_float64(case: dict[str, Any]) -> None:
    """R-ATL-02: In float64, where a framework takes it, they agree to 1e-7, so epsilon is the same."""
    entry = get_entry(case["entry"])
    result, expected = advantages(entry, batch(case), "float64"), numbers(case["float64"])
    # verl adds 1e-8 to the number of tokens, which float32 does not see.
    tokens = entry.whiten is not None and entry.whiten.over == "tokens"
    np.testing.assert_allclose(result, expected, rtol=1e-7, atol=1e-6 if tokens else 1e-12)


def test_refusals() -> None:
    """R-ATL-03: What a framework's function refuses, the entry refuses."""
    refused = [case for _, case in ALL if "refused" in case]
    assert refused
    for case in refused:
        with pytest.raises(IllFormedGroupError):
            advantages(get_entry(case["entry"]), batch(case))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_commits(path: Path) -> None:
    """R-ATL-04: Vectors are of the commit that the atlas names for their source."""
    document = json.loads(path.read_text(encoding="utf-8"))
    source = sources()[document["source"]]
    assert (document["repository"], document["commit"]) == (source.repository, source.commit)
    for name, function in document["functions"].items():
        assert function == f"{get_entry(name).path}:{get_entry(name).function}"

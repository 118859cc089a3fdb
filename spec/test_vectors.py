"""Hand-worked golden cases in ``vectors/``, for this implementation and for others."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest

from search_to_signal.base.numerics import Floats
from search_to_signal.credit import RewardMapping
from search_to_signal.credit.normalizers import Normalizer
from search_to_signal.records.groups import SCHEMA, ExternalGroup, external_batch

VECTORS = Path(__file__).parent / "vectors"
Judged = Callable[[str], RewardMapping | Normalizer | None]
FILES = ("native", "factorized", "tail_weighted", "search_exposure", "distinct", "normalizer")


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every case with what it judges."""
    for name in FILES:
        for case in json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))["cases"]:
            yield name, case


ALL = list(cases())


@pytest.mark.parametrize(("name", "case"), ALL, ids=[case["id"] for _, case in ALL])
def test_vector(judged: Judged, name: str, case: dict[str, Any]) -> None:
    """R-VEC-01: Every golden case comes out as worked by hand."""
    subject = judged(name)
    if subject is None:
        pytest.skip(f"nothing here bears the name {name}")
    np.testing.assert_allclose(result(subject, case), case["expected"], rtol=0.0, atol=case["tolerance"])


def result(subject: RewardMapping | Normalizer, case: dict[str, Any]) -> Floats:
    """What a mapping or normalizer makes of a case."""
    if isinstance(subject, RewardMapping):
        group = msgspec.convert(case["group"], ExternalGroup)
        return subject(external_batch([group])).reward[0]
    return subject(np.array([case["rewards"]]))[0]


@pytest.mark.parametrize("name", FILES)
def test_schema(name: str) -> None:
    """R-VEC-02: The golden cases follow their published schema, and their groups the schema of groups."""
    document = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, json.loads((VECTORS / "vectors.schema.json").read_text(encoding="utf-8")))
    group = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for case in document["cases"]:
        if "group" in case:
            jsonschema.validate(case["group"], group)


def test_identifiers() -> None:
    """R-VEC-03: Every golden case has its own identifier."""
    identifiers = [case["id"] for _, case in ALL]
    assert len(set(identifiers)) == len(identifiers)

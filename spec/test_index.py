"""The index of the specification agrees with its tests."""

import re
from collections import Counter

import pytest

from spec import index


def test_identifiers() -> None:
    """R-IDX-01: Every test here names its requirement, and no two files the same one."""
    assert index.unnamed() == []
    files = {(requirement.identifier, requirement.file) for requirement in index.requirements()}
    counted = Counter(identifier for identifier, _ in files)
    assert [name for name, number in counted.items() if number > 1] == []


def test_passages() -> None:
    """R-IDX-02: Every requirement is traced to a sentence of the paper, or has a reason of ours."""
    named = {requirement.identifier for requirement in index.requirements()}
    traced = {test for part in index.passages().values() for entry in part for test in entry["tests"]}
    assert traced - named == set()
    # Requirements of other packages may be added without a passage; those of the constructions may not.
    ours = ("R-N", "R-F", "R-T", "R-S", "R-M", "R-A", "R-EQV", "R-CRD", "R-REC", "R-VEC")
    assert {name for name in named - traced if name.startswith(ours)} == set()


def test_decisions() -> None:
    """R-IDX-03: Decisions are data here, in order, and each is stated by a requirement or by a package."""
    known = index.decisions()
    assert list(known) == sorted(known)
    assert all(re.fullmatch(r"D\d\d", name) for name in known)
    assert set(known) >= {f"D{number:02d}" for number in range(1, 26)}
    named = {name for requirement in index.requirements() for name in requirement.decisions}
    assert named <= set(known)
    packages = ("rewards", "normalizer", "records", "analysis")
    assert [name for name, entry in known.items() if entry["package"] in packages and name not in named] == []


def test_alternatives_are_reachable() -> None:
    """R-IDX-05: Every alternative of a decision is a reading that replays apply, or a setting of a run."""
    assert index.unreachable() == []


def test_broken_promises_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-IDX-06: A way that is no reading of its decision and no setting, or too few of them, is named."""
    ways = [
        "nothing",
        "native_d02",
        "learner.nothing",
        "learner.truncated = sometimes",
        "nothing.truncated",
        "idea_end = sometimes",
        "",
    ]
    made = {f"D{50 + i}": {"alternative": "another", "reach": way} for i, way in enumerate(ways)}
    more = {"D60": {"alternative": "one; two", "reach": "learner.truncated = exclude"}}
    known = index.decisions()
    monkeypatch.setattr(index, "decisions", lambda: {**known, **made, **more})
    assert {problem[:3] for problem in index.unreachable()} == {*made, "D60"}
    monkeypatch.setattr(index, "decisions", lambda: {n: e for n, e in known.items() if n != "D02"})
    assert index.unreachable() == ["native_d02 is of no decision"]


def test_readme() -> None:
    """R-IDX-04: The tables of README.md are those of the tests; python -m spec.index rewrites them."""
    assert index.rendered() == index.README.read_text(encoding="utf-8")

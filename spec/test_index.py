"""The index of the specification agrees with its tests."""

import re
from collections import Counter

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
    # Requirements of other rooms may be added without a passage; those of the constructions may not.
    ours = ("R-N", "R-F", "R-T", "R-S", "R-M", "R-A", "R-EQV", "R-CRD", "R-REC", "R-VEC")
    assert {name for name in named - traced if name.startswith(ours)} == set()


def test_decisions() -> None:
    """R-IDX-03: Decisions are data here, in order, and each is stated by a requirement or by a room."""
    known = index.decisions()
    assert list(known) == sorted(known)
    assert all(re.fullmatch(r"D\d\d", name) for name in known)
    named = {name for requirement in index.requirements() for name in requirement.decisions}
    assert named <= set(known)
    rooms = ("rewards", "normalizer", "records", "analysis")
    assert [name for name, entry in known.items() if entry["room"] in rooms and name not in named] == []


def test_readme() -> None:
    """R-IDX-04: The tables of README.md are those of the tests; python -m spec.index rewrites them."""
    assert index.rendered() == index.README.read_text(encoding="utf-8")

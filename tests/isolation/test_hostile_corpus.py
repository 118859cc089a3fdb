"""Every hostile program ends as expected, gate off and on; an OK one scores like its honest twin."""

import pytest
from isolation_corpus import Case, Judge, cases

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_without_the_gate(paper: Judge, case: Case) -> None:
    """The locks alone give the expected ending, and nothing is left behind."""
    assert paper.complaint(case, paper.run(case.task, case.code)) == ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_behind_the_gate(strict: Judge, case: Case) -> None:
    """Strict mode refuses what it can name and leaves the rest to the locks."""
    assert strict.complaint(case, strict.run(case.task, case.code)) == ""

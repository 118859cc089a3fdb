"""Every hostile program ends as expected, gate off and on; an OK one scores like its honest twin."""

from isolation_corpus import Judge, cases

CASES = cases()


def complaints(judge: Judge) -> list[str]:
    """What is not as expected of any program of the corpus."""
    found = (judge.complaint(case, judge.run(case.task, case.code)) for case in CASES)
    return [complaint for complaint in found if complaint]


def test_without_the_gate(paper: Judge) -> None:
    """The locks alone give the expected endings, and nothing is left behind."""
    assert len(CASES) > 100
    assert complaints(paper) == []


def test_behind_the_gate(strict: Judge) -> None:
    """Strict mode refuses what it can name and leaves the rest to the locks."""
    assert complaints(strict) == []

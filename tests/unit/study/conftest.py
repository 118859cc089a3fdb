"""Packed evidence that the tests of shipping share, and fewer tables than a report has."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.plans import pack_study, plan_text

from search_to_signal.cli import main
from search_to_signal.report.tables import catalogue

# Half of the time of a rebuild goes into these; tests of a report read them.
LEFT_OUT = {
    *("operators", "operator_gains", "stages", "admissions", "controls", "reward_changes"),
    *("rules", "distinctions", "pairs", "pair_gaps", "group_size"),
    *("replay_pairs", "replay_context", "sensitivity"),
    *("coverage", "recurrence", "collapses", "truncation"),
}


@contextmanager
def few_tables() -> Iterator[None]:
    """Within it reports have the tables that these tests look at, and some more."""
    make, few = catalogue.catalogue, [name for name in catalogue.BUILDERS if name not in LEFT_OUT]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "catalogue", lambda results: make(results, few))
        yield


@pytest.fixture(scope="module", autouse=True)
def _few_tables() -> Iterator[None]:
    with few_tables():
        yield


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed evidence of three seeds under a plan of three, with its tables."""
    top = tmp_path_factory.mktemp("shipped")
    pack_study(top, plan_text({}), top / "evidence")
    with few_tables():
        assert main(["rebuild", str(top / "evidence"), "--out", str(top / "made"), "--ship"]) == 0
    return top / "evidence"

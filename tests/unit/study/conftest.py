"""Packed evidence that the tests of shipping share, and fewer tables than a report has."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.few_tables import few_tables
from tests.plans import pack_study, plan_text

from search_to_signal.cli import main
from search_to_signal.study import container


@pytest.fixture(scope="session", autouse=True)
def _small_dictionaries() -> Iterator[None]:
    """A compressor prepares 64 MiB for every run, of which a test's run takes a thousandth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(container._FILTERS[0], "dict_size", 1 << 20)
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

"""Packed evidence that the tests of shipping share."""

from pathlib import Path

import pytest
from tests.plans import pack_study, plan_text

from search_to_signal.cli import main


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed evidence of three seeds under a plan of three, with its tables."""
    top = tmp_path_factory.mktemp("shipped")
    pack_study(top, plan_text({}), top / "evidence")
    assert main(["rebuild", str(top / "evidence"), "--out", str(top / "made"), "--ship"]) == 0
    return top / "evidence"

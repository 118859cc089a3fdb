"""What the command prints of a log."""

from pathlib import Path

import pytest
from tests.unit.audit.logs import Printed

from search_to_signal.cli import main


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """The output of ``s2s audit`` with these options, which ends with ``code``; of a refusal its one line."""

    def audited(path: Path, *options: str, code: int = 0) -> str:
        assert main(["audit", str(path), *options]) == code
        out, err = capsys.readouterr()
        if code < 2:
            return out
        assert (out, err.count("\n")) == ("", 1)
        return err

    return audited

"""s2s normalizers: the atlas on a terminal and as JSON."""

import json

import pytest

from search_to_signal.audit.atlas import entries
from search_to_signal.cli import main


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Every entry has a line with its deviation, epsilon and source, and unread sources are named."""
    assert main(["normalizers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1 : len(entries()) + 1]] == list(entries())
    (line,) = [line for line in lines if line.startswith("openrlhf-grpo ")]
    for cell in ("OpenRLHF", "sample", "1e-09 at deviation", "OpenRLHF@3c3be6234e0c:openrlhf/trainer"):
        assert cell in line
    assert "PKPO" in lines[-1]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON holds what the table leaves out, for one framework where one is named."""
    assert main(["normalizers", "maxrl", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in found] == ["maxrl", "maxrl-pkpo"]
    assert "negative_mean" in found[0]["breaks"]
    assert len(found[0]["source"]["commit"]) == 40


def test_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that nothing has is an error of one line with the frameworks."""
    assert main(["normalizers", "nothing"]) == 2
    assert "frameworks are" in capsys.readouterr().err

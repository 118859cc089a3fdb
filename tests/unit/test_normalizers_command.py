"""s2s normalizers: the atlas on a terminal and as JSON."""

import json

from tests.command import Command

from search_to_signal.audit.atlas import entries


def test_table(s2s: Command) -> None:
    """Every entry has a line with its deviation, epsilon and source, and unread sources are named."""
    lines = s2s("normalizers").out.splitlines()
    assert [line.split()[0] for line in lines[1 : len(entries()) + 1]] == list(entries())
    (line,) = [line for line in lines if line.startswith("openrlhf-grpo ")]
    for cell in ("OpenRLHF", "sample", "1e-09 at deviation", "OpenRLHF@3c3be6234e0c:openrlhf/trainer"):
        assert cell in line
    assert "PKPO" in lines[-1]


def test_json(s2s: Command) -> None:
    """JSON holds what the table leaves out, for one framework where one is named."""
    found = json.loads(s2s("normalizers", "maxrl", "--json").out)
    assert [entry["name"] for entry in found] == ["maxrl", "maxrl-pkpo"]
    assert "negative_mean" in found[0]["breaks"]
    assert len(found[0]["source"]["commit"]) == 40


def test_unknown(s2s: Command) -> None:
    assert "frameworks are" in s2s("normalizers", "nothing", code=2).err

"""SHA256SUMS: what the plain tool accepts, and what every kind of damage looks like."""

import errno
import subprocess
from pathlib import Path

import pytest

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.records.checksums import SUMS, read_sums, sum_problems, write_sums


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A small tree with awkward names, and its list."""
    directory = tmp_path / "results"
    for name in ("a.txt", "run/b c.jsonl", "run/SHA256SUMS", "run/deep/é.bin", ".hidden", "empty"):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if name == "empty" else name.encode() * 100)
    write_sums(directory)
    return directory


def sha256sum(directory: Path) -> int:
    """The exit code of the plain tool."""
    check = ["sha256sum", "-c", "--strict", "--quiet", SUMS]
    return subprocess.run(check, cwd=directory, capture_output=True, check=False).returncode


def test_the_plain_tool_accepts_the_list(results: Path) -> None:
    assert sha256sum(results) == 0
    assert sorted(read_sums(results)) == [
        ".hidden",
        "a.txt",
        "empty",
        "run/SHA256SUMS",
        "run/b c.jsonl",
        "run/deep/é.bin",
    ]
    assert sum_problems(results) == {}
    (results / "a.txt").write_bytes(b"other")
    assert sha256sum(results) != 0


def test_equal_trees_have_equal_lists(results: Path) -> None:
    before = (results / SUMS).read_bytes(), sorted(results.parent.rglob("*"))
    write_sums(results)
    assert ((results / SUMS).read_bytes(), sorted(results.parent.rglob("*"))) == before


def test_every_difference_is_found_and_named(results: Path) -> None:
    (results / "run/b c.jsonl").write_bytes(b"changed")
    (results / "a.txt").unlink()
    (results / "run/extra").write_bytes(b"")
    assert sum_problems(results) == {
        "a.txt": "missing",
        "run/b c.jsonl": f"bytes differ from {SUMS}",
        "run/extra": f"not listed in {SUMS}",
    }


@pytest.mark.parametrize("line", ["no sum", "0" * 64, f"{'0' * 63}  name", ""])
def test_unreadable_lists_are_named_by_line(results: Path, line: str) -> None:
    (results / SUMS).write_text(f"{line}\n")
    with pytest.raises(RunDirectoryError, match=f"{SUMS}:1"):
        sum_problems(results)


def test_a_missing_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=SUMS):
        sum_problems(tmp_path)


def test_results_may_be_a_mount_of_their_own(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.replace

    def within(self: Path, target: Path) -> Path:
        if self.parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", within)
    (results / "new").write_bytes(b"1")
    write_sums(results)
    assert sum_problems(results) == {}

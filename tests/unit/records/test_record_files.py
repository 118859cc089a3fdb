"""Record files and their lists: written once, read back line by line, and every damage named."""

import errno
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from spec.strategies import record

from search_to_signal.base.errors import RecordError, RunDirectoryError
from search_to_signal.records.checksums import SUMS, read_sums, sum_problems, write_sums
from search_to_signal.records.files import RecordWriter
from search_to_signal.records.groups import record_files
from search_to_signal.records.manifest import MANIFEST, read_manifest, write_manifest
from search_to_signal.records.reader import read_completions, read_groups


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    records = [record(step=step, index=index, detail="é\n\\") for step in range(2) for index in range(3)]
    with RecordWriter(path) as writer:
        for number, item in enumerate(records, start=1):
            writer.write(item)
            assert path.read_bytes().count(b"\n") == number
    assert list(read_completions(path)) == list(read_completions(tmp_path)) == records
    assert [len(group) for group in read_groups(path)] == [3, 3]


def test_the_writer_overwrites_nothing(tmp_path: Path) -> None:
    """A writer that was never opened writes nothing and says how to use it."""
    with pytest.raises(RecordError):
        RecordWriter(tmp_path / "a.jsonl").write(record())
    assert list(tmp_path.iterdir()) == []
    for name, content in (("full.jsonl", b"kept\n"), ("empty.jsonl", b"")):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(RecordError, match=name), RecordWriter(path):
            raise AssertionError("opened an existing file")
        assert path.read_bytes() == content


def _cut(text: bytes) -> bytes:
    return text[:-1]


def _double(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join([*lines[:2], lines[1], *lines[2:]])


def _drop(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join([lines[0], *lines[2:]])


def _swap(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join([*lines[3:], *lines[:3]])


def _unknown(text: bytes) -> bytes:
    return text.replace(b'{"step":1', b'{"colour":1,"step":1', 1)


@pytest.mark.parametrize(("damage", "line"), [(_cut, 6), (_double, 3), (_drop, 2), (_swap, 4), (_unknown, 4)])
def test_damaged_files_are_named_by_line(tmp_path: Path, damage: Callable[[bytes], bytes], line: int) -> None:
    path = tmp_path / "completions.jsonl"
    with RecordWriter(path) as writer:
        for step in range(2):
            for index in range(3):
                writer.write(record(step=step, index=index))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RecordError, match=rf"completions\.jsonl:{line}:"):
        list(read_groups(path))


def test_manifests_come_back(make_run: Callable[..., Path], tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    manifest, text = read_manifest(run), (run / MANIFEST).read_bytes()
    write_manifest(run, manifest)
    assert (run / MANIFEST).read_bytes() == text
    assert [path.name for path in run.iterdir() if path.name.startswith(MANIFEST)] == [MANIFEST]
    changed = msgspec.structs.replace(manifest, status="running")
    write_manifest(run, changed)
    assert read_manifest(run) == changed


NESTED = pytest.param(b'{"config": {"a": ' + b"[" * 9999, id="nested")


@pytest.mark.parametrize("text", [None, b"", b"{}", b"\xff", NESTED])
def test_bad_manifests_are_named(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / MANIFEST).write_bytes(text)
    with pytest.raises(RunDirectoryError, match=str(tmp_path)):
        read_manifest(tmp_path)


def test_unfinished_runs_are_no_evidence(make_run: Callable[..., Path], tmp_path: Path) -> None:
    make_run(tmp_path / "native-s42")
    make_run(tmp_path / "interrupted" / "native-s42-1")
    assert record_files([tmp_path]) == [tmp_path / "native-s42" / "completions.jsonl"]
    assert len(record_files([tmp_path / "interrupted"])) == 1


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


def test_every_difference_is_found_and_named(results: Path) -> None:
    before = (results / SUMS).read_bytes(), sorted(results.parent.rglob("*"))
    write_sums(results)
    assert ((results / SUMS).read_bytes(), sorted(results.parent.rglob("*"))) == before
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

"""Record files: written once, read back line by line, and never silently short."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from spec.strategies import record

from search_to_signal.base.errors import RecordError, RunDirectoryError
from search_to_signal.records.groups import record_files
from search_to_signal.records.manifest import MANIFEST, read_manifest, write_manifest
from search_to_signal.records.reader import read_completions, read_groups
from search_to_signal.records.writer import RecordWriter


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
    for name, content in (("full.jsonl", b"kept\n"), ("empty.jsonl", b"")):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(RecordError, match=name), RecordWriter(path):
            raise AssertionError("opened an existing file")
        assert path.read_bytes() == content


def test_a_closed_writer_refuses(tmp_path: Path) -> None:
    """A writer that was never opened writes nothing and says how to use it."""
    with pytest.raises(RecordError):
        RecordWriter(tmp_path / "a.jsonl").write(record())
    assert list(tmp_path.iterdir()) == []


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

"""A results directory may hold anything under the name of a record: each reader asks what it is, and ends."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.command import Command, Patch

from search_to_signal.base.errors import S2SError
from search_to_signal.claims.tables import load_report
from search_to_signal.records.adapters import tensors_sha256
from search_to_signal.records.anchor import read_contract
from search_to_signal.records.checksums import (
    CRATE,
    image_sha256,
    is_block_index,
    read_sums,
    sha256_file,
    write_blocks,
    write_sums,
)
from search_to_signal.records.files import (
    LARGEST,
    open_regular,
    read_lines,
    read_regular,
    refuse_special_files,
)
from search_to_signal.records.groups import read_batches, read_exposures, read_external
from search_to_signal.records.manifest import read_database, read_manifest, read_roster
from search_to_signal.records.plan import plan_sha256
from search_to_signal.records.reader import read_completions
from search_to_signal.report.build import read_ledger, trace_cell
from search_to_signal.report.results import Origin
from search_to_signal.report.tables.cells import Cell, Table, table_of
from search_to_signal.run.directory import newest_checkpoint
from search_to_signal.study.container import read_container
from search_to_signal.study.rebuilding import cell_differences
from search_to_signal.verify.tables import table_findings

Make = Callable[..., Path]


def _zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _socket(path: Path) -> None:
    with Patch.context() as patch, socket.socket(socket.AF_UNIX) as listening:
        patch.chdir(path.parent)  # An address has at most 108 bytes.
        listening.bind(path.name)


def _huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 20 << 30)


STRANGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "pipe": (os.mkfifo, "is a named pipe: only regular files are read"),
    "endless": (_zero, "only regular files are read"),
    "socket": (_socket, "is a socket: only regular files are read"),
    "huge": (_huge, f"files of more than {LARGEST} are not read"),
}


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """A failure, not a test without end, where something is waited for."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError("no answer")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def results(make_run: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, one of them trained, with their lists."""
    root = tmp_path_factory.mktemp("strange") / "results"
    for condition in ("frozen", "native"):
        make_run(root / "cohort" / f"{condition}-s1", condition, 1)
    write_blocks(root)
    write_sums(root)
    return root


@contextmanager
def replaced(path: Path, make: Callable[[Path], Any]) -> Iterator[None]:
    """Something strange under the name of a file."""
    aside = path.parents[3] / "aside"
    path.rename(aside)
    make(path)
    yield
    path.unlink()
    aside.rename(path)


def files_of(results: Path) -> list[Path]:
    """Every file of a directory."""
    return sorted(path for path in results.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", STRANGE)
def test_verify_names_whatever_is_no_record(results: Path, kind: str, s2s: Command) -> None:
    """Every file, one at a time, replaced by what has no end: one line that names it, at once."""
    make, _ = STRANGE[kind]
    for path in files_of(results):
        with replaced(path, make), within(5):
            told = s2s("verify", results, code=None)
        assert (told.code != 0, told.out) == (True, "")
        assert told.err.startswith(f"s2s: error: {path} ")
        assert told.err.count("\n") == 1


COMMANDS = (
    *("verify D --tables", "report D --out O", "replay D --out O", "compare D D", "trace D core_results"),
    *("rerun D cohort/frozen-s1 --out O", "retrain D cohort/native-s1 --out O", "pack D --into O"),
    *("seal D --sign O", "claims --results D", "updates D --out O", "heldout D"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_a_pipe(results: Path, tmp_path: Path, command: str, s2s: Command) -> None:
    """A pipe in place of the records of a run is one line, whoever reads them."""
    places = {"D": str(results), "O": str(tmp_path / "out")}
    with replaced(results / "cohort" / "native-s1" / "completions.jsonl", os.mkfifo), within(60):
        told = s2s(*(places.get(word, word) for word in command.split()), code=None)
    assert (told.code != 0, told.out) == (True, "")
    assert "completions.jsonl is a named pipe" in told.err
    assert told.err.count("\n") == 1


def _table_of_one_cell(file: str) -> Table:
    cell = Cell(1.0, 1, "f", (Origin(file),))
    return table_of("table", "Title", "Label", [("row", {"column": cell})], "")


READERS: dict[str, Callable[[Path], Any]] = {
    "completions.jsonl": lambda path: list(read_completions(path)),
    "groups.jsonl": lambda path: list(read_external(path)),
    "batches.jsonl": lambda path: list(read_batches([path])),
    "exposures.jsonl": read_exposures,
    "manifest.json": lambda path: read_manifest(path.parent),
    "runs.json": lambda path: read_roster(path.parent),
    "database.json": lambda path: read_database(path.parent),
    "contract.json": lambda path: read_contract(path.parent),
    "SHA256SUMS": lambda path: read_sums(path.parent),
    "any": sha256_file,
    "picture.png": image_sha256,
    "plan.toml": plan_sha256,
    "adapter_model.safetensors": tensors_sha256,
    "records.xz": read_container,
    "table.csv": lambda path: list(cell_differences(path, path)),
    "core.csv": lambda path: load_report(path.parent),
    "claims/claims.csv": lambda path: read_ledger(path.parents[1]),
    "checkpoint/00000001.json": lambda path: newest_checkpoint(path.parents[1]),
    "traced.jsonl": lambda path: list(
        trace_cell(_table_of_one_cell(path.name), "row", "column", path.parent, 1)
    ),
}


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("name", READERS)
def test_every_reader_asks_first(tmp_path: Path, name: str, kind: str) -> None:
    """A file may have become something else since somebody looked at its directory."""
    make, _ = STRANGE[kind]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    make(path)
    before = {"SHA256SUMS", "runs.json", "exposures.jsonl", "claims/claims.csv"}
    with within(5):
        try:
            READERS[name](path)
        except (S2SError, OSError):
            return
    assert name in before


@pytest.mark.parametrize("kind", STRANGE)
def test_what_a_file_is_is_said(tmp_path: Path, kind: str) -> None:
    """The line says what lies there, and that it is not read."""
    make, said = STRANGE[kind]
    make(tmp_path / "x")
    with within(5), pytest.raises(S2SError, match=said):
        open_regular(tmp_path / "x")


@pytest.mark.parametrize("name", ["a\nb", "\udcff", "\udcfe/a"])
def test_a_name_that_is_no_line_of_a_list_is_refused(tmp_path: Path, name: str) -> None:
    """Lists of checksums hold a name a line, in UTF-8: whoever makes one would fail in its middle."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(S2SError):
        refuse_special_files(tmp_path)


def test_a_crate_nested_without_end_is_a_finding(tmp_path: Path) -> None:
    """Brackets within brackets are no traceback of ``--tables``."""
    (tmp_path / CRATE).write_text("[" * 100_000)
    assert [finding.line for finding in table_findings(tmp_path) if "RecursionError" in finding.line]


def test_a_line_without_an_end_is_not_gathered(tmp_path: Path) -> None:
    """A line is held in memory: its length has a limit, below which lines are those of the file."""
    file = tmp_path / "x.jsonl"
    file.write_bytes(b"1234567\n12345678\n")
    assert list(read_lines(file)) == [b"1234567\n", b"12345678\n"]
    with pytest.raises(S2SError, match="has a line of 9 bytes or more"):
        list(read_lines(file, 9))
    with pytest.raises(S2SError, match="has 17 bytes: files of more than 16 are not read"):
        read_regular(file, 16)


def test_a_file_that_outgrew_its_block_index_is_not_read_for_it(tmp_path: Path, monkeypatch: Patch) -> None:
    """The index is that of the files, or not; of a far larger file the size says that."""
    (tmp_path / "a.txt").write_text("one\n")
    write_blocks(tmp_path)
    assert is_block_index(tmp_path)
    (tmp_path / "b.txt").write_text("two\n")
    assert not is_block_index(tmp_path)
    (tmp_path / "b.txt").unlink()
    os.truncate(tmp_path / "a.txt", LARGEST)
    monkeypatch.setattr("search_to_signal.records.checksums.read_regular", lambda *_: pytest.fail("read"))
    assert not is_block_index(tmp_path)

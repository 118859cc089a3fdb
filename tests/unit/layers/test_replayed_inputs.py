"""``s2s replay`` reads the records that were checksummed, and says what it compared."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.command import Capture
from tests.forging import edit_line

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.base.processes import command_line
from search_to_signal.cli import main

Make = Callable[..., Path]
Said = tuple[int, str, str]


@pytest.fixture
def cohort(make_run: Make, tmp_path: Path) -> Path:
    """A frozen and a trained run."""
    for condition in ("frozen", "native"):
        make_run(tmp_path / "cohort" / f"{condition}-s1", condition, 1)
    return tmp_path / "cohort"


def replayed(capsys: Capture, *inputs: Path) -> Said:
    """Exit code, output and errors of a replay under one mapping."""
    out = inputs[0].parent / "audit"
    capsys.readouterr()
    code = main(["replay", *map(str, inputs), "--mapping", "native", "--out", str(out)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_replay_says_what_it_compared(cohort: Path, capsys: Capture) -> None:
    """Checksums of finished runs; not the recorded credit, which is another command's."""
    code, out, _ = replayed(capsys, cohort)
    compared, not_compared, last = out.splitlines()[-3:]
    assert (code, last) == (0, f"s2s: replay in {cohort.parent / 'audit'}")
    assert compared == "compared: the records of 2 runs with their SHA256SUMS"
    assert not_compared.startswith("not compared: ")


def test_records_without_a_list_are_read_and_counted(cohort: Path, capsys: Capture) -> None:
    """An unfinished run, or a file from outside, has no checksums to hold."""
    (cohort / "native-s1" / "SHA256SUMS").unlink()
    code, out, _ = replayed(capsys, cohort)
    assert code == 0
    assert "compared: the records of 1 run with their SHA256SUMS; without a list: 1 record file\n" in out


def edited(name: str, **values: Any) -> Callable[[Path], None]:
    """Set fields of the second line of a record file."""
    return lambda run: edit_line(run / name, 1, lambda line: line.update(values))


def _edit_manifest(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "interruptions": 7}))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("completions.jsonl", edited("completions.jsonl", detail="edited")),
        ("completions.jsonl", edited("completions.jsonl", advantage=9.0)),
        ("steps.jsonl", edited("steps.jsonl", loss=9.0)),
        ("timings.jsonl", lambda run: (run / "timings.jsonl").unlink()),
        ("manifest.json", _edit_manifest),
    ],
)
def test_an_edited_record_is_refused_whatever_replay_reads_of_it(
    cohort: Path, capsys: Capture, name: str, change: Callable[[Path], None]
) -> None:
    """Fields of which no reward depends, too: the file is named in one line, and nothing is written."""
    run = cohort / "native-s1"
    change(run)
    for given in (cohort, run):
        code, out, err = replayed(capsys, given)
        assert (code, out) == (RunDirectoryError.exit_code, "")
        (line,) = err.splitlines()
        assert line.startswith(f"s2s: error: {run / name} is missing or differs from its SHA256SUMS: restore")
        assert not (given.parent / "audit").exists()


def test_records_that_a_list_does_not_have_are_refused(cohort: Path, capsys: Capture) -> None:
    """Whoever drops a file from its list does not pass for having none."""
    sums = cohort / "native-s1" / "SHA256SUMS"
    kept = [line for line in sums.read_text().splitlines() if not line.endswith("completions.jsonl")]
    sums.write_text("".join(f"{line}\n" for line in kept))
    code, _, err = replayed(capsys, cohort)
    assert (code, "completions.jsonl is missing or differs" in err) == (RunDirectoryError.exit_code, True)


def test_a_run_without_its_adapter_is_replayed(cohort: Path, capsys: Capture) -> None:
    """No reward stands on it, and shipped runs lack it."""
    shutil.rmtree(cohort / "native-s1" / "adapter")
    assert replayed(capsys, cohort)[0] == 0


@pytest.mark.slow
def test_a_path_of_other_letters_is_replayed_in_the_plain_locale(cohort: Path, tmp_path: Path) -> None:
    """Without UTF-8 a path comes as bytes that no text holds; the page has them as they are."""
    moved = cohort.rename(tmp_path / "é")
    plain = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    command = command_line("replay", str(moved), "--mapping", "native", "--out", str(tmp_path / "out"))
    subprocess.run(command, env=plain, check=True, capture_output=True)
    assert "é" in (tmp_path / "out" / "audit.md").read_text(encoding="utf-8")

"""Two directories held against each other: equal records are equal, and the first difference is named."""

import shutil
from pathlib import Path

import msgspec
import pytest
from tests.command import Command, Make

from search_to_signal.records.manifest import MANIFEST
from search_to_signal.report.comparison import compare


@pytest.fixture
def pair(make_run: Make, tmp_path: Path) -> tuple[Path, Path]:
    """A results directory with two runs, and a copy of it."""
    for condition in ("frozen", "native"):
        make_run(tmp_path / "one" / "cohort" / f"{condition}-s1", condition, 1)
    return tmp_path / "one", Path(shutil.copytree(tmp_path / "one", tmp_path / "two"))


def changed(file: Path, line: int, **fields: object) -> None:
    """Give fields of one line, from 1, of a record file other values."""
    lines = file.read_bytes().splitlines()
    lines[line - 1] = msgspec.json.encode({**msgspec.json.decode(lines[line - 1]), **fields})
    file.write_bytes(b"\n".join(lines) + b"\n")


def test_a_copy_is_equal_until_a_record_differs(pair: tuple[Path, Path], s2s: Command) -> None:
    """The same records, whatever their timings, end with code 0."""
    timings = pair[1] / "cohort" / "native-s1" / "timings.jsonl"
    timings.write_bytes(timings.read_bytes() + b"{}\n")
    said = s2s("compare", *pair)
    assert "s2s: EQUAL: 2 runs in both" in said.out
    for line in (3, 4):
        changed(pair[1] / "cohort" / "native-s1" / "completions.jsonl", line, score=-1.0, outcome="valid")
    out = s2s("compare", *pair, code=1).out
    assert "first different record: cohort/native-s1/completions.jsonl:3: " in out
    assert out.count("first different record") == 1
    assert "score" in out
    assert "metric cohort/native-s1 valid_only_performance: " in out
    assert "metric cohort/frozen-s1" not in out


def test_a_file_that_ends_early_and_a_run_that_one_lacks_differ(pair: tuple[Path, Path]) -> None:
    file = pair[1] / "cohort" / "frozen-s1" / "steps.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]))
    (found,) = compare(*pair).records
    assert (found.file, found.line, found.fields) == ("cohort/frozen-s1/steps.jsonl", len(lines), ())
    shutil.rmtree(pair[1] / "cohort" / "native-s1")
    found = compare(*pair)
    assert (found.only_first, found.only_second, found.equal) == (("cohort/native-s1",), (), False)


def test_two_runs_of_other_names_are_a_pair(pair: tuple[Path, Path]) -> None:
    """Run directories are compared with each other whatever they are called."""
    found = compare(pair[0] / "cohort" / "frozen-s1", pair[1] / "cohort" / "native-s1")
    assert found.runs == 1
    assert "condition" in {setting.name for setting in found.settings}
    path = pair[1] / "cohort" / "native-s1" / MANIFEST
    manifest = msgspec.json.decode(path.read_bytes())
    before = manifest["config"]["generation"]["group_size"]
    manifest["config"]["generation"]["group_size"] = before + 1
    path.write_bytes(msgspec.json.encode(manifest))
    (found,) = compare(*pair).settings
    assert (found.name, found.runs) == ("generation.group_size", ("cohort/native-s1",))
    assert (found.first, found.second) == (str(before), str(before + 1))


def test_no_run_is_one_line(tmp_path: Path, s2s: Command) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        said = s2s("compare", place, place, code=4)
        assert said.err.count("\n") == 1

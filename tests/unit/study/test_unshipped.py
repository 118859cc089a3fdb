"""Adapters that packing left out are said and no problem; the same files missing otherwise are one."""

import shutil
from pathlib import Path

import pytest
from tests.command import Command, Make
from tests.forging import edit_line

from search_to_signal.cli import main
from search_to_signal.records.checksums import CRATE, UNSHIPPED, seal, write_sums
from search_to_signal.study.container import read_container
from search_to_signal.verify.directory import verify
from search_to_signal.verify.tables import table_findings

RUN = Path("cohort", "native-s1")
ADAPTER = ("adapter/adapter_config.json", "adapter/adapter_model.safetensors")
MISSING = {f"{name}: missing" for name in ADAPTER}


@pytest.fixture
def results(make_run: Make, tmp_path: Path) -> Path:
    """A sealed results directory of one frozen and one trained run, and what an interrupted one left."""
    results = tmp_path / "results" / "main"
    for name, condition in (("frozen-s1", "frozen"), ("native-s1", "native")):
        make_run(results / "cohort" / name, condition, 1)
    make_run(results / "cohort" / "interrupted" / "frozen-s1-1", "frozen", 1)
    write_sums(results / "cohort")
    seal(results, "a study")
    return results


def unpacked(results: Path, *options: str) -> Path:
    """What comes back of a results directory that is packed and unpacked."""
    root = results.parent.parent
    assert main(["pack", str(results), "--into", str(root / "evidence"), *options]) == 0
    assert main(["unpack", str(root / "evidence"), "--out", str(root / "out")]) == 0
    return root / "out" / results.name


def test_an_unpacked_run_without_its_adapter_passes_and_says_so(results: Path, s2s: Command) -> None:
    out = unpacked(results)
    for directory, names in ((out / RUN, 2), (out / "cohort", 2), (out, 2)):
        told = s2s("verify", directory).out
        assert f"NOT COMPARED {names} x belongs to a final adapter" in told
        assert "PROBLEM" not in told
    assert "never packed (cohort/interrupted/frozen-s1-1/" in told
    assert "NOT COMPARED 1 x the index of the files that are here" in told


def test_an_adapter_that_is_lost_is_a_problem(results: Path) -> None:
    """Of a directory that was never packed, and of an unpacked one that came with it."""
    for directory in (results, unpacked(results, "--adapters", "*")):
        shutil.rmtree(directory / RUN / "adapter")
        assert set(verify(directory / RUN).problems) > MISSING
        assert {f"{RUN}/{line}" for line in MISSING} < set(verify(directory).problems)


def test_an_adapter_that_is_back_is_read_again(results: Path) -> None:
    run = unpacked(results) / RUN
    (run / "adapter").mkdir()
    shutil.copy(results / RUN / ADAPTER[0], run / "adapter")
    assert f"{ADAPTER[1]}: missing" in verify(run).problems
    shutil.copytree(results / RUN / "adapter", run / "adapter", dirs_exist_ok=True)
    assert verify(run).findings == ()
    (run / ADAPTER[1]).write_bytes(b"another")
    assert f"{ADAPTER[1]}: bytes differ from SHA256SUMS" in verify(run).problems


def test_no_other_file_is_excused(results: Path) -> None:
    """Whoever names records as left out is told that these never are."""
    run = unpacked(results) / RUN
    (run / "timings.jsonl").unlink()
    with (run / UNSHIPPED).open("a") as names:
        names.write("timings.jsonl\n")
    problems = verify(run).problems
    assert "timings.jsonl: missing" in problems
    assert f"{UNSHIPPED} names 'timings.jsonl', which is never left out of a pack" in problems


def test_an_adapter_that_the_list_does_not_have_was_not_left_out(results: Path) -> None:
    run = unpacked(results) / RUN
    write_sums(run)
    assert any("adapter holds []" in problem for problem in verify(run).problems)


def test_such_a_run_is_packed_listed_and_compared_as_ever(results: Path) -> None:
    out, evidence = unpacked(results), results.parent.parent / "evidence"
    again = evidence.with_name("again")
    assert main(["pack", str(out), "--into", str(again)]) == 0
    records = Path("main", RUN, "records.xz")
    assert (again / records).read_bytes() == (evidence / records).read_bytes()
    assert not any(name.endswith(UNSHIPPED) for name in read_container(again / "main" / "files.xz"))
    assert [finding for finding in table_findings(out) if finding.where == CRATE] == []
    crate = out / CRATE
    crate.write_text(
        crate.read_text().replace("cohort/native-s1/steps.jsonl", "cohort/native-s1/other.jsonl")
    )
    assert [finding.where for finding in table_findings(out) if finding.where == CRATE] == [CRATE]
    edit_line(out / RUN / "steps.jsonl", 1, lambda line: line.update(mapping="factorized"))
    assert any(problem.startswith(f"{RUN}/steps.jsonl: bytes differ") for problem in verify(out).problems)
    assert any("mapping is factorized" in problem for problem in verify(out / RUN).problems)


def test_packed_runs_are_neither_reported_nor_compared(results: Path, tmp_path: Path, s2s: Command) -> None:
    whole = unpacked(results)
    packed = results.parent.parent / "evidence" / "main"
    changed = Path(shutil.copytree(packed, tmp_path / "changed"))
    runs = changed / "cohort"
    shutil.copy(runs / "frozen-s1" / "records.xz", runs / "native-s1" / "records.xz")
    for arguments in (
        ["compare", str(packed), str(changed)],
        ["compare", str(whole), str(changed)],
        ["report", str(packed), "--out", str(tmp_path / "page")],
    ):
        told = s2s(*arguments, code=4)
        assert "holds packed runs: " in told.err
        assert f"--out OUT writes what s2s {arguments[0]} reads" in told.err
        assert told.out == ""


def test_what_cannot_be_verified_at_once_says_what_can(results: Path, s2s: Command) -> None:
    for name in ("SHA256SUMS", "cohort/SHA256SUMS"):
        (results / name).unlink()
    out = unpacked(results)
    packed = results.parent.parent / "evidence"
    for directory in (packed, packed / "main" / "cohort" / "native-s1"):
        told = s2s("verify", directory, code=4)
        assert f"{directory} holds packed runs: s2s rebuild checks shipped evidence" in told.err
        assert "PROBLEM" not in told.out
    said = s2s("verify", out, code=4)
    assert f"verify its 2 runs one by one, {out / 'cohort' / 'frozen-s1'} first" in said.err
    run = out / "cohort" / "frozen-s1"
    s2s("verify", run)
    (run / "SHA256SUMS").unlink()
    said = s2s("verify", run, code=4)
    assert "not a finished results directory" in said.err

"""What a user gets from a run, and what the commands say when something is wrong."""

import io
import json
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest

from search_to_signal.base.package_data import PROFILES
from search_to_signal.cli import main
from search_to_signal.records.checksums import write_sums
from search_to_signal.report.build import report
from search_to_signal.verify.directory import verify

REPRODUCIBLE = ("completions.jsonl", "steps.jsonl", "generations.jsonl", "heuristics.jsonl", "config.json")


def s2s(*arguments: str | Path) -> SimpleNamespace:
    """Give a command, in this process."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main([*map(str, arguments)])
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def tree(directory: Path) -> dict[str, bytes]:
    """Every file of a directory by relative path."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_same_seed_gives_the_same_record_bytes_and_adapter(cohort: Path, cohort_again: Path) -> None:
    """Two runs of one seed on one machine give byte-identical records and adapters."""
    first, second = tree(cohort), tree(cohort_again)
    names = [name for name in second if Path(name).name in REPRODUCIBLE or "/adapter/" in name]
    assert len(names) == len(REPRODUCIBLE) + 2
    assert [name for name in names if first[name] != second[name]] == []


def test_training_changes_the_adapter_and_a_frozen_run_has_none(cohort: Path) -> None:
    """The native run ends with another adapter than it began with; the frozen run has no adapter."""
    native = json.loads((cohort / "native-s42" / "manifest.json").read_bytes())
    frozen = json.loads((cohort / "frozen-s42" / "manifest.json").read_bytes())
    assert native["initial_adapter_sha256"] != native["final_adapter_sha256"]
    assert frozen["final_adapter_sha256"] is None
    assert not (cohort / "frozen-s42" / "adapter").exists()


def test_both_conditions_start_from_the_same_group(cohort: Path) -> None:
    """Matched seeds give matched starts: the first group's completions are the same under any condition."""
    first = [
        (cohort / run / "generations.jsonl").read_text().splitlines()[0]
        for run in ("native-s42", "frozen-s42")
    ]
    assert first[0] == first[1]


def test_sha256sum_and_verify_accept_a_run(cohort: Path) -> None:
    """Plain sha256sum -c --strict and s2s verify agree that nothing changed."""
    plain = subprocess.run(["sha256sum", "-c", "--strict", "--quiet", "SHA256SUMS"], cwd=cohort, check=False)
    command = [sys.executable, "-m", "search_to_signal.cli", "verify", str(cohort)]
    ours = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (plain.returncode, ours.returncode) == (0, 0)
    assert "s2s: OK" in ours.stdout


def test_verify_names_a_flipped_bit(cohort: Path, tmp_path: Path) -> None:
    """One flipped bit in a record file is found and named, with a non-zero exit."""
    copy = Path(shutil.copytree(cohort, tmp_path / "copy"))
    target = copy / "native-s42" / "completions.jsonl"
    data = bytearray(target.read_bytes())
    data[len(data) // 2] ^= 1
    target.write_bytes(data)
    result = s2s("verify", copy)
    assert result.returncode == 1
    assert "native-s42/completions.jsonl: bytes differ" in result.stdout


def test_verify_finds_a_reward_that_is_not_the_mappings(cohort: Path, tmp_path: Path) -> None:
    """Consistent checksums do not hide a reward that the claimed mapping does not give."""
    run = Path(shutil.copytree(cohort / "native-s42", tmp_path / "native-s42"))
    lines = (run / "completions.jsonl").read_text().splitlines()
    record = json.loads(lines[0])
    lines[0] = json.dumps({**record, "reward": record["reward"] + 0.5}, separators=(",", ":"))
    (run / "completions.jsonl").write_text("".join(f"{line}\n" for line in lines))
    write_sums(run)
    assert any(": reward is" in problem for problem in verify(run).problems)


def test_report_of_a_smoke_run_cannot_pass_for_a_formal_one(cohort: Path, tmp_path: Path) -> None:
    """A smoke report has its tables under other names and says what it is."""
    page = report(cohort, tmp_path / "report")
    names = {path.name for path in page.parent.iterdir()}
    assert "smoke_core_results.csv" in names
    assert "core_results.csv" not in names
    figures = {path.name for path in (page.parent / "figures").iterdir()}
    assert {f"smoke_best_so_far.{form}" for form in ("csv", "png", "pdf")} <= figures
    assert all(name.startswith("smoke_") for name in figures)
    assert "SMOKE RUN" in page.with_suffix(".html").read_text()
    assert "no evidence" in page.read_text()


def test_replay_recomputes_the_recorded_advantages(cohort: Path, tmp_path: Path) -> None:
    """A replay of a run under its own mapping finds the credit that the run stored."""
    result = s2s(
        "replay", cohort, "--mapping", "native", "--mapping", "factorized", "--out", tmp_path / "audit"
    )
    assert result.returncode == 0
    assert (tmp_path / "audit" / "pairs.csv").is_file()


def test_missing_model_file_is_one_clear_error(tmp_path: Path) -> None:
    """A model directory without its weights is refused before a run begins."""
    (tmp_path / "model").mkdir()
    text = (PROFILES / "smoke.toml").read_text().replace('"qwen2-2.1m"', f'"{tmp_path / "model"}"')
    (tmp_path / "profile.toml").write_text(text)
    result = s2s("run", "--profile", tmp_path / "profile.toml", "--out", tmp_path / "out")
    assert (result.returncode, result.stderr.count("\n")) == (3, 1)
    assert not (tmp_path / "out").exists()


def test_directory_of_another_run_is_refused_and_untouched(cohort: Path, tmp_path: Path) -> None:
    """A directory that holds a run of another configuration is refused, and not one byte changes."""
    copy = tmp_path / "copy"
    shutil.copytree(cohort, copy / "cohort")
    before = tree(copy)
    result = s2s("run", "--profile", "smoke", "--out", copy)
    assert (result.returncode, result.stderr.count("\n")) == (4, 1)
    assert tree(copy) == before


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("verify", "completions.jsonl:8: "),
        ("report", "completions.jsonl is missing or differs"),
        ("replay", "completions.jsonl is missing or differs"),
    ],
)
def test_unreadable_record_line_is_named(command: str, words: str, cohort: Path, tmp_path: Path) -> None:
    """A cut record line stops every reader with its file or line, and the file is left as it is."""
    copy = Path(shutil.copytree(cohort, tmp_path / "copy"))
    target = copy / "native-s42" / "completions.jsonl"
    target.write_bytes(target.read_bytes()[:-40])
    before = target.read_bytes()
    more = ["--mapping", "native", "--out", tmp_path / "audit"] if command == "replay" else []
    result = s2s(command, copy, *more)
    assert result.returncode != 0
    assert words in result.stdout + result.stderr
    assert target.read_bytes() == before

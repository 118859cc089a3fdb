"""Packed evidence that somebody forged, its lists made again: refused in a line, or told as a problem."""

import json
import lzma
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.plans import plan_text

from search_to_signal.cli import main
from search_to_signal.evidence.container import read_container, write_container
from search_to_signal.evidence.packing import list_evidence
from search_to_signal.records.manifest import write_roster

CONDITIONS, SEEDS = ("frozen", "native"), (1, 2, 3)
GIGABYTE = 1 << 30


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed evidence of three seeds under a plan of three."""
    top = tmp_path_factory.mktemp("honest")
    results = top / "results" / "main"
    for seed in SEEDS:
        for condition in CONDITIONS:
            write_synthetic_run(results / "cohort" / f"{condition}-s{seed}", condition, seed)
    write_roster(results / "cohort", [f"{c}-s{seed}" for c in CONDITIONS for seed in SEEDS])
    assert main(["pack", str(results), "--into", str(top / "evidence")]) == 0
    (top / "evidence" / "plan.toml").write_text(plan_text({}))
    assert main(["rebuild", str(top / "evidence"), "--out", str(top / "made"), "--ship"]) == 0
    return top / "evidence"


@pytest.fixture
def evidence(honest: Path, tmp_path: Path) -> Path:
    """A copy that a test may forge."""
    return Path(shutil.copytree(honest, tmp_path / "evidence"))


def container(run: Path) -> tuple[bytes, bytes]:
    """Head and body of a run's container."""
    head, _, body = lzma.decompress((run / "records.xz").read_bytes()).partition(b"\n")
    return head, body


def many_lines(run: Path) -> None:
    parts = {**read_container(run / "records.xz"), "steps.jsonl": b"{}\n" * 300_000 + os.urandom(40_000)}
    write_container(run / "records.xz", parts)


def far_too_large(run: Path) -> None:
    write_container(run / "records.xz", {"steps.jsonl": b"{}\n" * (32 << 20)})


def a_name_twice(run: Path) -> None:
    head, body = container(run)
    names = json.loads(head)
    names.append([names[0][0], 0])
    (run / "records.xz").write_bytes(lzma.compress(json.dumps(names).encode() + b"\n" + body))


def bytes_after_the_end(run: Path) -> None:
    with (run / "records.xz").open("ab") as stream:
        stream.write(b"more")


def a_second_stream(run: Path) -> None:
    with (run / "records.xz").open("ab") as stream:
        stream.write(lzma.compress(b"more"))


def a_name_of_zero(run: Path) -> None:
    write_container(run / "records.xz", {**read_container(run / "records.xz"), "whole:a\0b": b""})


def a_lone_surrogate(run: Path) -> None:
    _, body = container(run)
    (run / "records.xz").write_bytes(lzma.compress(b'[["whole:\\ud800", 0]]\n' + body))


def brackets(run: Path) -> None:
    (run / "records.xz").write_bytes(lzma.compress(b"[" * 100_000 + b"\n"))


def no_completions(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["config"]["generation"]["group_size"] = 0
    (run / "manifest.json").write_text(json.dumps(manifest))


def an_absolute_path(run: Path) -> None:
    (run.parent / "runs.json").write_text(json.dumps(["/etc-s1"]))


def a_link(run: Path) -> None:
    (run / "manifest.json").rename(run.parents[3] / "elsewhere.json")
    (run / "manifest.json").symlink_to(run.parents[3] / "elsewhere.json")


def a_pipe(run: Path) -> None:
    (run.parent / "runs.json").unlink()
    os.mkfifo(run.parent / "runs.json")


def a_record_of_the_rest(run: Path) -> None:
    rest = run.parents[1] / "files.xz"
    write_container(rest, {**read_container(rest), f"cohort/{run.name}/steps.jsonl": b"{}\n"})


FORGED = (
    *(many_lines, far_too_large, a_name_twice, bytes_after_the_end, a_second_stream, a_name_of_zero),
    *(a_lone_surrogate, brackets, no_completions, a_link, a_pipe, a_record_of_the_rest),
)
ATTACKS = [(command, forge) for command in ("rebuild", "unpack") for forge in FORGED]


@pytest.mark.parametrize(("command", "forge"), [*ATTACKS, ("rebuild", an_absolute_path)])
def test_damage_is_one_line(
    evidence: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    forge: Callable[[Path], None],
    command: str,
) -> None:
    """Its file is named, nothing hangs, nothing fills the memory, and no checked record is written over."""
    forge(evidence / "main" / "cohort" / "native-s2")
    if forge not in (a_link, a_pipe):
        list_evidence(evidence)
    capsys.readouterr()
    code = main([command, str(evidence), "--out", str(tmp_path / "out")])
    told = capsys.readouterr().err
    assert code != 0
    assert told.startswith("s2s: error: ")
    assert told.count("\n") == 1


def test_a_small_container_takes_little_memory(evidence: Path, tmp_path: Path) -> None:
    """Five kilobytes that hold 96 megabytes of empty lines are refused within a gigabyte of addresses."""
    far_too_large(evidence / "main" / "cohort" / "native-s2")
    list_evidence(evidence)
    command = [sys.executable, "-m", "search_to_signal.cli", "unpack", str(evidence)]
    found = subprocess.run(
        [*command, "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (GIGABYTE, GIGABYTE)),
    )
    assert "hold more than" in found.stderr
    assert found.stderr.count("\n") == 1


def cut_to_one_seed(evidence: Path) -> None:
    cohort = evidence / "main" / "cohort"
    for condition in CONDITIONS:
        for seed in (1, 3):
            shutil.rmtree(cohort / f"{condition}-s{seed}")
    write_roster(cohort, [f"{condition}-s2" for condition in CONDITIONS])


def without_a_chosen_seed(evidence: Path) -> None:
    for condition in CONDITIONS:
        shutil.rmtree(evidence / "main" / "cohort" / f"{condition}-s2")


def another_level(evidence: Path) -> None:
    plan = evidence / "plan.toml"
    plan.write_text(plan.read_text().replace("level = 0.95", "level = 0.5"))


@pytest.mark.parametrize(
    ("forge", "told"),
    [
        (cut_to_one_seed, "main/cohort/runs.json lacks 2 of 3 planned runs: native-s1, native-s3"),
        (without_a_chosen_seed, "main/cohort/native: recorded seeds are not the plan's first 2: native-s2"),
        (another_level, "plan.toml: SHA256SUMS does not list it with these bytes"),
    ],
    ids=["shortened roster", "chosen seeds", "another level"],
)
def test_what_is_planned_follows_from_the_plan(
    evidence: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    forge: Callable[[Path], None],
    told: str,
) -> None:
    """Evidence of fewer seeds than planned, chosen or with its roster cut, and a changed plan fail."""
    forge(evidence)
    if forge is not another_level:
        list_evidence(evidence)
        assert main(["rebuild", str(evidence), "--out", str(tmp_path / "made"), "--ship"]) == 1
        capsys.readouterr()
    assert main(["rebuild", str(evidence), "--out", str(tmp_path / "out")]) == 1
    assert told in capsys.readouterr().out


def test_manifests_hold_the_plan(evidence: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that was recorded under another plan is a problem, though every list was made again."""
    run = evidence / "main" / "cohort" / "native-s2"
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "plan_sha256": "0" * 64}))
    sums = (run / "SHA256SUMS").read_text().splitlines()
    kept = [line for line in sums if not line.endswith("  manifest.json")]
    (run / "SHA256SUMS").write_text("\n".join(kept) + "\n")
    list_evidence(evidence)
    assert main(["rebuild", str(evidence), "--out", str(tmp_path / "out")]) == 1
    assert "plan.toml: 6 runs recorded under another plan" in capsys.readouterr().out


def test_the_page_holds_the_rebuilt_table(
    evidence: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A README with another number in its table is a problem, one with the printed table is none."""
    assert main(["rebuild", str(evidence), "--out", str(tmp_path / "out")]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    page = tmp_path / "README.md"
    page.write_text("\n".join(rows))
    command = ["rebuild", str(evidence), "--out", str(tmp_path / "out"), "--readme", str(page)]
    assert main(command) == 0
    page.write_text("\n".join([*rows[:-1], rows[-1].replace("1", "2")]))
    capsys.readouterr()
    assert main(command) == 1
    assert f"README.md: its table lacks the rebuilt row {rows[-1]}" in capsys.readouterr().out

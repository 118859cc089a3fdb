"""Packed evidence that somebody forged, its lists made again: refused in a line, or told as a problem."""

import hashlib
import json
import lzma
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spec.synthetic_runs import write_synthetic_run
from tests.command import Capture, Command, Patch
from tests.forging import edit_manifest

from search_to_signal.cli import main
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.manifest import write_roster
from search_to_signal.study.container import list_evidence, read_container, write_container
from search_to_signal.study.plan_checks import table_problems

pytestmark = pytest.mark.slow

CONDITIONS = ("frozen", "native")
GIGABYTE = 1 << 30
Forge = Callable[[Path], object]


@pytest.fixture
def evidence(shipped: Path, tmp_path: Path) -> Path:
    """A copy that a test may forge."""
    return Path(shutil.copytree(shipped, tmp_path / "evidence"))


@pytest.fixture
def rebuilt(evidence: Path, tmp_path: Path, capsys: Capture) -> Callable[..., str]:
    """Rebuild the evidence, which has to end with this code; returns what was said."""

    def rebuild(code: int, *more: str) -> str:
        capsys.readouterr()
        assert main(["rebuild", str(evidence), "--out", str(tmp_path / "out"), *more]) == code
        told = capsys.readouterr()
        return told.out + told.err

    return rebuild


def in_a_process(
    *words: str | Path, limit: int | None = None, most: int = 0
) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own, which may have so much of a resource at most."""
    return subprocess.run(
        [sys.executable, "-m", "search_to_signal.cli", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # bytecode would be cut at the limit, too
        preexec_fn=None if limit is None else lambda: resource.setrlimit(limit, (most, most)),
    )


def put(data: bytes) -> Forge:
    """A container of these bytes once they are unpacked."""
    return lambda run: (run / "records.xz").write_bytes(lzma.compress(data))


def with_parts(**parts: bytes) -> Forge:
    """A container with these parts besides its own."""
    return lambda run: write_container(run / "records.xz", {**read_container(run / "records.xz"), **parts})


def appended(data: bytes) -> Forge:
    return lambda run: (run / "records.xz").write_bytes((run / "records.xz").read_bytes() + data)


def configured(change: Callable[[dict[str, Any]], object]) -> Forge:
    return lambda run: edit_manifest(run, lambda manifest: change(manifest["config"]))


def a_name_twice(run: Path) -> None:
    head, _, body = lzma.decompress((run / "records.xz").read_bytes()).partition(b"\n")
    names = json.loads(head)
    head = json.dumps([*names, names[0]]).encode()
    put(head + b"\n" + body + body[: names[0][1]])(run)


def a_listed_name_twice(run: Path) -> None:
    lines = (run / "SHA256SUMS").read_text().splitlines()
    (run / "SHA256SUMS").write_text("\n".join([f"{'0' * 64}{lines[0][64:]}", *lines]) + "\n")


def far_too_large(run: Path) -> None:
    put(b'[["steps.jsonl", 100663296]]\n' + b"{}\n" * (32 << 20))(run)


def many_whole_lines(run: Path) -> None:
    with_parts(**{"whole:generations.jsonl": b"{}\n" * 5_000_000 + os.urandom(60_000)})(run)


def a_dictionary_of_gigabytes(run: Path) -> None:
    data = bytearray(lzma.compress(b"[]\n", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]))
    # The size of the dictionary, in the header of the first block; 37 is 1.5 GiB.
    assert data[12 + 4] == 16
    data[12 + 4] = 37
    data[20:24] = zlib.crc32(data[12:20]).to_bytes(4, "little")
    (run / "records.xz").write_bytes(data)


def a_link(run: Path) -> None:
    (run / "manifest.json").rename(run.parents[3] / "elsewhere.json")
    (run / "manifest.json").symlink_to(run.parents[3] / "elsewhere.json")


def a_pipe(run: Path) -> None:
    (run.parent / "runs.json").unlink()
    os.mkfifo(run.parent / "runs.json")


def a_record_of_the_rest(run: Path) -> None:
    rest = run.parents[1] / "files.xz"
    other = read_container(run / "records.xz")["whole:timings.jsonl"].replace(b"1.5", b"9.5")
    write_container(rest, {**read_container(rest), f"cohort/{run.name}/timings.jsonl": other})


FORGED: dict[str, Forge] = {
    "many lines": with_parts(**{"steps.jsonl": b"{}\n" * 300_000 + os.urandom(40_000)}),
    "a name twice": a_name_twice,
    "a name of zero": with_parts(**{"whole:a\0b": b""}),
    "a lone surrogate": put(b'[["whole:\\ud800", 0]]\n'),
    "folders without end": with_parts(**{"whole:" + "d/" * 2000 + "x": b""}),
    "brackets": put(b"[" * 100_000 + b"\n"),
    "bytes after the end": appended(b"more"),
    "a second stream": appended(lzma.compress(b"more")),
    "a dictionary of gigabytes": a_dictionary_of_gigabytes,
    "many groups": configured(lambda config: config.update(groups=10**30)),
    "no completions": configured(lambda config: config["generation"].update(group_size=0)),
    "a listed name twice": a_listed_name_twice,
    "a link": a_link,
    "a pipe": a_pipe,
    "a record of the rest": a_record_of_the_rest,
    "an absolute path": lambda run: (run.parent / "runs.json").write_text('["/etc-s1"]'),
}
# Both commands read containers by the same code: of some kinds of damage it is seen that both do.
# Unpacking reads no roster.
ATTACKS = [("unpack", name) for name in FORGED if name != "an absolute path"]
ATTACKS += [
    ("rebuild", name)
    for name in ("a name twice", "no completions", "a link", "a record of the rest", "an absolute path")
]


@pytest.mark.parametrize(("command", "name"), ATTACKS)
def test_damage_is_one_line(evidence: Path, tmp_path: Path, s2s: Command, name: str, command: str) -> None:
    FORGED[name](evidence / "main" / "cohort" / "native-s2")
    list_evidence(evidence)
    code = (said := s2s(command, evidence, "--out", tmp_path / "out", code=None)).code
    told = said.err
    assert code != 0
    assert told.startswith("s2s: error: ")
    assert told.count("\n") == 1


def test_nothing_is_said_of_records_that_are_written_over(
    evidence: Path, rebuilt: Callable[..., str]
) -> None:
    a_record_of_the_rest(evidence / "main" / "cohort" / "native-s2")
    list_evidence(evidence)
    told = rebuilt(4)
    assert "'cohort/native-s2/timings.jsonl', which another file of the evidence is" in told
    assert "have the bytes of their lists" not in told


@pytest.mark.parametrize("names", [["x-s{up}", "{up}"], ["{up}/x-s1", "native-s9"]])
def test_no_name_leads_to_what_is_removed(
    evidence: Path, tmp_path: Path, monkeypatch: Patch, names: list[str]
) -> None:
    mine = tmp_path / "mine" / "x-s1"
    mine.mkdir(parents=True)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    cohort = evidence / "main" / "cohort"
    roster = [
        *json.loads((cohort / "runs.json").read_text()),
        *(one.format(up="../../../../mine") for one in names),
    ]
    (cohort / "runs.json").write_text(json.dumps(roster))
    list_evidence(evidence)
    code = main(["rebuild", str(evidence), "--out", str(tmp_path / "out")])
    assert mine.is_dir()
    assert code == 4


@pytest.mark.parametrize(("given", "lead"), [("..", "main"), (".", "")])
def test_evidence_that_is_packed_itself_removes_and_writes_nothing(
    evidence: Path, tmp_path: Path, monkeypatch: Patch, s2s: Command, given: str, lead: str
) -> None:
    """Given as .. or . its name would be that of the output's parent, or none."""
    shutil.copy(evidence / "main" / "files.xz", evidence / "files.xz")
    list_evidence(evidence)
    out = tmp_path / "home" / "out"
    (out / "mine").mkdir(parents=True)
    for place in (out.parent, out, out / "mine"):
        (place / "mine.csv").write_text("mine")
    before = sorted(out.parent.rglob("*"))
    monkeypatch.chdir(evidence / lead)
    said = s2s("rebuild", given, "--out", out, code=4)
    assert sorted(out.parent.rglob("*")) == before
    assert f"{given} holds files.xz itself" in said.err


def test_rebuilding_removes_nothing(evidence: Path, tmp_path: Path) -> None:
    own = tmp_path / "out" / "main" / "report" / "mine.csv"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    kept = evidence / "main" / "report" / "README"
    kept.write_text("kept")
    list_evidence(evidence)
    for _ in range(2):
        assert main(["rebuild", str(evidence), "--out", str(tmp_path / "out"), "--ship"]) == 0
    assert (own.read_text(), kept.read_text()) == ("mine", "kept")
    assert not list(evidence.rglob("mine.csv"))


@pytest.mark.parametrize("below", ["", "main"])
def test_the_ledger_reads_no_table_that_is_not_as_listed(evidence: Path, s2s: Command, below: str) -> None:
    """A shipped number that was changed would give a verdict on the paper's; its table is named instead."""
    command = ["claims", "--results", str(evidence / below)]
    s2s(*command)
    table = evidence / "main" / "report" / "core_results.csv"
    table.write_text(table.read_text().replace("1", "2", 1))
    told = s2s(*command, code=4)
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "main/report/core_results.csv: bytes differ from SHA256SUMS" in told.err
    list_evidence(evidence)
    s2s(*command)


def a_linked_table(table: Path) -> None:
    table.rename(table.parents[3] / "elsewhere.csv")
    table.symlink_to(table.parents[3] / "elsewhere.csv")


def a_table_that_is_a_pipe(table: Path) -> None:
    table.unlink()
    os.mkfifo(table)


@pytest.mark.parametrize("forge", [a_linked_table, a_table_that_is_a_pipe])
@pytest.mark.parametrize("command", [("claims", "--results"), ("trace",)], ids=lambda one: one[0])
def test_every_reader_refuses_what_is_no_file(
    evidence: Path, forge: Callable[[Path], None], command: tuple[str, ...]
) -> None:
    """Not the rebuilding alone: whoever reads packed evidence names the link or pipe and ends."""
    forge(evidence / "main" / "report" / "core_results.csv")
    cell = ["core_results", "native", "Final best"] if command == ("trace",) else []
    found = in_a_process(*command, evidence / "main", *cell)
    assert found.returncode == 4, found.stdout
    assert "core_results.csv is a " in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("forge", "told"), [(far_too_large, "hold more than"), (many_whole_lines, "more lines than")]
)
def test_a_small_container_takes_little_memory(
    evidence: Path, tmp_path: Path, forge: Forge, told: str
) -> None:
    forge(evidence / "main" / "cohort" / "native-s2")
    list_evidence(evidence)
    out = tmp_path / "out"
    found = in_a_process("unpack", evidence, "--out", out, limit=resource.RLIMIT_DATA, most=GIGABYTE)
    assert found.returncode != 0
    assert found.stderr.startswith("s2s: error: ")
    assert told in found.stderr
    assert found.stderr.count("\n") == 1


def test_unpacking_writes_below_its_output_alone(evidence: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(evidence / "main" / "cohort")
    for given in ("..", "../../main"):
        out = tmp_path / given.replace("/", "-").replace(".", "x") / "out"
        assert main(["unpack", given, "--out", str(out)]) == 0
        assert [path.name for path in out.iterdir()] == ["main"]
        assert [path.name for path in out.parent.iterdir()] == ["out"]


def a_file(evidence: Path) -> Path:
    (evidence.parent / "file").write_text("mine")
    return evidence.parent / "file"


def a_link_to_nothing(evidence: Path) -> Path:
    (evidence.parent / "links").mkdir()
    (evidence.parent / "links" / "main").symlink_to(evidence.parent / "nowhere")
    return evidence.parent / "links"


PLACES = {"within": lambda evidence: evidence / "main" / "cohort", "file": a_file, "link": a_link_to_nothing}


@pytest.mark.parametrize("place", PLACES)
def test_unpacking_into_no_directory_of_its_own_touches_nothing(
    evidence: Path, s2s: Command, place: str
) -> None:
    out = PLACES[place](evidence)
    before = sorted(evidence.parent.rglob("*"))
    said = s2s("unpack", evidence, "--out", out, code=2)
    assert "give another --out" in said.err
    assert sorted(evidence.parent.rglob("*")) == before


def test_what_is_begun_has_the_bytes_of_the_list(evidence: Path, rebuilt: Callable[..., str]) -> None:
    begun = evidence / "begun.tar.xz"
    begun.write_bytes(b"runs")
    list_evidence(evidence)
    rebuilt(0, "--ship")
    for damage in (lambda: begun.write_bytes(b"run"), begun.unlink):
        damage()
        assert "begun.tar.xz" in rebuilt(4)


def test_evidence_without_runs_is_no_success(evidence: Path, tmp_path: Path, s2s: Command) -> None:
    shutil.rmtree(evidence / "main" / "cohort")
    list_evidence(evidence)
    said = s2s("unpack", evidence, "--out", tmp_path / "out", code=4)
    assert f"{evidence / 'main'} holds no run" in said.err


def test_what_was_unpacked_by_halves_says_so(evidence: Path, tmp_path: Path, s2s: Command) -> None:
    largest = (evidence / "main" / "cohort" / "native-s3" / "manifest.json").stat().st_size
    out = tmp_path / "out"
    found = in_a_process("unpack", evidence, "--out", out, limit=resource.RLIMIT_FSIZE, most=largest)
    assert (found.returncode, found.stderr.count("\n")) == (4, 1), found.stderr
    assert "make room, then remove it, and give the command again" in found.stderr
    left = tmp_path / "out" / "main"
    assert (left / "cohort" / "runs.json").is_file()
    assert s2s("verify", left, code=None).code != 0
    assert s2s("report", left, "--out", tmp_path / "page", code=None).code != 0
    said = s2s("unpack", evidence, "--out", tmp_path / "out", code=2)
    assert "or remove what a stopped command left" in said.err


def test_nothing_is_packed_that_could_not_be_read(tmp_path: Path, s2s: Command) -> None:
    run = tmp_path / "main" / "cohort" / "frozen-s1"
    write_synthetic_run(run, "frozen", 1)
    command = ["pack", str(tmp_path / "main"), "--into", str(tmp_path / "evidence")]
    s2s(*command)
    before = (tmp_path / "evidence" / "main" / "files.xz").read_bytes()
    (tmp_path / "main" / "cohort" / "frozen-s1.log").write_bytes(bytes(8 << 20))
    said = s2s(*command, code=4)
    assert "cohort/frozen-s1.log has 8388608; take it out" in said.err
    assert (tmp_path / "evidence" / "main" / "files.xz").read_bytes() == before


def without_a_chosen_seed(evidence: Path) -> None:
    for condition in CONDITIONS:
        shutil.rmtree(evidence / "main" / "cohort" / f"{condition}-s2")


def cut_to_one_seed(evidence: Path) -> None:
    cohort = evidence / "main" / "cohort"
    for condition in CONDITIONS:
        for seed in (1, 3):
            shutil.rmtree(cohort / f"{condition}-s{seed}")
    write_roster(cohort, [f"{condition}-s2" for condition in CONDITIONS])


def another_level(evidence: Path) -> None:
    plan = evidence / "plan.toml"
    plan.write_text(plan.read_text().replace("level = 0.95", "level = 0.5"))


def seeds_behind_the_plan(evidence: Path) -> None:
    cohort = evidence / "main" / "cohort"
    for condition in CONDITIONS:
        shutil.copytree(cohort / f"{condition}-s2", cohort / f"{condition}-s77")


def two_runs_in_each_other_s_place(evidence: Path) -> None:
    cohort = evidence / "main" / "cohort"
    for name, other in (("frozen-s2", "held"), ("native-s2", "frozen-s2"), ("held", "native-s2")):
        (cohort / name).rename(cohort / other)


def listed_again(run: Path) -> None:
    """Let a run's list have the manifest that is there now."""
    digest = hashlib.sha256((run / "manifest.json").read_bytes()).hexdigest()
    sums = (run / "SHA256SUMS").read_text().splitlines()
    lines = [f"{digest}  manifest.json" if one.endswith("  manifest.json") else one for one in sums]
    (run / "SHA256SUMS").write_text("\n".join(lines) + "\n")


def without_any_plan(evidence: Path) -> None:
    another_level(evidence)
    for run in (evidence / "main" / "cohort").glob("*-s*"):
        edit_manifest(run, lambda manifest: manifest.pop("plan_sha256"))
        listed_again(run)


def a_run_under_another_plan(evidence: Path) -> None:
    run = evidence / "main" / "cohort" / "native-s2"
    edit_manifest(run, lambda manifest: manifest.update(plan_sha256="0" * 64))
    listed_again(run)


def a_table_with(row: bytes) -> Forge:
    def forge(evidence: Path) -> None:
        table = evidence / "main" / "report" / "core_results.csv"
        table.write_bytes(table.read_bytes() + row)

    return forge


PLANNED = {
    "shortened roster": (
        cut_to_one_seed,
        "main/cohort/runs.json lacks 2 of 3 planned runs: native-s1, native-s3",
    ),
    "chosen seeds": (
        without_a_chosen_seed,
        "main/cohort/native: recorded seeds are not the plan's first 2: native-s2",
    ),
    "more seeds": (
        seeds_behind_the_plan,
        "main/cohort/native: 1 run of seeds that the plan does not ask for: native-s77",
    ),
    "other places": (
        two_runs_in_each_other_s_place,
        "main/cohort/native-s2 has the configuration of cohort/frozen-s2",
    ),
    "its list": (another_level, "plan.toml: 6 runs recorded under another plan, or none: "),
    "no plan": (without_any_plan, "plan.toml: 6 runs recorded under another plan, or none: "),
    "one run": (
        a_run_under_another_plan,
        "plan.toml: 1 run recorded under another plan, or none: main/cohort/native-s2",
    ),
}
TABLES = {
    # Whether a long cell is one to the csv module depends on what else the process reads.
    "long": (a_table_with(b'"' + b"1" * 200_000 + b'",1\n'), "main/report/core_results.csv: "),
    "bytes": (a_table_with(b'"\xff",1\n'), "main/report/core_results.csv: it is not a table ("),
    "zero": (a_table_with(b'"\0",1\n'), "main/report/core_results.csv: it is not a table ("),
    "too few cells": (a_table_with(b'"frozen",1\n'), "main/report/core_results.csv: frozen / 1"),
}


@pytest.mark.parametrize("name", [*PLANNED, *TABLES])
def test_forged_evidence_with_new_lists_has_a_problem(
    evidence: Path, rebuilt: Callable[..., str], name: str
) -> None:
    forge, told = (PLANNED | TABLES)[name]
    forge(evidence)
    list_evidence(evidence)
    if name in ("more seeds", "one run"):
        rebuilt(1, "--ship")
    assert told in rebuilt(1)


def test_a_plan_that_was_changed_is_not_as_listed(evidence: Path, rebuilt: Callable[..., str]) -> None:
    another_level(evidence)
    assert "plan.toml: SHA256SUMS does not list it with these bytes" in rebuilt(1)


def test_a_run_of_other_settings_is_a_problem_once_shipped_too(
    evidence: Path, tmp_path: Path, rebuilt: Callable[..., str]
) -> None:
    """Its profile has no tables then: --ship takes the shipped ones away, and nothing else would tell."""
    run = tmp_path / "results" / "main" / "cohort" / "native-s2"
    assert main(["unpack", str(evidence), "--out", str(tmp_path / "results")]) == 0
    edit_manifest(run, lambda manifest: manifest["config"]["generation"].update(temperature=0.5))
    write_sums(run)
    assert main(["pack", str(tmp_path / "results" / "main"), "--into", str(evidence)]) == 0
    for more in (["--ship"], []):
        assert "PROBLEM main: no tables: main/cohort mixes protocols" in rebuilt(1, *more)


@pytest.mark.parametrize(
    "command", [("rebuild", "--out", "out"), ("trace", "core_results")], ids=lambda one: one[0]
)
@pytest.mark.parametrize("name", ["completions.jsonl", "steps.jsonl"])
def test_cut_records_are_named_by_their_packed_run(
    evidence: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capture, command: tuple[str, ...], name: str
) -> None:
    assert main(["unpack", str(evidence), "--out", str(tmp_path / "results")]) == 0
    run = tmp_path / "results" / "main" / "cohort" / "native-s2"
    lines = (run / name).read_bytes().splitlines(keepends=True)
    (run / name).write_bytes(b"".join(lines[:-1]))
    write_sums(run)
    assert main(["pack", str(tmp_path / "results" / "main"), "--into", str(evidence)]) == 0
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    given = evidence if command[0] == "rebuild" else evidence / "main"
    capsys.readouterr()
    assert main([command[0], str(given), *command[1:]]) == 4
    told = capsys.readouterr().err
    assert f"{evidence / 'main' / 'cohort' / 'native-s2'} does not hold 40 groups" in told
    assert "temporary" not in told


def test_the_page_holds_the_rebuilt_table(evidence: Path, tmp_path: Path, s2s: Command) -> None:
    rows = [
        line
        for line in s2s("rebuild", evidence, "--out", tmp_path / "out").out.splitlines()
        if line.startswith("|")
    ]
    page = tmp_path / "README.md"
    page.write_text("\n".join(rows))
    command = ["rebuild", str(evidence), "--out", str(tmp_path / "out"), "--readme", str(page)]
    s2s(*command)
    other = rows[-1].replace("1", "2")
    text = "\n".join(rows)
    for held, told in (
        ([*rows, other], f"its table has a row that is not rebuilt: {other}"),
        ([*rows, "", *rows, other], f"its table has a row that is not rebuilt: {other}"),
        ([*rows, rows[-1]], "its table has the rebuilt rows in another order, or twice"),
        ([], f"its table lacks the rebuilt row {rows[0]}"),
    ):
        page.write_text("\n".join(held))
        assert f"README.md: {told}" in list(table_problems(page, [text], text))
    page.write_text("\n".join([*rows[:-1], other]))
    said = s2s(*command, code=1)
    assert f"README.md: its table lacks the rebuilt row {rows[-1]}" in said.out

"""The command: examples for every subcommand, one line for every error, a code for every kind of error."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.command import Capture, Patch
from tests.profiles import profile_head

from search_to_signal.base import errors
from search_to_signal.base.errors import S2SError
from search_to_signal.cli import main
from search_to_signal.credit import ALTERNATIVES, PUBLISHED
from search_to_signal.credit.normalizers import NORMALIZERS
from search_to_signal.layers.settings import UpdateSettings
from search_to_signal.records.checksums import write_sums
from search_to_signal.verify import PROMISES

COMMANDS = (
    *("run", "record", "model", "run-one", "report", "trace", "verify", "seal"),
    *("rerun", "retrain", "pack", "unpack", "standings", "rebuild", "replay", "updates"),
    *("heldout", "claims", "pretrain", "card", "serve", "conformance", "released", "list"),
    *("compare", "normalizers", "exploits", "audit", "worth"),
)

Make = Callable[..., Path]


def said(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and error output of a command."""
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_help_names_every_command(capsys: Capture) -> None:
    """The overview lists all commands and shows an example."""
    code, out, _ = said(capsys, "--help")
    assert code == 0
    assert "example: s2s" in out
    found = re.findall(r"^    ([a-z-]+)(?: |$)", out, re.MULTILINE)
    assert sorted(found) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example(capsys: Capture, command: str) -> None:
    """Help of a command ends with a way to call it."""
    code, out, _ = said(capsys, command, "--help")
    assert code == 0
    assert f"example: s2s {command}" in out


@pytest.mark.parametrize("arguments", [[], ["fly"], ["run"], ["replay", "x"]])
def test_wrong_usage_is_code_two(capsys: Capture, arguments: list[str]) -> None:
    """An unknown command or a missing argument prints the usage."""
    code, _, err = said(capsys, *arguments)
    assert code == 2
    assert "usage: s2s" in err


def test_exit_codes_tell_errors_apart() -> None:
    """Every class of error that names a code has one of its own, and none is success."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, S2SError)]
    codes = [kind.exit_code for kind in kinds if "exit_code" in vars(kind)]
    assert len(set(codes)) == len(codes) > 5
    assert 0 not in codes


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["run", "--profile", "nope", "--out", "{tmp}/out"], 2, "embedded"),
        (["run", "--profile", "{tmp}/profile.toml", "--out", "{tmp}/out"], 3, "gpt-17"),
        (["report", "{tmp}"], 4, "holds no run"),
        (["verify", "{tmp}/nowhere"], 4, "nowhere"),
        (["replay", "{tmp}", "--mapping", "native", "--out", "{tmp}/out"], 5, "completions.jsonl"),
        (["updates", "{tmp}", "--mapping", "nativ", "--out", "{tmp}/out"], 2, "'nativ'"),
        (["updates", "{tmp}", "--normalizer", "grup", "--out", "{tmp}/out"], 2, "'grup'"),
        (["pretrain", "{tmp}/no.toml", "--out", "{tmp}/out"], 2, "no.toml"),
    ],
)
def test_errors_are_one_line(
    capsys: Capture, tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    """An error of ours is one line that says what is wrong, and its code; nothing is written."""
    (tmp_path / "profile.toml").write_text(profile_head("frozen", groups=1, model="gpt-17"))
    found, out, err = said(capsys, *(argument.format(tmp=tmp_path) for argument in arguments))
    assert found == code
    assert err.startswith("s2s: error: ")
    assert text in err
    assert err.count("\n") == 1
    assert out == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", [b"", b"{}", b'{"seed": 1}', b"\xff"])
def test_run_one_needs_a_configuration(
    capsys: Capture, tmp_path: Path, monkeypatch: Patch, text: bytes
) -> None:
    """Standard input without a configuration is an error, and the directory stays as it was."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    code, _, err = said(capsys, "run-one", "--out", str(tmp_path / "out"))
    assert code == 2
    assert "standard input" in err
    assert not (tmp_path / "out").exists()


def test_verdicts(make_run: Make, tmp_path: Path, capsys: Capture) -> None:
    """An honest run ends in OK and code 0; a changed one names each problem and ends in code 1."""
    run = make_run(tmp_path / "run")
    files = sum(path.is_file() for path in run.rglob("*")) - 1
    code, out, _ = said(capsys, "verify", str(run))
    assert (code, out.splitlines()[0]) == (0, f"s2s: OK: {files} files, 1 run, 0 problems")
    (run / "steps.jsonl").write_text("")
    code, out, _ = said(capsys, "verify", str(run))
    assert code == 1
    assert "PROBLEM steps.jsonl: bytes differ from SHA256SUMS\n" in out
    assert f"s2s: FAILED: {files} files, 1 run, " in out


def test_the_page_on_trust_makes_the_same_promises() -> None:
    """What an OK says stands in the page word for word, with the level that it belongs to."""
    page = (Path(__file__).parents[2] / "docs" / "trust.md").read_text(encoding="utf-8")
    levels = page.partition("## Who is trusted for what")[2].partition("## ")[0]
    rows = [line.strip("| ").split(" | ") for line in levels.splitlines() if line.startswith("| `")]
    assert {row[0].strip("`"): row[-1] for row in rows} == dict(PROMISES)


@pytest.mark.slow
def test_reports_stay_out_of_run_directories(make_run: Make, tmp_path: Path, capsys: Capture) -> None:
    """A report of one run goes elsewhere: inside, it would spoil the run's checksums."""
    run = make_run(tmp_path / "run")
    code, _, err = said(capsys, "report", str(run))
    assert (code, "give --out" in err) == (2, True)
    assert said(capsys, "report", str(run), "--out", str(tmp_path / "page"))[0] == 0
    assert said(capsys, "verify", str(run))[0] == 0


@pytest.mark.slow
def test_a_checksummed_report_is_not_replaced_by_another_version_s(
    make_run: Make, tmp_path: Path, capsys: Capture
) -> None:
    """With a table of one's own, say: the directory would never verify again. Elsewhere it may go."""
    make_run(tmp_path / "in" / "native-s1", "native", 1)
    write_sums(tmp_path / "in")
    code, _, err = said(capsys, "report", str(tmp_path / "in"))
    assert (code, "give --out PAGE" in err) == (2, True)
    assert said(capsys, "report", str(tmp_path / "in"), "--out", str(tmp_path / "page"))[0] == 0


@pytest.mark.slow
def test_report_and_replay_end_with_their_place(make_run: Make, tmp_path: Path, capsys: Capture) -> None:
    """Both print their page, and last the place of the results."""
    make_run(tmp_path / "in" / "native-s1", "native", 1)
    code, out, _ = said(capsys, "report", str(tmp_path / "in"), "--out", str(tmp_path / "page"))
    assert (code, out.splitlines()[-1]) == (0, f"s2s: report in {tmp_path / 'page'}")
    assert "| native |" in out
    mappings: list[Any] = ["--mapping", "native", "--mapping", "factorized"]
    code, out, _ = said(capsys, "replay", str(tmp_path / "in"), *mappings, "--out", str(tmp_path / "audit"))
    assert (code, out.splitlines()[-1]) == (0, f"s2s: replay in {tmp_path / 'audit'}")
    assert (tmp_path / "audit" / "pairs.csv").is_file()
    assert said(capsys, "replay", str(tmp_path / "in"), "--out", str(tmp_path / "all"))[0] == 0
    readings = (tmp_path / "all" / "readings.csv").read_text()
    assert all(f",{name}," in readings for name in ALTERNATIVES)


def test_updates_compare_the_mappings_that_are_given(
    monkeypatch: Patch, tmp_path: Path, capsys: Capture
) -> None:
    """Mappings and normalizers of the command line are those of the layer; without any, all built-in ones."""
    asked: list[UpdateSettings] = []

    def updated(runs: object, out: Path, settings: UpdateSettings, progress: object) -> Path:
        asked.append(settings)
        out.with_suffix(".md").write_text("page\n")
        return out.with_suffix(".md")

    monkeypatch.setattr("search_to_signal.layers.updates.layer.matched_updates", updated)
    base = ["updates", str(tmp_path), "--out", str(tmp_path / "out")]
    given = ["--mapping", "native", "--mapping", "tail_weighted", "--normalizer", "rloo"]
    assert said(capsys, *base, *given)[0] == said(capsys, *base)[0] == 0
    assert (asked[0].mappings, asked[0].normalizers) == (("native", "tail_weighted"), ("rloo",))
    assert (asked[1].mappings, asked[1].normalizers) == (tuple(PUBLISHED), tuple(NORMALIZERS))


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e300"])
@pytest.mark.parametrize(
    "command",
    [
        ["standings", "nowhere", "--timeout"],
        ["run-one", "--out", "nowhere", "--wait"],
        ["audit", "nowhere", "--follow", "--every"],
    ],
    ids=lambda one: one[0],
)
def test_a_time_that_none_waits_is_refused(
    command: list[str], value: str, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """In one line that names the option, before anything is read or written."""
    monkeypatch.chdir(tmp_path)
    code, out, err = said(capsys, *command, value)
    assert (code, out, list(tmp_path.iterdir())) == (2, "", [])
    assert err.startswith(f"s2s: error: {command[-1]} {float(value):g}: give a number ")
    assert err.count("\n") == 1

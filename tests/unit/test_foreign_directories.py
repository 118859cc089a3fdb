"""What a directory says is data: whoever made it, reading it runs nothing that it names or holds."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.forging import edit_manifest

from search_to_signal.base import plugins
from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.base.processes import command_line
from search_to_signal.base.progress import LINE_LIMIT, one_line
from search_to_signal.base.settings import canonical_sha256
from search_to_signal.cli import main
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.manifest import MANIFEST, run_directories
from search_to_signal.records.reader import STEPS
from search_to_signal.report.results import Results
from search_to_signal.run.profile import load_profile
from search_to_signal.verify.directory import verify

pytestmark = pytest.mark.slow

Make = Callable[..., Path]
# Optional modules that libraries of ours try to import, and some of Python's own.
PLANTED = ("pickle5", "org", "tomllib", "json", "numpy", "megatron", "sitecustomize", "search_to_signal")


def planted(directory: Path) -> Path:
    """Put a module under every tempting name; each leaves a mark when it runs."""
    mark = directory.parent / "ran"
    for name in PLANTED:
        (directory / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n", encoding="utf-8")
    return mark


def reseal(run: Path, condition: str) -> None:
    """Give a run another condition, as somebody who can make checksums would."""
    manifest = msgspec.json.decode((run / MANIFEST).read_bytes())
    manifest["config"]["condition"] = condition
    manifest["config_sha256"] = canonical_sha256(manifest["config"])
    (run / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    (run / "config.json").write_bytes(msgspec.json.encode(manifest["config"]))
    steps = [json.loads(line) | {"mapping": condition} for line in (run / STEPS).read_text().splitlines()]
    (run / STEPS).write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    write_sums(run)


@pytest.mark.parametrize("command", [["verify", "."], ["report", ".", "--out", "../page"], ["trace", "."]])
def test_nothing_runs_from_inside_a_directory(make_run: Make, tmp_path: Path, command: list[str]) -> None:
    run = make_run(tmp_path / "results" / "cohort" / "frozen-s1", "frozen")
    mark = planted(run)
    write_sums(run)
    done = subprocess.run(command_line(*command), cwd=run, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert not mark.exists()


def test_a_condition_is_not_imported(make_run: Make, tmp_path: Path) -> None:
    """A manifest that names an import path is told so, once and not per group; the module stays unloaded."""
    run = make_run(tmp_path / "run", "native")
    reseal(run, "antigravity:x")
    problems = verify(run).problems
    assert sum("'antigravity:x' is third-party code" in problem for problem in problems) == 1
    assert "antigravity" not in sys.modules


PARTS = ("condition", "normalizer", "problem", "host", "learning_rule")


@pytest.mark.parametrize(
    ("command", "key"),
    [
        *(("verify --recompute", key) for key in PARTS[:-1]),
        *((command, key) for command in ("rerun", "retrain") for key in PARTS),
    ],
)
def test_what_python_itself_holds_is_not_called(
    make_run: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, key: str
) -> None:
    """Functions that every process of Python has loaded are called by no directory's word for them."""
    config = msgspec.to_builtins(load_profile("smoke").run("native", 42, groups=4))
    run = make_run(tmp_path / "results" / "native-s42", "native", config=config)
    named = "native+builtins:print" if (key, command) == ("condition", "rerun") else "builtins:print"

    def name(manifest: dict[str, Any]) -> None:
        manifest["config"][key] = named
        manifest["host"] = manifest["config"]["host"]
        if named.startswith("native+"):
            manifest["config"]["normalizer"] = "builtins:print"

    edit_manifest(run, name)
    write_sums(run)
    write_sums(run.parent)
    more = [] if command.startswith("verify") else [run.name, "--out", str(tmp_path / "out")]
    code = main([*command.split(), str(run.parent), *more])
    told = "".join(capfd.readouterr())
    assert code != 0
    assert "'builtins:print' is third-party code" in told


@pytest.mark.parametrize("place", ["a\0b", "../../../../etc", "/etc"])
@pytest.mark.parametrize("command", ["rerun", "retrain"])
def test_a_parent_elsewhere_is_one_line(
    make_run: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, place: str
) -> None:
    """A run that begins where no path leads, or outside, is told before anything runs."""
    config = msgspec.to_builtins(load_profile("smoke").run("native", 42, groups=4))
    config["parent"] = {"run": place, "adapter_sha256": None, "completions_sha256": "0" * 64}
    run = make_run(tmp_path / "results" / "native-s42", "native", config=config)
    code = main([command, str(run.parent), run.name, "--out", str(tmp_path / "out")])
    told = capsys.readouterr().err
    assert (code, told.count("\n")) == (ConfigError.exit_code, 1)
    assert "has no run " in told


def test_a_mapping_that_was_allowed_is_found(make_run: Make, tmp_path: Path, monkeypatch) -> None:
    """After the user named it, a run of somebody's own mapping is checked against that mapping."""
    (tmp_path / "own_rewards.py").write_text(
        "from search_to_signal.credit.mappings import Native\nmine = Native(name='mine')\n", encoding="utf-8"
    )
    run = make_run(tmp_path / "run", "native")
    reseal(run, "own_rewards:mine")
    monkeypatch.chdir(tmp_path)
    assert len(verify(run).problems) >= 1
    plugins.load("own_rewards:mine", {}, "no.such.group")
    monkeypatch.delitem(sys.modules, "own_rewards", raising=False)
    with pytest.raises(ConfigError, match="allow it with --mapping"):
        plugins.find("own_rewards:mine", {}, "no.such.group", "--mapping")
    plugins.load("own_rewards:mine", {}, "no.such.group")
    assert verify(run).problems == ()
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize(
    "text", ["\x1b[2Jgone", "a\nprogress x y", "right\u202eleft", "bell\x07", "x" * 200_000, "\udcff half"]
)
def test_text_from_outside_is_one_short_printable_line(text: str) -> None:
    """Nothing moves a cursor, begins a line or goes on for ever."""
    line = one_line(text)
    assert line.isprintable()
    assert len(line) <= LINE_LIMIT + len(" [...]")


def test_links_and_pipes_are_refused_by_name(make_run: Make, tmp_path: Path) -> None:
    """A run that is only linked is neither pooled nor verified, and whoever reads is told; nothing blocks."""
    results = tmp_path / "results"
    for seed in (1, 2):
        make_run(results / "cohort" / f"frozen-s{seed}", "frozen", seed)
    write_sums(results)
    assert verify(results).problems == ()
    other = make_run(tmp_path / "elsewhere", "frozen", 3)
    (results / "cohort" / "frozen-s3").symlink_to(other)
    os.mkfifo(results / "cohort" / "frozen-s1" / "pipe")
    assert run_directories(results / "cohort") == [results / "cohort" / f"frozen-s{seed}" for seed in (1, 2)]
    for read in (verify, Results):
        with pytest.raises(RunDirectoryError, match=r"pipe is a named pipe.*remove it .and 1 more"):
            read(results)
    os.unlink(results / "cohort" / "frozen-s1" / "pipe")
    with pytest.raises(RunDirectoryError, match="frozen-s3 is a symbolic link"):
        verify(results)


@pytest.mark.parametrize("command", ["verify .", "report . --out ../page", "compare . ."])
def test_folders_within_folders_without_end_are_no_traceback(
    make_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    run = make_run(tmp_path / "results" / "cohort" / "native-s1", "native")
    deep = os.open(run, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=deep)
        deep, above = os.open("d", os.O_RDONLY, dir_fd=deep), deep
        os.close(above)
    os.close(os.open("unlisted", os.O_CREAT | os.O_WRONLY, dir_fd=deep))
    os.close(deep)
    monkeypatch.chdir(run)
    main(command.split())
    monkeypatch.undo()
    # What clears old temporary directories away is as recursive as what is tested.
    subprocess.run(["rm", "-rf", str(run)], check=True)

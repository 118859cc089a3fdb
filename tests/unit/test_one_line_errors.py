"""Bad input and a bad disk end a command with one line and a code of their own, never with a traceback."""

import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from search_to_signal.cli import main
from search_to_signal.errors import ConfigError, ModelFileError
from search_to_signal.generators.files import CHECKSUMS, model_directory
from search_to_signal.provenance.checksums import write_sums
from search_to_signal.provenance.verify import verify
from search_to_signal.records.manifest import MANIFEST
from search_to_signal.runtime import command_line

Make = Callable[..., Path]


def ended(*arguments: str, bytes_per_file: int | None = None, **more: Any) -> tuple[int, str]:
    """Exit code and error output of a command in a process of its own."""

    def limited() -> None:
        if bytes_per_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_per_file, bytes_per_file))

    done = subprocess.run(
        command_line(*arguments), capture_output=True, text=True, preexec_fn=limited, check=False, **more
    )
    return done.returncode, done.stderr


def is_one_line(err: str) -> bool:
    """Whether an error output is one line of ours."""
    return err.startswith("s2s: error: ") and err.count("\n") == 1


CONFIGS: list[dict[str, Any]] = [{}, {"seed": "x"}, {"generation": 3}, {"groups": None}, {"parent": []}]


@pytest.mark.parametrize("changes", CONFIGS, ids=str)
@pytest.mark.parametrize("command", ["verify", "report", "trace", "updates"])
def test_a_manifest_of_no_run_is_named(
    make_run: Make,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    changes: dict[str, Any],
) -> None:
    """A configuration that is empty, or holds other types, is a problem with the name of its file."""
    run = make_run(tmp_path / "cohort" / "native-s1", "native", 1)
    manifest = msgspec.json.decode((run / MANIFEST).read_bytes())
    manifest["config"] = {**manifest["config"], **changes} if changes else {}
    (run / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    write_sums(run)
    if command == "verify":
        assert any(f"{MANIFEST}: config: " in problem for problem in verify(run).problems)
        return
    out = [] if command == "trace" else ["--out", str(tmp_path / "out")]
    place = tmp_path if command == "trace" else tmp_path / "cohort"
    assert main([command, str(place), *out]) != 0
    err = capsys.readouterr().err
    assert is_one_line(err)
    assert f"{MANIFEST}: config: " in err


@pytest.mark.parametrize("command", ["report", "replay", "claims"])
def test_a_full_disk_is_one_line(make_run: Make, tmp_path: Path, command: str) -> None:
    """A file that cannot grow is named by its directory, with what to do."""
    run = make_run(tmp_path / "native-s1", "native", 1)
    given = [] if command == "claims" else [str(run)]
    code, err = ended(command, *given, "--out", str(tmp_path / "out"), bytes_per_file=64)
    assert (code, is_one_line(err)) == (4, True), err
    assert f"cannot write below {tmp_path / 'out'} (File too large): make room, then give the comm" in err


def test_a_directory_that_takes_nothing_is_one_line(
    make_run: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing can be made, path and reason are said."""
    run = make_run(tmp_path / "native-s1", "native", 1)
    (tmp_path / "file").touch()
    for command in ("report", "replay"):
        assert main([command, str(run), "--out", str(tmp_path / "file" / "out")]) == 4
        err = capsys.readouterr().err
        assert is_one_line(err)
        assert f"cannot use {tmp_path / 'file' / 'out'}: Not a directory; check" in err


def test_output_that_nobody_can_take_is_one_line(make_run: Make, tmp_path: Path) -> None:
    """A full disk behind standard output is said once."""
    run = make_run(tmp_path / "native-s1", "native", 1)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command_line("verify", str(run)), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, is_one_line(done.stderr)) == (4, True), done.stderr
    assert "No space left on device" in done.stderr


def test_a_terminal_without_a_character_shows_another(make_run: Make, tmp_path: Path) -> None:
    """In the plain C locale a name with an umlaut ends in the same verdict."""
    results = tmp_path / "läufe"
    make_run(results / "native-s1", "native", 1)
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    plain.pop("PYTHONIOENCODING", None)
    code, err = ended("report", str(results), "--out", str(tmp_path / "seite-ä"), env=plain)
    assert (code, err) == (0, "")
    code, err = ended("verify", str(tmp_path / "nirgendwo-ä"), env=plain)
    assert (code, is_one_line(err)) == (4, True)


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nsys.exit(0)\n",
        "import sys\nclass M:\n    name = 'm'\n"
        "    def __call__(self, groups):\n        sys.exit(0)\nmine = M()\n",
    ],
    ids=["import", "call"],
)
def test_a_mapping_cannot_end_a_replay_in_silence(make_run: Make, tmp_path: Path, text: str) -> None:
    """A mapping that ends the process is named, whenever it tries, and the code is not success."""
    run = make_run(tmp_path / "native-s1", "native", 1)
    (tmp_path / "ending.py").write_text(text)
    arguments = ("replay", str(run), "--mapping", "ending:mine", "--out", str(tmp_path / "out"))
    code, err = ended(*arguments, cwd=tmp_path)
    assert code != 0
    assert is_one_line(err)
    assert "SystemExit" in err


@pytest.mark.parametrize("port", ["99999", "-1"])
def test_a_port_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str], port: str) -> None:
    """Before a model is loaded, with the ports there are."""
    assert main(["serve", "qwen2-2.1m", "--port", port]) == ConfigError.exit_code
    err = capsys.readouterr().err
    assert is_one_line(err)
    assert "from 0 to 65535" in err


def test_results_go_into_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file in the place of a results directory is named and stays as it is."""
    file = tmp_path / "file"
    file.write_text("mine")
    assert main(["run", "--profile", "smoke", "--out", str(file)]) == 4
    assert is_one_line(capsys.readouterr().err)
    assert file.read_text() == "mine"


def _no_directory(model: Path) -> None:
    shutil.rmtree(model)


def _no_list(model: Path) -> None:
    (model / CHECKSUMS).unlink()


def _no_weights(model: Path) -> None:
    (model / "model.safetensors").unlink()


@pytest.mark.parametrize("layer", ["breadth", "audit"])
@pytest.mark.parametrize("damage", [_no_directory, _no_list, _no_weights])
def test_a_later_model_is_looked_for_before_the_first_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layer: str, damage: Callable[[Path], None]
) -> None:
    """A cell whose model is not here ends everything before the cohort writes a byte."""
    model = Path(shutil.copytree(model_directory("qwen2-2.1m"), tmp_path / "other"))
    damage(model)
    conditions = 'conditions = ["frozen"]\n' if layer == "breadth" else ""
    profile = tmp_path / "mine.toml"
    profile.write_text(
        'purpose = "smoke"\nproblem = "tsp"\nsplit = "embedded"\nmodel = "qwen2-2.1m"\n'
        f'conditions = ["frozen"]\nseeds = [1]\ngroups = 1\n[[{layer}]]\nproblem = "cvrp"\n'
        f'split = "embedded"\nmodel = "{model}"\nseeds = [1]\ngroups = 1\n{conditions}'
    )
    out = tmp_path / "out"
    assert main(["run", "--profile", str(profile), "--out", str(out)]) == ModelFileError.exit_code
    err = capsys.readouterr().err
    assert is_one_line(err)
    assert str(model) in err
    assert not out.exists()

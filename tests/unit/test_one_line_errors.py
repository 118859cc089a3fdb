"""Bad input and a bad disk end a command with one line and a code of their own, never with a traceback."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tests.command import Command, Make, Patch
from tests.copies import copy_to_change
from tests.disk import on_a_full_disk
from tests.drawing import COMMAND
from tests.profiles import profile_head

from search_to_signal.base.errors import (
    ConfigError,
    MappingError,
    ModelFileError,
    RunDirectoryError,
    StoppedError,
)
from search_to_signal.base.processes import command_line
from search_to_signal.cli import main
from search_to_signal.models.files import model_directory
from search_to_signal.records.checksums import write_sums
from search_to_signal.records.manifest import MANIFEST
from search_to_signal.run.directory import lock_directory, refuse_occupied
from search_to_signal.run.execution import stoppable
from search_to_signal.verify.directory import verify

pytestmark = pytest.mark.slow


def ended(*arguments: str, **more: Any) -> tuple[int, str]:
    """Exit code and error output of a command in a process of its own."""
    done = subprocess.run(command_line(*arguments), capture_output=True, text=True, check=False, **more)
    return done.returncode, done.stderr


def is_one_line(err: str) -> bool:
    """Whether an error output is one line of ours."""
    return err.startswith("s2s: error: ") and err.count("\n") == 1


@pytest.fixture
def refused(s2s: Command) -> Callable[..., str]:
    """The line with which ``s2s`` with these words ends by this code, whichever that is where it is None."""

    def call(*words: object, code: int | None) -> str:
        said = s2s(*words, code=code)
        assert said.code != 0
        assert is_one_line(said.err), said.err
        return said.err.removesuffix("\n")

    return call


Refused = Callable[..., str]


CONFIGS: list[dict[str, Any]] = [
    *({}, {"seed": "x"}, {"generation": 3}, {"groups": None}, {"parent": []}, {"groups": 10**30}),
    {"groups": 1 << 62},
]


@pytest.mark.parametrize("changes", CONFIGS, ids=str)
@pytest.mark.parametrize("command", ["verify", "report", "trace", "updates"])
def test_a_manifest_of_no_run_is_named(
    make_run: Make, tmp_path: Path, refused: Refused, command: str, changes: dict[str, Any]
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
    given = [tmp_path] if command == "trace" else [tmp_path / "cohort", "--out", tmp_path / "out"]
    assert f"{MANIFEST}: config: " in refused(command, *given, code=None)


@pytest.mark.parametrize("command", ["report", "replay", "claims"])
def test_a_full_disk_is_one_line(make_run: Make, tmp_path: Path, command: str) -> None:
    """A file that cannot grow is named by its directory, with what to do."""
    run = make_run(tmp_path / "native-s1", "native", 1)
    given = [] if command == "claims" else [str(run)]
    done = on_a_full_disk(command, *given, "--out", str(tmp_path / "out"), file_bytes=64)
    assert (done.returncode, is_one_line(done.stderr)) == (4, True), done.stderr
    assert f"cannot write below {tmp_path / 'out'} (File too large): make room, then give" in done.stderr


@pytest.mark.parametrize(
    ("options", "remedy"), [(["--resume"], "give the same command again"), ([], "go on with --resume")]
)
def test_the_advice_on_a_full_disk_fits_the_command(tmp_path: Path, options: list[str], remedy: str) -> None:
    """Who resumed already gives the same command again."""
    out = tmp_path / "out"
    done = on_a_full_disk("run", "--profile", "smoke", "--out", str(out), *options, file_bytes=10)
    assert (done.returncode, is_one_line(done.stderr)) == (4, True), done.stderr
    assert done.stderr.endswith(f"cannot write below {out} (File too large): make room, then {remedy}\n")


def test_a_directory_that_takes_nothing_is_one_line(make_run: Make, tmp_path: Path, refused: Refused) -> None:
    run = make_run(tmp_path / "native-s1", "native", 1)
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "out"
    for command in ("report", "replay"):
        assert f"cannot use {out}: Not a directory; check" in refused(command, run, "--out", out, code=4)


def test_output_that_nobody_can_take_is_one_line(make_run: Make, tmp_path: Path) -> None:
    """A full disk behind standard output is said once."""
    run = make_run(tmp_path / "native-s1", "native", 1)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command_line("verify", str(run)), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, is_one_line(done.stderr)) == (4, True), done.stderr
    assert "No space left on device" in done.stderr


def test_an_error_that_nobody_can_take_keeps_its_exit_code(tmp_path: Path) -> None:
    """A full disk behind standard error, as of a run whose log lies on it, hides no exit code."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command_line("verify", str(tmp_path / "nowhere")), stderr=full, check=False)
    assert done.returncode == RunDirectoryError.exit_code


def test_a_terminal_without_a_character_shows_another(make_run: Make, tmp_path: Path) -> None:
    """In the plain C locale a name with an umlaut ends in the same verdict."""
    results = tmp_path / "läufe"
    make_run(results / "native-s1", "native", 1)
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    plain.pop("PYTHONIOENCODING", None)
    undrawn = [sys.executable, "-c", COMMAND.replace("NAMES", "()"), "report", str(results)]
    undrawn += ["--out", str(tmp_path / "seite-ä")]
    done = subprocess.run(undrawn, capture_output=True, text=True, check=False, env=plain)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "seite-ä" / "report.html").is_file()
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
def test_a_port_that_cannot_be_is_refused(refused: Refused, port: str) -> None:
    line = refused("serve", "qwen2-2.1m", "--port", port, code=ConfigError.exit_code)
    assert "from 0 to 65535" in line


def test_a_file_in_the_place_of_results_stays(tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    refused("run", "--profile", "smoke", "--out", file, code=4)
    assert file.read_text() == "mine"


@pytest.mark.parametrize("place", ["/proc/results", "file/results"])
def test_a_place_that_cannot_be_made_is_named(
    tmp_path: Path, refused: Refused, monkeypatch: Patch, place: str
) -> None:
    """Before anything runs, with the reason and the option to change."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    line = refused("run", "--profile", "smoke", "--out", place, code=4)
    assert f"cannot write to {place} (" in line
    assert "give another --out" in line
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def read_only(*_: object, **__: object) -> None:
    """What the system says of a file below a mount that takes none."""
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


@pytest.mark.parametrize(
    ("options", "begun", "remedy"),
    [
        (("--resume",), True, "make it writable, or copy it and go on in the copy"),
        (("--resume",), False, "give another --out"),
        ((), True, "give another --out"),
    ],
)
def test_a_read_only_place_says_what_helps_there(
    tmp_path: Path, refused: Refused, monkeypatch: Patch, options: tuple[str, ...], begun: bool, remedy: str
) -> None:
    """Only a new run can go elsewhere: what was begun goes on where it lies, or in a copy of it."""
    place = tmp_path / "results"
    place.mkdir()
    if begun:
        (place / "cohort").mkdir()
    monkeypatch.setattr("search_to_signal.layers.reproduction.TemporaryFile", read_only)
    line = refused("run", "--profile", "smoke", "--out", place, *options, code=4)
    assert line == f"s2s: error: cannot write to {place} (Read-only file system): {remedy}"


def test_a_read_only_recording_goes_on_in_a_copy(
    tmp_path: Path, refused: Refused, monkeypatch: Patch
) -> None:
    """Recording always goes on with what was begun."""
    (tmp_path / "main" / "cohort").mkdir(parents=True)
    monkeypatch.setattr("search_to_signal.layers.reproduction.TemporaryFile", read_only)
    line = refused("record", "--out", tmp_path, "--study", "main", code=4)
    assert line.endswith("(Read-only file system): make it writable, or copy it and go on in the copy")


RETURNED = {
    "a bare array": ("np.zeros(batch.outcome.shape)", "return rewards.Rewards"),
    "an error": ("1 / 0", "ZeroDivisionError"),
    "not a number": (
        "Rewards({'a': np.zeros(batch.outcome.shape)}, np.full(batch.outcome.shape, np.nan))",
        "NaN or infinite",
    ),
    "no components": ("Rewards({}, np.zeros(batch.outcome.shape))", "no components"),
    "words": ("Rewards({'a': np.full(batch.outcome.shape, 'x')}, np.zeros(batch.outcome.shape))", "numbers"),
    "unnamed components": ("Rewards(np.zeros(3), np.zeros(batch.outcome.shape))", "by name"),
}


@pytest.mark.parametrize("returned", RETURNED)
def test_what_a_mapping_may_not_return_is_one_line(
    make_run: Make, tmp_path: Path, monkeypatch: Patch, refused: Refused, returned: str
) -> None:
    run = make_run(tmp_path / "native-s1", "native", 1)
    expression, said = RETURNED[returned]
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom search_to_signal.credit import Rewards\nclass M:\n    name = 'm'\n"
        f"    def __call__(self, batch):\n        return {expression}\nmine = M()\n"
    )
    monkeypatch.chdir(tmp_path)
    line = refused(
        *("replay", run, "--mapping", "mine:mine", "--out", tmp_path / "out"), code=MappingError.exit_code
    )
    del sys.modules["mine"]
    assert "mapping m" in line
    assert said in line


PROFILE = profile_head("frozen", groups=1)
KEYS = {
    "missing": (PROFILE.replace("groups = 1\n", ""), "`groups`; add that key"),
    "unknown": (PROFILE + "gruops = 1\n", "`gruops`; correct its name, or remove it"),
    "of another type": (PROFILE.replace("groups = 1", "groups = 'x'"), "$.groups`; correct that value"),
    "out of range": (PROFILE + "[learner]\nlearning_rate = -1.0\n", "learning_rate is -1.0: give a number"),
}


@pytest.mark.parametrize("key", KEYS)
def test_what_to_do_with_a_key_fits_it(tmp_path: Path, refused: Refused, key: str) -> None:
    text, said = KEYS[key]
    profile = tmp_path / "mine.toml"
    profile.write_text(text)
    line = refused("run", "--profile", profile, "--out", tmp_path / "out", code=ConfigError.exit_code)
    assert said in line


def test_a_cluster_that_is_not_there_is_refused_at_once(tmp_path: Path, refused: Refused) -> None:
    """Where nothing listens, Ray is not left to try for minutes."""
    (tmp_path / "mine.toml").write_text(PROFILE + "[generation]\nmax_prompt_tokens = 1024\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = ["--profile", tmp_path / "mine.toml", "--out", tmp_path / "out", "--ray", address]
    before = time.monotonic()
    line = refused("run", *options, code=ConfigError.exit_code)
    assert time.monotonic() - before < 60.0
    assert f"no Ray cluster at {address} (Connection refused)" in line


def test_a_file_that_cannot_be_read_is_named_without_numbers(make_run: Make, tmp_path: Path) -> None:
    """A directory where a record file should be: path and reason, no errno."""
    run = make_run(tmp_path / "native-s1", "native", 1)
    (run / "steps.jsonl").unlink()
    (run / "steps.jsonl").mkdir()
    problems = "\n".join(verify(run).problems)
    assert f"{run / 'steps.jsonl'} is a directory: only regular files are read" in problems
    assert "Errno" not in problems


def test_the_paper_profile_says_where_its_models_go(tmp_path: Path, refused: Refused) -> None:
    """Without weights the directory is named, with the command that fills it."""
    line = refused("run", "--profile", "paper", "--out", tmp_path / "out", code=ModelFileError.exit_code)
    assert f"no model in {Path('mounts/Qwen2.5-7B-Instruct').absolute()}: " in line
    assert "s2s model fetch Qwen2.5-7B-Instruct" in line
    assert "mount" in line


@pytest.mark.parametrize(("resume", "said"), [(True, "the same command to go on"), (False, "with --resume")])
def test_the_advice_after_a_stop_fits_the_command(resume: bool, said: str) -> None:
    """Who resumed already gives the same command again."""
    with pytest.raises(StoppedError, match=said), stoppable(resume):
        raise KeyboardInterrupt


def _no_directory(model: Path) -> None:
    shutil.rmtree(model)


def _no_weights(model: Path) -> None:
    (model / "model.safetensors").unlink()


def _no_template(model: Path) -> None:
    settings = json.loads((model / "tokenizer_config.json").read_bytes())
    del settings["chat_template"]
    (model / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize("layer", ["breadth", "audit"])
@pytest.mark.parametrize("damage", [_no_directory, _no_weights, _no_template])
def test_a_later_model_is_looked_for_before_the_first_run(
    tmp_path: Path, refused: Refused, layer: str, damage: Callable[[Path], None]
) -> None:
    """A cell whose model is not here ends everything before the cohort writes a byte."""
    model = copy_to_change(model_directory("qwen2-2.1m"), tmp_path / "other")
    damage(model)
    conditions = 'conditions = ["frozen"]\n' if layer == "breadth" else ""
    profile = tmp_path / "mine.toml"
    profile.write_text(
        f'{PROFILE}[[{layer}]]\nproblem = "cvrp"\n'
        f'split = "embedded"\nmodel = "{model}"\nseeds = [1]\ngroups = 1\n{conditions}'
    )
    out = tmp_path / "out"
    line = refused("run", "--profile", profile, "--out", out, code=ModelFileError.exit_code)
    assert str(model) in line
    assert not out.exists()


def test_a_directory_in_use_is_not_told_to_be_moved(make_run: Make, tmp_path: Path) -> None:
    """Moving it away would harm the run that is being written there."""
    run = make_run(tmp_path / "native-s1", "native")
    with lock_directory(run), pytest.raises(RunDirectoryError, match="another process is writing"):
        refuse_occupied(run, resume=False)
    with pytest.raises(RunDirectoryError):
        refuse_occupied(run, resume=False)


def test_a_replay_of_nothing(tmp_path: Path, refused: Refused) -> None:
    line = refused("replay", tmp_path / "nowhere", "--out", tmp_path / "out", code=4)
    assert "there is no directory" in line


def test_a_report_is_not_replaced_by_a_poorer_one(make_run: Make, tmp_path: Path, refused: Refused) -> None:
    """Without the code of somebody's own some tables cannot be made: nothing is written over the others."""
    make_run(tmp_path / "cohort" / "frozen-s42", "frozen")
    make_run(tmp_path / "cohort" / "native-s42", "native", config={"condition": "nowhere:mine"})
    assert "allow it with --mapping nowhere:mine; or give --out" in refused("report", tmp_path, code=2)
    assert not (tmp_path / "report").exists()
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "other")]) == 0


def test_a_served_model_without_a_card_is_told_of_the_option(monkeypatch: Patch, refused: Refused) -> None:
    """The device was given by an option: there is no file to edit."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    line = refused("serve", "qwen2-2.1m", "--device", "cuda", code=ConfigError.exit_code)
    assert "--device cuda asks for an NVIDIA card" in line
    assert line.endswith("give --device cpu")


@pytest.mark.parametrize(
    ("dtype", "remedy"),
    [("float32", "give --dtype bfloat16, or --device cpu"), ("bfloat16", "give --device cpu")],
)
def test_a_served_model_too_large_for_the_card_is_told_of_the_options(
    monkeypatch: Patch, refused: Refused, dtype: str, remedy: str
) -> None:
    """What needs less memory is an option of the command, and none that is given already."""

    def load_model(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("search_to_signal.models.local.prepare_device", lambda device: None)
    monkeypatch.setattr("search_to_signal.models.local.load_model", load_model)
    command = ["serve", "qwen2-2.1m", "--device", "cuda", "--dtype", dtype]
    line = refused(*command, code=ConfigError.exit_code)
    assert "too little free memory" in line
    assert line.endswith(f"end what else runs on it, or {remedy}")

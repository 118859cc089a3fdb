"""What reproduce.sh says and does: of the released host, of signals, of places and of its arguments."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
S2S = """#!/bin/sh
case $1 in
    conformance) exit {code} ;;
    run) touch "{out}/record" && cd "{out}" && sha256sum record >SHA256SUMS ;;
esac
"""

STOPPABLE = """#!/bin/bash
trap 'echo ended in order; exit 130' TERM
echo begun
for _ in {1..200}; do sleep 0.1; done
"""

# What the script does late, as on a busy machine: setting its trap, when the signal is there;
# or looking after a signal, when the command has ended already.
SLOW = "set -T; trap '[[ $BASH_COMMAND != {} ]] || sleep 0.5' DEBUG"


def checkout(root: Path, s2s: str) -> Path:
    """The script alone, with the profile ``paper`` and a stand-in for the program; returns the script."""
    command = root / ".venv" / "bin" / "s2s"
    command.parent.mkdir(parents=True)
    command.write_text(s2s)
    command.chmod(0o755)
    (root / "artifact" / "profiles").mkdir(parents=True)
    (root / "artifact" / "profiles" / "paper.toml").touch()
    return Path(shutil.copy(ROOT / "reproduce.sh", root))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "the released host does what ours does"),
        (1, "the released host differs from ours"),
        (11, "nothing in the released host differs, but not everything was compared"),
        (12, "the released host was not compared (exit code 12)"),
    ],
)
def test_what_the_comparison_found(tmp_path: Path, code: int, said: str) -> None:
    out = tmp_path / "results"
    script = checkout(tmp_path, S2S.format(code=code, out=out))
    environment = {"PATH": "/usr/bin:/bin", "S2S_IMAGE": "1", "S2S_CALM": "calm", "S2S_RESULTS": str(out)}
    done = subprocess.run(["bash", script, "paper"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.removeprefix("s2s: ") for line in done.stdout.splitlines() if "host" in line]
    assert len(lines) == 1
    assert lines[0].startswith(said)


def test_what_is_missing_is_told_before_the_comparison(tmp_path: Path) -> None:
    s2s = f"""#!/bin/sh
case "$*" in
    conformance*) touch "{tmp_path}/compared" ;;
    *--dry-run*) exit 3 ;;
esac
"""
    script = checkout(tmp_path, s2s)
    environment = {"PATH": "/usr/bin:/bin", "S2S_IMAGE": "1", "S2S_CALM": "calm"}
    environment["S2S_RESULTS"] = str(tmp_path / "results")
    done = subprocess.run(["bash", script, "paper"], env=environment, capture_output=True, text=True)
    assert done.returncode == 3
    assert not (tmp_path / "compared").exists()


@pytest.mark.parametrize(("late", "pause"), [("trap*kill*", 0.0), ("code=[!0]*", 0.5)])
def test_a_signal_reaches_what_runs_in_the_image(tmp_path: Path, late: str, pause: float) -> None:
    """Whoever stops a container stops the run in it, which ends in order; its exit code is the script's."""
    script = checkout(tmp_path, STOPPABLE)
    environment = {"PATH": "/usr/bin:/bin", "S2S_IMAGE": "1", "S2S_RESULTS": str(tmp_path / "results")}
    (tmp_path / "late").write_text(SLOW.format(late))
    environment["BASH_ENV"] = str(tmp_path / "late")
    with subprocess.Popen(["bash", script, "paper"], env=environment, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        while running.stdout.readline() not in (b"begun\n", b""):
            pass
        time.sleep(pause)
        running.terminate()
        assert (running.stdout.read(), running.wait(20)) == (b"ended in order\n", 130)


def test_a_place_that_cannot_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "results").touch()
    script = checkout(tmp_path, "#!/bin/sh\ntouch started\n")
    environment = {"PATH": "/usr/bin:/bin", "S2S_IMAGE": "1", "S2S_RESULTS": str(tmp_path / "results")}
    done = subprocess.run(["bash", script, "paper"], env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "results cannot be written: let user" in done.stdout
    assert not (tmp_path / "started").exists()


def test_more_than_one_argument_is_refused(tmp_path: Path) -> None:
    """What would be ignored is named, before anything is set up."""
    shutil.copy(ROOT / "reproduce.sh", tmp_path)
    done = subprocess.run(
        ["bash", tmp_path / "reproduce.sh", "smoke", "--out", "mine"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "'--out mine'" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reproduce.sh"]


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(("card", "installed"), [(False, None), (True, "--extra gpu")])
def test_engines_are_installed_where_there_is_a_card(
    tmp_path: Path, card: bool, installed: str | None
) -> None:
    """The profile's extra stays installed, which uv would take away; without a card nothing is installed."""
    out = tmp_path / "results"
    script = checkout(tmp_path, S2S.format(code=0, out=out))
    shutil.copy(ROOT / "artifact" / "profiles" / "paper.toml", tmp_path / "artifact" / "profiles")
    program(tmp_path / ".uv" / "bin" / "uv", f'echo "$@" >{tmp_path}/asked')
    program(tmp_path / ".venv" / "bin" / "python", "")
    program(tmp_path / "bin" / "nvidia-smi", f"exit {0 if card else 9}")
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "S2S_RESULTS": str(out)}
    done = subprocess.run(["bash", script, "paper"], env=environment, capture_output=True, text=True)
    if installed is None:
        assert done.returncode == 2
        assert "needs an NVIDIA card" in done.stdout
        assert not (tmp_path / "asked").exists()
        assert not out.exists()
    else:
        assert done.returncode == 0, done.stdout
        assert (tmp_path / "asked").read_text().strip().endswith(installed)

"""The sources of the image and reproduce.sh: clean, pinned, agreed, and what the script says."""

import fnmatch
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
SCRIPTS = sorted(
    path
    for path in (ROOT / "reproduce.sh", ROOT / ".ci" / "run", *ROOT.glob("[!.]*/**/*.sh"))
    if "results" not in path.parts
)
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PIN = ROOT / "artifact" / "calm" / "pin.toml"
FETCH = ROOT / "artifact" / "calm" / "fetch.sh"
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="the image has no git")


def git(directory: Path, *arguments: str) -> str:
    """Output of git in a directory."""
    who = ("-c", "user.name=tests", "-c", "user.email=tests@example.invalid")
    return subprocess.check_output(["git", "-C", str(directory), *who, *arguments], text=True).strip()


def test_dockerfile_is_clean() -> None:
    done = subprocess.run([BIN / "hadolint", ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_shell_scripts_are_clean(script: Path) -> None:
    done = subprocess.run([BIN / "shellcheck", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_one_uv_and_one_revision_everywhere() -> None:
    in_image = re.search(r"astral-sh/uv:([\d.]+)@", DOCKERFILE)
    in_script = re.search(r"^UV_VERSION=([\d.]+)$", (ROOT / "reproduce.sh").read_text(), re.MULTILINE)
    assert in_image is not None
    assert in_script is not None
    assert in_image.group(1) == in_script.group(1)
    pinned = re.search(r'^revision = "([0-9a-f]+)"$', PIN.read_text(), re.MULTILINE)
    labelled = re.search(r'calm\.revision="([0-9a-f]+)"', DOCKERFILE)
    assert pinned is not None
    assert labelled is not None
    assert pinned.group(1) == labelled.group(1)
    defaults = dict(re.findall(r"^ARG (BASE|UV)=(\S+)$", DOCKERFILE, re.MULTILINE))
    assert set(defaults) == {"BASE", "UV"}
    for image in defaults.values():
        assert re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", image), image
    sources = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    stages = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE)
    assert set(sources) <= {"${BASE}", "${UV}", "${CALM}", *stages}
    assert "syntax=" not in DOCKERFILE


@needs_git
def test_every_tracked_file_reaches_the_image() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    names = {name.split("/")[0] for name in git(ROOT, "ls-files").splitlines()}
    assert [name for name in names if not any(fnmatch.fnmatch(name, rule) for rule in allowed)] == []


@pytest.fixture
def pinned(tmp_path: Path) -> tuple[Path, Path, str]:
    """A repository with two commits, a pin of the first, and its hash."""
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet")
    (repository / "LICENSE").write_text("terms\n")
    (repository / "main.py").write_text("one = 1\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "first")
    first = git(repository, "rev-parse", "HEAD")
    (repository / "main.py").write_text("two = 2\n")
    git(repository, "commit", "--quiet", "--all", "--message", "second")
    pin = tmp_path / "pin.toml"
    pin.write_text(f'url = "{repository}"\nrevision = "{first[:12]}"\n')
    return pin, repository, first


def fetch(pin: Path, to: Path) -> "subprocess.CompletedProcess[str]":
    """Run the script that the image is built with."""
    return subprocess.run(["bash", FETCH, pin, to], capture_output=True, text=True)


@needs_git
def test_fetch_takes_the_pinned_commit(pinned: tuple[Path, Path, str], tmp_path: Path) -> None:
    pin, _, first = pinned
    to = tmp_path / "calm"
    assert fetch(pin, to).returncode == 0
    assert (to / "source" / "main.py").read_text() == "one = 1\n"
    assert not (to / "source" / ".git").exists()
    assert (to / "REVISION").read_text() == f"{first}\n"
    assert subprocess.call(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=to) == 0
    assert len((to / "SHA256SUMS").read_text().splitlines()) == 2
    assert "source/LICENSE" in (to / "NOTICE").read_text()


@needs_git
def test_fetch_refuses_another_revision(pinned: tuple[Path, Path, str], tmp_path: Path) -> None:
    pin, repository, _ = pinned
    git(repository, "branch", "0123456789ab")
    pin.write_text(f'url = "{repository}"\nrevision = "0123456789ab"\n')
    done = fetch(pin, tmp_path / "calm")
    assert done.returncode == 1
    assert "holds no commit 0123456789ab" in done.stderr


def test_the_container_script_names_all_that_it_lacks(tmp_path: Path) -> None:
    script = ROOT / "tests" / "container" / "run.sh"
    call = [shutil.which("bash") or "bash", str(script), str(tmp_path / "work")]
    done = subprocess.run(
        call, capture_output=True, text=True, env={"PATH": str(tmp_path), "DOCKER": "docker"}
    )
    assert (done.returncode, done.stderr) == (2, "")
    tools = re.findall(r"for tool in (.*);", script.read_text(encoding="utf-8"))[0].replace(
        '"$engine"', "docker"
    )
    assert f"missing {tools}:" in done.stdout
    assert not (tmp_path / "work").exists()


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

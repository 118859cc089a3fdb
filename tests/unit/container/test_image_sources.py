"""The sources of the image are clean, pinned, and agree. Building it takes tests/container/run.sh."""

import fnmatch
import re
import shutil
import subprocess
import sys
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

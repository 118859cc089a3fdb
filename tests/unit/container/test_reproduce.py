"""What reproduce.sh says of the released host before a paper run, by the exit code of the comparison."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
S2S = """#!/bin/sh
case $1 in
    conformance) exit {code} ;;
    run) touch "{out}/record" && cd "{out}" && sha256sum record >SHA256SUMS ;;
esac
"""


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
    """Agreement, a difference, a gap and a refusal are told apart, and the run goes on after each."""
    out, command = tmp_path / "results", tmp_path / ".venv" / "bin" / "s2s"
    command.parent.mkdir(parents=True)
    command.write_text(S2S.format(code=code, out=out))
    command.chmod(0o755)
    (tmp_path / "artifact" / "profiles").mkdir(parents=True)
    (tmp_path / "artifact" / "profiles" / "paper.toml").touch()
    shutil.copy(ROOT / "reproduce.sh", tmp_path)
    environment = {"PATH": "/usr/bin:/bin", "S2S_IMAGE": "1", "S2S_CALM": "calm", "S2S_RESULTS": str(out)}
    done = subprocess.run(
        ["bash", tmp_path / "reproduce.sh", "paper"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = [line.removeprefix("s2s: ") for line in done.stdout.splitlines() if "host" in line]
    assert len(lines) == 1
    assert lines[0].startswith(said)


def test_more_than_one_argument_is_refused(tmp_path: Path) -> None:
    """What would be ignored is named, before anything is set up."""
    shutil.copy(ROOT / "reproduce.sh", tmp_path)
    done = subprocess.run(
        ["bash", tmp_path / "reproduce.sh", "smoke", "--out", "mine"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "'--out mine'" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reproduce.sh"]

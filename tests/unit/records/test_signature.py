"""A signature says who vouches for a list: the right key on the right list passes, all else is one line."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from tests.command import Capture, Command, Make, Patch
from tests.disk import on_a_full_disk

from search_to_signal.base.errors import SignatureError
from search_to_signal.cli import main
from search_to_signal.records.checksums import SIGNATURE, write_sums
from search_to_signal.verify import SIGNATURE as LEVEL
from search_to_signal.verify import VERIFY, promise
from search_to_signal.verify.directory import sign, signer, verify

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")


def key(directory: Path, name: str) -> Path:
    """A fresh key without a passphrase."""
    path = directory / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)], check=True)
    return path


def allowed(directory: Path, **keys: Path) -> Path:
    path = directory / "allowed_signers"
    lines = (f"{name}@example.org {file.with_suffix('.pub').read_text()}" for name, file in keys.items())
    path.write_text("".join(lines))
    return path


@pytest.fixture
def run(make_run: Make, tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def test_a_signed_list_names_its_signer(run: Path, tmp_path: Path, s2s: Command) -> None:
    mine = key(tmp_path, "mine")
    signers = allowed(tmp_path, me=mine)
    s2s("seal", "--sign", mine, run)
    assert (run / SIGNATURE).is_file()
    assert verify(run).problems == ()
    assert signer(run, signers) == signer(run, signers, "me@example.org") == "me@example.org"
    out = s2s("verify", run, "--signer", signers).out.splitlines()
    assert out[0] == "signed by me@example.org"
    assert out[-2:] == [promise(VERIFY), promise(LEVEL)]


def test_lists_made_again_are_the_same_list_and_another_is_refused(run: Path, tmp_path: Path) -> None:
    mine = key(tmp_path, "mine")
    sign(run, mine)
    write_sums(run)
    assert signer(run, allowed(tmp_path, me=mine)) == "me@example.org"
    # Whoever changes a file and makes the list again keeps a signature that no longer fits.
    (run / "note.txt").write_text("one more file\n")
    write_sums(run)
    with pytest.raises(SignatureError, match="me@example.org"):
        signer(run, allowed(tmp_path, me=mine))


def test_keys_of_others_are_refused(run: Path, tmp_path: Path) -> None:
    mine, theirs = key(tmp_path, "mine"), key(tmp_path, "theirs")
    sign(run, theirs)
    with pytest.raises(SignatureError):
        signer(run, allowed(tmp_path, me=mine))
    signers = allowed(tmp_path, me=mine, them=theirs)
    assert signer(run, signers) == "them@example.org"
    with pytest.raises(SignatureError, match="me@example.org"):
        signer(run, signers, "me@example.org")


def test_a_signature_for_another_purpose_is_refused(run: Path, tmp_path: Path) -> None:
    mine = key(tmp_path, "mine")
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", str(mine), str(run / "SHA256SUMS")],
        check=True,
        capture_output=True,
    )
    with pytest.raises(SignatureError):
        signer(run, allowed(tmp_path, me=mine))


def test_allowed_signers_come_from_outside(run: Path, tmp_path: Path) -> None:
    """A directory cannot bring its own list of whom to trust."""
    mine = key(tmp_path, "mine")
    sign(run, mine)
    with pytest.raises(SignatureError):
        signer(run, Path(shutil.move(allowed(tmp_path, me=mine), run / "allowed_signers")))


@pytest.mark.parametrize(
    "what", ["no signature", "no signers", "no key", "no private key", "spoiled", "no program"]
)
def test_what_is_missing_is_one_line(
    run: Path, tmp_path: Path, what: str, monkeypatch: Patch, s2s: Command
) -> None:
    mine = key(tmp_path, "mine")
    signers = allowed(tmp_path, me=mine)
    commands = {
        "no signature": ["verify", str(run), "--signer", str(signers)],
        "no signers": ["verify", str(run), "--signer", str(tmp_path / "nobody")],
        "no key": ["seal", str(run), "--sign", str(tmp_path / "nokey")],
        "no private key": ["seal", str(run), "--sign", str(signers)],
        "spoiled": ["seal", str(run), "--sign", str(mine)],
        "no program": ["seal", str(run), "--sign", str(mine)],
    }
    if what == "spoiled":
        (run / "steps.jsonl").write_text("")
    if what == "no program":
        monkeypatch.setenv("PATH", str(tmp_path))
    said = s2s(*commands[what], code=SignatureError.exit_code)
    out, err = said.out, said.err
    assert (out, err.count("\n"), err.startswith("s2s: error: ")) == ("", 1, True)
    assert not (run / SIGNATURE).exists()


def test_a_signature_of_megabytes_is_refused_at_once(run: Path, tmp_path: Path, capsys: Capture) -> None:
    """ssh-keygen would read in it for hours."""
    signers = allowed(tmp_path, me=key(tmp_path, "mine"))
    with (run / SIGNATURE).open("wb") as file:
        file.truncate(200 << 20)
    began = time.monotonic()
    assert main(["verify", str(run), "--signer", str(signers)]) == SignatureError.exit_code
    assert "SHA256SUMS.sig is not a signature: it has more than 65536 bytes" in capsys.readouterr().err
    assert time.monotonic() - began < 30.0


@pytest.mark.slow
def test_a_disk_that_is_full_leaves_no_half_signature(run: Path, tmp_path: Path) -> None:
    mine = key(tmp_path, "mine")
    done = on_a_full_disk("seal", "--sign", str(mine), str(run), file_bytes=50)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "make room, then give the command again" in done.stderr
    assert [path.name for path in run.glob("SHA256SUMS*")] == ["SHA256SUMS"]

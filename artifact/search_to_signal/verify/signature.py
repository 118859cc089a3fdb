"""Signatures of results directories: an SSH signature over the checksum list, by OpenSSH."""

import subprocess
from pathlib import Path

from search_to_signal.base.errors import SignatureError
from search_to_signal.base.progress import one_line
from search_to_signal.records.checksums import SIGNATURE, SUMS, sum_problems
from search_to_signal.records.files import (
    read_regular,
    refuse_special_files,
    storage_errors,
    write_atomically,
)

# Signatures of other namespaces are invalid here.
NAMESPACE = "search-to-signal"
_SHOWN_LENGTH = 300
# ssh-keygen takes hours for megabytes; a signature has some hundred bytes, one of RSA some kilobytes.
_LARGEST_SIGNATURE = 1 << 16


def sign(directory: Path, key: Path) -> Path:
    """Sign a directory's SHA256SUMS with a private SSH key, or the public one of a key in an SSH agent.

    Returns the signature's path. Raises SignatureError when a file differs from the list, the key cannot sign
    or ssh-keygen is missing, and RunDirectoryError where there is no list.
    """
    refuse_special_files(directory)
    if problems := sum_problems(directory):
        name, what = next(iter(problems.items()))
        raise SignatureError(f"{directory} is not what its {SUMS} says ({name}: {what}): nothing was signed")
    if not key.is_file():
        raise SignatureError(f"there is no key {key}: make one with ssh-keygen -t ed25519 -f {key}")
    content = read_regular(directory / SUMS)
    signed = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, standard_input=content)
    if signed.returncode != 0:
        raise SignatureError(f"ssh-keygen cannot sign with {key}: {_output(signed)}")
    with storage_errors(directory, "give the command again"):
        write_atomically(directory / SIGNATURE, signed.stdout)
    return directory / SIGNATURE


def signer(directory: Path, signers: Path, identity: str | None = None) -> str:
    """Return the name of the key that signed a directory's SHA256SUMS, by a file of allowed signers.

    With ``identity`` it has to be that name. Raises SignatureError when the signature is missing, belongs to
    another list or comes from a key that the file does not list, and when ssh-keygen is missing.
    """
    signature, listing = directory / SIGNATURE, directory / SUMS
    for path in (listing, signature, signers):
        if not path.is_file() or (path.is_symlink() and path != signers):
            raise SignatureError(f"there is no file {path}: without it no signature can be checked")
    if signature.stat().st_size > _LARGEST_SIGNATURE:
        raise SignatureError(f"{signature} is not a signature: it has more than {_LARGEST_SIGNATURE} bytes")
    if signers.resolve().is_relative_to(directory.resolve()):
        raise SignatureError(f"{signers} is inside the directory that was signed: use a list of your own")
    name = identity or _principal(signature, signers)
    arguments = ("-f", str(signers), "-I", name, "-n", NAMESPACE, "-s", str(signature))
    checked = _ssh_keygen("verify", *arguments, standard_input=read_regular(listing))
    if checked.returncode != 0:
        raise SignatureError(
            f"{signature} is no signature of {name} on this {SUMS} ({_output(checked)}): list, signature or "
            "signer is another one"
        )
    return name


def _principal(signature: Path, signers: Path) -> str:
    listed = _ssh_keygen("find-principals", "-f", str(signers), "-s", str(signature))
    names = listed.stdout.decode(errors="replace").splitlines()
    if listed.returncode != 0 or not names:
        raise SignatureError(f"{signature} is by no key that {signers} lists ({_output(listed)})")
    return names[0]


def _ssh_keygen(
    action: str, *arguments: str, standard_input: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    command = ["ssh-keygen", "-Y", action, *arguments]
    try:
        return subprocess.run(command, input=standard_input, capture_output=True, check=False)
    except OSError as error:
        raise SignatureError(f"ssh-keygen cannot be run ({error}): install OpenSSH 8.2 or newer") from error


def _output(ended: "subprocess.CompletedProcess[bytes]") -> str:
    text = one_line((ended.stderr + ended.stdout).decode(errors="replace"), _SHOWN_LENGTH)
    return text or f"code {ended.returncode}"

"""Who vouches for a results directory: an SSH signature over its checksum list, by OpenSSH."""

import subprocess
from pathlib import Path

from search_to_signal.errors import SignatureError
from search_to_signal.progress import one_line
from search_to_signal.provenance.checksums import SIGNATURE, SUMS, sum_problems
from search_to_signal.records.files import refuse_special_files, storage_errors, write_atomically

# A signature made for another purpose does not count for this one.
NAMESPACE = "search-to-signal"
_TOLD = 300
# ssh-keygen takes hours for a signature of megabytes; one has some hundred bytes, or kilobytes of RSA.
_LARGEST = 1 << 16


def sign(directory: Path, key: Path) -> Path:
    """Sign a directory's SHA256SUMS with a private SSH key, or a public one whose other half an agent holds.

    Returns the signature's path. Raises SignatureError when the list does not hold, the key is of no use or
    ssh-keygen is missing, and RunDirectoryError where there is no list.
    """
    refuse_special_files(directory)
    if problems := sum_problems(directory):
        name, what = next(iter(problems.items()))
        raise SignatureError(f"{directory} is not what its {SUMS} says ({name}: {what}): nothing was signed")
    if not key.is_file():
        raise SignatureError(f"there is no key {key}: make one with ssh-keygen -t ed25519 -f {key}")
    made = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, said=(directory / SUMS).read_bytes())
    if made.returncode != 0:
        raise SignatureError(f"ssh-keygen cannot sign with {key}: {_told(made)}")
    with storage_errors(directory, "give the command again"):
        write_atomically(directory / SIGNATURE, made.stdout)
    return directory / SIGNATURE


def signer(directory: Path, signers: Path, identity: str | None = None) -> str:
    """The name under which a file of allowed signers lists the key that signed a directory's SHA256SUMS.

    With ``identity`` it has to be that name. Raises SignatureError when the signature is missing, of another
    list, or by nobody whom the file allows, and when ssh-keygen is missing.
    """
    signature, listing = directory / SIGNATURE, directory / SUMS
    for path in (listing, signature, signers):
        if not path.is_file() or (path.is_symlink() and path != signers):
            raise SignatureError(f"there is no file {path}: without it no signature can be checked")
    if signature.stat().st_size > _LARGEST:
        raise SignatureError(f"{signature} is no signature: it has more than {_LARGEST} bytes")
    if signers.resolve().is_relative_to(directory.resolve()):
        raise SignatureError(
            f"{signers} lies in the directory that it should vouch for: use a list of your own"
        )
    name = identity or _principal(signature, signers)
    arguments = ("-f", str(signers), "-I", name, "-n", NAMESPACE, "-s", str(signature))
    checked = _ssh_keygen("verify", *arguments, said=listing.read_bytes())
    if checked.returncode != 0:
        raise SignatureError(
            f"{signature} is no signature of {name} on this {SUMS} ({_told(checked)}): list, signature or "
            "signer is another one"
        )
    return name


def _principal(signature: Path, signers: Path) -> str:
    found = _ssh_keygen("find-principals", "-f", str(signers), "-s", str(signature))
    names = found.stdout.decode(errors="replace").splitlines()
    if found.returncode != 0 or not names:
        raise SignatureError(f"{signature} is by no key that {signers} lists ({_told(found)})")
    return names[0]


def _ssh_keygen(action: str, *arguments: str, said: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", action, *arguments], input=said, capture_output=True, check=False
        )
    except OSError as error:
        raise SignatureError(f"ssh-keygen cannot be run ({error}): install OpenSSH 8.2 or newer") from error


def _told(ended: "subprocess.CompletedProcess[bytes]") -> str:
    return (
        one_line((ended.stderr + ended.stdout).decode(errors="replace"), _TOLD) or f"code {ended.returncode}"
    )

"""SHA256SUMS in plain GNU form: what ``sha256sum -c --strict`` accepts and checks."""

import hashlib
from pathlib import Path

from search_to_signal.errors import RunDirectoryError
from search_to_signal.records.files import TEMPORARY, write_atomically

SUMS = "SHA256SUMS"


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def listed_files(directory: Path) -> list[Path]:
    """Every file below a directory but its own SHA256SUMS, sorted by relative path."""
    own = (directory / SUMS, directory / f"{SUMS}{TEMPORARY}")
    files = (path for path in directory.rglob("*") if path.is_file())
    return sorted(path for path in files if path not in own)


def write_sums(directory: Path) -> None:
    """Write the directory's SHA256SUMS, atomically, over every file below it.

    The list is made inside the directory: it may be a mount of its own, and nothing can be renamed into one.
    """
    lines = [f"{sha256_file(path)}  {path.relative_to(directory)}\n" for path in listed_files(directory)]
    write_atomically(directory / SUMS, "".join(lines).encode())


def read_sums(directory: Path) -> dict[str, str]:
    """The recorded SHA-256 by relative path; raises RunDirectoryError for a missing or unreadable list."""
    path = directory / SUMS
    if not path.is_file():
        raise RunDirectoryError(
            f"{directory} has no {SUMS}: it is no finished results directory; check the path, or run again"
        )
    sums = {}
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64:
            raise RunDirectoryError(f"{path}:{number}: not a checksum line; restore the file")
        sums[name] = digest
    return sums


def sum_problems(directory: Path) -> list[str]:
    """What differs from SHA256SUMS: changed, missing and unlisted files, one line each."""
    sums = read_sums(directory)
    present = {str(path.relative_to(directory)): path for path in listed_files(directory)}
    problems = [f"{name}: missing" for name in sums if name not in present]
    problems += [f"{name}: not listed in {SUMS}" for name in present if name not in sums]
    changed = (name for name in sums if name in present and sha256_file(present[name]) != sums[name])
    return sorted(problems + [f"{name}: bytes differ from {SUMS}" for name in changed])

"""SHA256SUMS.unshipped: the listed files that are missing because packing left them out, by ``s2s unpack``.

Packing leaves out final adapters, unless asked for them, and what interrupted runs left. Nothing else can be
excused.
"""

from pathlib import Path

from search_to_signal.provenance.adapters import ADAPTER
from search_to_signal.provenance.checksums import SUMS, UNSHIPPED, read_sums
from search_to_signal.records.files import files_named, read_regular, write_atomically
from search_to_signal.records.manifest import INTERRUPTED


def why_left_out(name: str) -> str | None:
    """Return why packing leaves out a file, by its relative path; None for a file that is always packed."""
    parts = Path(name).parts[:-1]
    if INTERRUPTED in parts:
        return "of an interrupted run, which is never packed"
    if ADAPTER in parts:
        return "of a final adapter that was left out of the pack: s2s retrain makes it again"
    return None


def write_unshipped(root: Path) -> None:
    """Next to every checksum list below ``root`` name its files that are missing and were left out, if any.

    Raises RunDirectoryError for an unreadable list.
    """
    for path in files_named(root, SUMS):
        if names := _left_out(path.parent):
            write_atomically(path.with_name(UNSHIPPED), "".join(f"{name}\n" for name in names).encode())


def unshipped(directory: Path) -> frozenset[str]:
    """Return the listed files of a directory that are missing and named as left out when it was unpacked.

    An adapter of which a part is here was not left out. Raises RunDirectoryError where the list is missing or
    unreadable, though files are named.
    """
    named = _named(directory / UNSHIPPED)
    return named.intersection(_left_out(directory)) if named else frozenset()


def unfit_names(directory: Path) -> list[str]:
    """Return a line for every file below a directory that names what packing never leaves out."""
    return [
        f"{path.relative_to(directory).as_posix()} names {name!r}, which is never left out of a pack"
        for path in files_named(directory, UNSHIPPED)
        for name in sorted(_named(path))
        if why_left_out(name) is None
    ]


def _named(path: Path) -> frozenset[str]:
    return frozenset(read_regular(path).decode(errors="replace").splitlines() if path.is_file() else ())


def _left_out(directory: Path) -> list[str]:
    """The listed files that may be left out, of which not even the directory is here."""
    return [
        name
        for name in read_sums(directory)
        if why_left_out(name) is not None and not (directory / name).parent.exists()
    ]

"""A container of files: names and lengths as JSON, then the bytes, compressed, without times and owners."""

import lzma
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path

import msgspec

from search_to_signal.base.errors import UNREADABLE, RunDirectoryError, reason
from search_to_signal.records.amendments import AMENDMENTS
from search_to_signal.records.checksums import DATA_SUMS, SUMS, sha256_file
from search_to_signal.records.files import files_named, is_place, read_regular, write_atomically
from search_to_signal.records.manifest import MANIFEST, ROSTER
from search_to_signal.records.plan import PLAN, evidence_roots

RECORDS = "records.xz"
"""The container of a packed run."""

# Records are text: more literal context bits, no position bits. Equal input gives equal bytes.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
# Records shrink to a seventieth at most. A forged container must not fill the memory.
_LARGEST, _SHRINKS, _SMALL = 1 << 28, 256, 1 << 20
_MEMORY = 1 << 28


def write_container(path: Path, parts: Mapping[str, bytes]) -> None:
    """Write named parts in order, atomically; raises RunDirectoryError where reading would refuse it."""
    head = msgspec.json.encode([[name, len(data)] for name, data in parts.items()])
    whole = b"".join([head, b"\n", *parts.values()])
    data = lzma.compress(whole, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, filters=_FILTERS)
    if len(whole) > _largest_content(len(data)):
        name, size = max(((name, len(part)) for name, part in parts.items()), key=itemgetter(1))
        raise RunDirectoryError(
            f"{path} would hold {len(whole)} bytes in {len(data)}, which is refused when it is read: "
            f"{name} has {size}; take it out of the results, or shorten it"
        )
    write_atomically(path, data)


def read_container(path: Path) -> dict[str, bytes]:
    """Return the parts by name.

    Raises RunDirectoryError for a file that is missing, truncated or changed, that expands to far more than
    records do, or that contains a name twice or bytes after its end.
    """
    try:
        data = read_regular(path)
        largest = _largest_content(len(data))
        decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MEMORY)
        whole = decoder.decompress(data, max_length=largest + 1)
        if len(whole) > largest:
            raise ValueError(f"its {len(data)} bytes hold more than {largest}")
        if not decoder.eof:
            raise ValueError("it is cut")
        if decoder.unused_data:
            raise ValueError("there are bytes after its end")
        head, _, body = whole.partition(b"\n")
        lengths = msgspec.json.decode(head, type=list[tuple[str, int]])
        if sum(length for _, length in lengths) != len(body) or any(length < 0 for _, length in lengths):
            raise ValueError("its parts have other lengths")
        if len(dict(lengths)) != len(lengths):
            raise ValueError("it holds a name twice")
    except (OSError, ValueError, lzma.LZMAError, *UNREADABLE) as error:
        raise RunDirectoryError(f"cannot read {path} ({reason(error)}): restore the file") from error
    parts, start = {}, 0
    for name, length in lengths:
        parts[name], start = body[start : start + length], start + length
    return parts


def _largest_content(size: int) -> int:
    return min(_LARGEST, _SMALL + _SHRINKS * size)


def write_files(files: Mapping[str, bytes], out: Path, source: Path) -> None:
    """Write named files below ``out``.

    Raises RunDirectoryError for a name that leads outside of ``out``, and for a file that exists already,
    since files that were checked must not change.
    """
    for name, data in files.items():
        if not is_place(name):
            raise RunDirectoryError(f"{source} holds {name!r}, which leads elsewhere: restore the file")
        place = out / name
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as stream:
                stream.write(data)
        except (FileExistsError, NotADirectoryError) as error:
            raise RunDirectoryError(
                f"{source} holds {name!r}, which another file of the evidence is: restore the file"
            ) from error


# The layout of packed evidence: a directory with a plan, packed results directories, and further plans.
#
# Below the evidence each packed results directory contains packed runs, tables and lists. A subdirectory with
# a plan of its own is the evidence of that plan.

BEGUN = "begun.tar.xz"
"""What is recorded and not packed yet: unfinished runs, and finished ones that wait for earlier seeds."""
PLAN_FILES = (PLAN.name, AMENDMENTS)
"""The plan's files; they lie next to the packed directories."""
FILES = "files.xz"
"""The container of a packed results directory's files that belong to no run."""
OPEN_LISTS = (SUMS, DATA_SUMS)
OPEN_NAMES = (*OPEN_LISTS, ROSTER)
TABLES = ".csv"


def own_files(root: Path) -> Iterator[Path]:
    """Yield the files of packed evidence, sorted, without those of further plans below it."""
    nested = set(evidence_roots(root)[1:])
    return (
        path for path in sorted(root.rglob("*")) if path.is_file() and not nested.intersection(path.parents)
    )


def is_record(path: Path, root: Path) -> bool:
    """Whether a file of packed evidence is packed itself or begun; beside the plan other files may lie."""
    return path.parent != root or path.name == BEGUN


def packed_results(root: Path) -> list[Path]:
    """Return the packed results directories at or directly below a directory."""
    return [path for path in (root, *sorted(root.glob("*"))) if (path / FILES).is_file()]


def packed_runs(packed: Path) -> list[str]:
    """Return the names of the runs of a packed results directory, in order, damaged runs included."""
    runs = {path.parent for name in (RECORDS, MANIFEST) for path in packed.rglob(name)}
    return [run.relative_to(packed).as_posix() for run in sorted(runs)]


def refuse_packed(directory: Path, command: str) -> None:
    """Raise RunDirectoryError for packed evidence, whose records lie in containers that ``command`` skips."""
    if files_named(directory, RECORDS):
        raise RunDirectoryError(
            f"{directory} holds packed runs: s2s rebuild checks shipped evidence, and s2s unpack DIRECTORY "
            f"--out OUT writes what {command} reads"
        )


def list_evidence(root: Path) -> None:
    """Write the SHA256SUMS of everything that is packed below a directory, of its plan and of begun runs.

    The evidence of a further plan below it has a list of its own.
    """
    files = [path for path in own_files(root) if is_record(path, root) or path.name in PLAN_FILES]
    lines = (f"{sha256_file(path)}  {path.relative_to(root).as_posix()}\n" for path in files)
    write_atomically(root / SUMS, "".join(lines).encode())

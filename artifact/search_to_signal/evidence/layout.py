"""The layout of packed evidence: a directory with a plan, packed results directories, and further plans.

Below the evidence each packed results directory contains packed runs, tables and lists. A subdirectory with a
plan of its own is the evidence of that plan.
"""

from collections.abc import Iterator
from pathlib import Path

from search_to_signal.errors import RunDirectoryError
from search_to_signal.evidence.container import RECORDS
from search_to_signal.provenance.checksums import DATA_SUMS, SUMS, sha256_file
from search_to_signal.records.amendments import AMENDMENTS
from search_to_signal.records.files import files_named, write_atomically
from search_to_signal.records.manifest import MANIFEST, ROSTER
from search_to_signal.records.plan import PLAN, evidence_roots

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

"""A results directory packed to ship: what people read stays open, records go into one container per run.

Tables stay open as CSV; pages, pictures and block index are left out, since they are made from the rest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from search_to_signal.errors import ConfigError, RunDirectoryError
from search_to_signal.evidence.container import read_container, write_container
from search_to_signal.evidence.roots import BESIDE, own_files
from search_to_signal.evidence.runs import RECORDS, Tokenizer, pack_run, tokenizer
from search_to_signal.progress import Progress
from search_to_signal.provenance.adapters import ADAPTER, left_out
from search_to_signal.provenance.blocks import BLOCKS
from search_to_signal.provenance.checksums import DATA_SUMS, SUMS, sha256_file, sum_problems
from search_to_signal.provenance.ro_crate import CRATE
from search_to_signal.records.files import TEMPORARY, refuse_special_files, write_atomically
from search_to_signal.records.manifest import (
    INTERRUPTED,
    MANIFEST,
    REPORT,
    ROSTER,
    finished_manifest,
    read_manifest,
    read_roster,
    runs_below,
)
from search_to_signal.verification.recompute.tokens import Tokenizers

FILES = "files.xz"
OPEN_LISTS = (SUMS, DATA_SUMS)
OPEN_NAMES = (*OPEN_LISTS, ROSTER)
SEAL = (SUMS, DATA_SUMS, BLOCKS, CRATE)
TABLES = ".csv"


@dataclass(frozen=True)
class Packed:
    """What was packed: runs written now, runs that were there already, runs that are unfinished; bytes."""

    written: int
    kept: int
    unfinished: tuple[str, ...]
    size: int


def pack(
    results: Path, out: Path, adapters: Sequence[str], models: Sequence[Path], progress: Progress
) -> Packed:
    """Pack a results directory; runs that are packed already stay as they are.

    ``adapters`` are patterns of runs whose final weights go along, ``cohort/*-s42`` say: they are most of the
    bytes, and executing a run again gives them. Of other runs they may be missing. ``models`` are directories
    with further tokenizers. Raises RunDirectoryError for a run whose files are not those of its list.
    """
    refuse_special_files(results)
    if out.resolve().is_relative_to(results.resolve()):
        raise ConfigError(f"{out} lies in the directory that is packed: give another --out")
    runs = {run: run.relative_to(results).as_posix() for run in runs_below(results)}
    done = {run: name for run, name in runs.items() if _finished(run)}
    if not done:
        raise RunDirectoryError(f"{results} holds no finished run: give a results directory")
    tokenizers, written = Tokenizers(models), 0
    for number, (run, name) in enumerate(done.items(), start=1):
        weights = any(fnmatchcase(name, pattern) for pattern in adapters)
        if not _is_packed(run, out / name):
            _pack_checked(run, name, out / name, tokenizers, weights)
            written += 1
        progress.update("pack", number, len(done), name)
    # A run that begins while others are packed is none of the rest.
    due = {results / name for name in planned_runs(results)}
    _pack_rest(results, {*runs, *due}, out)
    unfinished = tuple(name for run, name in runs.items() if run not in done)
    return Packed(written, len(done) - written, unfinished, sum(p.stat().st_size for p in _files(out)))


def _finished(run: Path) -> bool:
    return (run / SUMS).is_file() and finished_manifest(run) is not None


def _is_packed(run: Path, packed: Path) -> bool:
    """Whether the same files lie there in a container that can be read."""
    try:
        read_container(packed / RECORDS)
        return (packed / SUMS).read_bytes() == (run / SUMS).read_bytes()
    except (OSError, RunDirectoryError):
        return False


def _pack_checked(run: Path, name: str, out: Path, tokenizers: Tokenizers, weights: bool) -> None:
    absent = set() if weights else left_out(run)
    problems = {file: what for file, what in sum_problems(run).items() if file not in absent}
    for first, what in problems.items():
        raise RunDirectoryError(f"{name}/{first}: {what}: restore the run, or record it again")
    found: Tokenizer | None = tokenizer(tokenizers.of(read_manifest(run).model_files))
    pack_run(run, out, found, weights)


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file())


def _pack_rest(results: Path, runs: set[Path], out: Path) -> None:
    """What is no run: lists and tables openly, the rest in one container, but for what is made from it."""
    parts: dict[str, bytes] = {}
    stale = _stale(results)
    for name in stale:
        (out / name).unlink(missing_ok=True)
    for path in _files(results):
        place = path.relative_to(results)
        if runs & set(path.parents) or INTERRUPTED in place.parts or path.name.endswith(TEMPORARY):
            continue
        report = place.parts[0] == REPORT
        if place.as_posix() in stale:
            continue
        if path.name in OPEN_NAMES or (report and path.suffix == TABLES):
            (out / place).parent.mkdir(parents=True, exist_ok=True)
            (out / place).write_bytes(path.read_bytes())
        elif not report and place.as_posix() != BLOCKS:
            parts[place.as_posix()] = path.read_bytes()
    write_container(out / FILES, parts)


def _stale(results: Path) -> set[str]:
    """The lists of a results directory and its layers that are not of what is there.

    A seal over what was there before the newest runs is none; a layer whose runs came in pieces, each with a
    list of its own, has the last one's. Final adapters may be missing.
    """
    seal = set() if _is_listed(results) else set(SEAL)
    lists = (path.parent for path in results.rglob(SUMS) if not (path.parent / MANIFEST).is_file())
    below = [layer for layer in lists if layer != results and not _is_listed(layer)]
    return seal | {(layer / name).relative_to(results).as_posix() for layer in below for name in OPEN_LISTS}


def _is_listed(directory: Path) -> bool:
    if not (directory / SUMS).is_file():
        return False
    return all(
        what == "missing" and Path(name).parent.name == ADAPTER
        for name, what in sum_problems(directory).items()
    )


def list_evidence(root: Path) -> None:
    """Write the SHA256SUMS of everything that is packed below a directory, and of the plan's files beside it.

    Evidence of a further plan in it has a list of its own.
    """
    packed = [path for path in own_files(root) if path.parent != root or path.name in BESIDE]
    lines = (f"{sha256_file(path)}  {path.relative_to(root).as_posix()}\n" for path in packed)
    write_atomically(root / SUMS, "".join(lines).encode())


def packed_results(root: Path) -> list[Path]:
    """The packed results directories at or directly below a directory; none where nothing is packed."""
    return [path for path in (root, *sorted(root.glob("*"))) if (path / FILES).is_file()]


def packed_runs(packed: Path) -> list[str]:
    """The names of the runs of a packed results directory, in order: with what is left of damaged ones."""
    runs = {path.parent for name in (RECORDS, MANIFEST) for path in packed.rglob(name)}
    return [run.relative_to(packed).as_posix() for run in sorted(runs)]


def planned_runs(packed: Path) -> set[str]:
    """The names of all runs that were to be recorded, by the rosters that were written before the first."""
    runs = (path.parent / name for path in packed.rglob(ROSTER) for name in read_roster(path.parent))
    return {run.relative_to(packed).as_posix() for run in runs}

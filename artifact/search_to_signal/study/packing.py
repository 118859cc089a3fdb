"""Packing of results directories to ship them: lists and tables stay open, records go into containers.

There is one container for each run and one for the other files. Pages, pictures and the block index are left
out, since they are rebuilt from the rest.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import dropwhile
from pathlib import Path

from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.base.progress import Progress
from search_to_signal.records.adapters import ADAPTER, left_out
from search_to_signal.records.checksums import (
    BLOCKS,
    CRATE,
    DATA_SUMS,
    SUMS,
    UNSHIPPED,
    sha256_file,
    sum_problems,
)
from search_to_signal.records.files import TEMPORARY, read_regular, refuse_special_files
from search_to_signal.records.manifest import (
    INTERRUPTED,
    MANIFEST,
    REPORT,
    ROSTER,
    finished_manifest,
    planned_runs,
    read_manifest,
    runs_below,
)
from search_to_signal.run.texts import Tokenizers
from search_to_signal.study import container
from search_to_signal.study.packed_run import pack_run, tokenizer

SEAL = (SUMS, DATA_SUMS, BLOCKS, CRATE)


@dataclass(frozen=True)
class PackingResult:
    """Counts of runs that were packed now (``written``) and before (``kept``), others by name, and bytes.

    ``replaced`` are those of ``written`` in whose place another run was packed before, ``waiting`` finished
    runs of which an earlier one of the plan is missing.
    """

    written: int
    kept: int
    replaced: tuple[str, ...]
    unfinished: tuple[str, ...]
    waiting: tuple[str, ...]
    size: int


def pack(
    results: Path,
    out: Path,
    adapters: Sequence[str],
    models: Sequence[Path],
    progress: Progress,
    orders: Sequence[Sequence[str]] = (),
) -> PackingResult:
    """Pack a results directory into ``out``; runs that are packed already stay as they are.

    ``adapters`` are patterns of runs (``cohort/*-s42``) whose final weights are packed. Weights are most of
    the bytes, and a rerun makes them again; those of other runs may be missing. ``models`` are directories
    with further tokenizers. ``orders`` are a plan's runs, a condition each: a finished one is packed once all
    before it are finished, so that what ends sooner is no choice of seeds. Raises RunDirectoryError for a
    directory without a finished run, for planned runs without the list that is recorded beside them, for a
    run that differs from its checksums and for one under the name of another, ConfigError where ``out`` lies
    in ``results``.
    """
    refuse_special_files(results)
    refuse_special_files(out)
    if out.resolve().is_relative_to(results.resolve()):
        raise ConfigError(f"{out} is inside the directory that is packed: give another --out")
    runs = {run: run.relative_to(results).as_posix() for run in runs_below(results)}
    finished = {run: name for run, name in runs.items() if (run / SUMS).is_file() and finished_manifest(run)}
    if not finished:
        raise RunDirectoryError(f"{results} holds no finished run: give a results directory")
    recorded = {name for order in orders for name in order} & set(finished.values())
    for folder in sorted({name.rpartition("/")[0] for name in recorded}):
        if not any((place / folder / ROSTER).is_file() for place in (results, out)):
            raise RunDirectoryError(
                f"{results / folder} lacks {ROSTER}, the list of its planned runs: bring it from where they "
                "were recorded, or have s2s record write it"
            )
    packed = {path.parent.relative_to(out).as_posix() for path in out.rglob(container.RECORDS)}
    there, waiting = {*finished.values(), *packed}, set[str]()
    for order in orders:  # What is finished behind the first of its order that is not.
        waiting.update(name for name in dropwhile(there.__contains__, order) if name in there)
    turned = {run: name for run, name in finished.items() if name not in waiting}
    tokenizers, written = Tokenizers(models), list[str]()
    for number, (run, name) in enumerate(turned.items(), start=1):
        weights = any(fnmatchcase(name, pattern) for pattern in adapters)
        if not _is_packed(run, out / name):
            _pack_checked_run(run, name, out / name, tokenizers, weights)
            written.append(name)
        progress.update("pack", number, len(turned), name)
    # Planned runs may begin while others are packed: their files belong to no container yet.
    planned = {results / name for name in planned_runs(results)}
    _pack_other_files(results, {*runs, *planned}, out)
    unfinished = tuple(name for run, name in runs.items() if run not in finished)
    size = sum(path.stat().st_size for path in _files(out))
    late = tuple(name for name in finished.values() if name in waiting)
    replaced = tuple(name for name in written if name in packed)
    return PackingResult(len(written), len(turned) - len(written), replaced, unfinished, late, size)


def _is_packed(run: Path, packed: Path) -> bool:
    try:
        container.read_container(packed / container.RECORDS)
        return read_regular(packed / SUMS) == read_regular(run / SUMS)
    except (OSError, RunDirectoryError):
        return False


def _pack_checked_run(run: Path, name: str, out: Path, tokenizers: Tokenizers, weights: bool) -> None:
    absent = set() if weights else left_out(run)
    problems = {file: what for file, what in sum_problems(run).items() if file not in absent}
    for first, what in problems.items():
        raise RunDirectoryError(f"{name}/{first}: {what}: restore the run, or record it again")
    manifest = read_manifest(run)
    if manifest.facts.name != run.name:
        raise RunDirectoryError(
            f"{name} has the configuration of {manifest.facts.name}: give it its name again"
        )
    pack_run(run, out, tokenizer(tokenizers.of(manifest.model_files)), weights)


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file())


def _pack_other_files(results: Path, runs: set[Path], out: Path) -> None:
    parts: dict[str, bytes] = {}
    stale = _stale_lists(results)
    for name in stale:
        (out / name).unlink(missing_ok=True)
    for path in _files(results):
        place = path.relative_to(results)
        if runs & set(path.parents) or INTERRUPTED in place.parts:
            continue
        if path.name == UNSHIPPED or path.name.endswith(TEMPORARY):
            continue
        report = place.parts[0] == REPORT
        if place.as_posix() in stale:
            continue
        if path.name in container.OPEN_NAMES or (report and path.suffix == container.TABLES):
            (out / place).parent.mkdir(parents=True, exist_ok=True)
            (out / place).write_bytes(read_regular(path))
        elif not report and place.as_posix() != BLOCKS:
            parts[place.as_posix()] = read_regular(path)
    container.write_container(out / container.FILES, parts)


def _stale_lists(results: Path) -> set[str]:
    """The names of seals and checksum lists that do not match the files that are present.

    A seal becomes stale with newer runs. A layer that was recorded in pieces, each with a list, has the list
    of the last one. Missing final adapters do not make a list stale.
    """
    # Lists overlap: every file below a layer is also below the results directory.
    digest = cache(sha256_file)
    seal = set() if _is_current(results, digest) else set(SEAL)
    lists = (path.parent for path in results.rglob(SUMS) if not (path.parent / MANIFEST).is_file())
    stale = [layer for layer in lists if layer != results and not _is_current(layer, digest)]
    return seal | {
        (layer / name).relative_to(results).as_posix() for layer in stale for name in container.OPEN_LISTS
    }


def _is_current(directory: Path, digest: Callable[[Path], str]) -> bool:
    if not (directory / SUMS).is_file():
        return False
    return all(
        what == "missing" and Path(name).parent.name == ADAPTER
        for name, what in sum_problems(directory, digest).items()
    )

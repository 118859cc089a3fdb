"""Packed evidence as results directories again, for checking, reading and running."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from search_to_signal.errors import ConfigError, RunDirectoryError
from search_to_signal.evidence.container import read_container, write_files
from search_to_signal.evidence.packing import FILES, OPEN_NAMES, TABLES, packed_results, packed_runs
from search_to_signal.evidence.roots import BESIDE, own_files
from search_to_signal.evidence.runs import RECORDS, tokenizer, unpack_run
from search_to_signal.progress import Progress
from search_to_signal.provenance.adapters import ADAPTER
from search_to_signal.provenance.blocks import BLOCKS, write_blocks
from search_to_signal.provenance.checksums import (
    DATA_SUMS,
    SUMS,
    read_sums,
    sha256_file,
    sum_problems,
)
from search_to_signal.records.files import refuse_special_files
from search_to_signal.records.layers import ANCHOR
from search_to_signal.records.manifest import (
    INTERRUPTED,
    REPORT,
    ROSTER,
    read_manifest,
    read_roster,
    write_roster,
)
from search_to_signal.runtime import mapped
from search_to_signal.verification.recompute.tokens import Tokenizers

# Beyond these a run's tokens, whose tokenizer takes most of the time, are not worth a process.
_TOGETHER = 8


def damages(root: Path) -> list[str]:
    """What is missing, cut or changed below packed evidence, one line each, with what it was.

    Raises RunDirectoryError where there is no list, and for what is no regular file. The plan and its
    amendments are not among them: ``planned.py`` looks at them.
    """
    refuse_special_files(root)
    return [f"{name}: {what}; it was {_what(name)}" for name, what in _against_list(root).items()]


def _against_list(root: Path) -> dict[str, str]:
    listed = {name: digest for name, digest in read_sums(root).items() if name not in BESIDE}
    found = {path.relative_to(root).as_posix(): path for path in own_files(root) if path.parent != root}
    problems = {name: "missing" for name in listed if name not in found}
    problems |= {name: f"not listed in {SUMS}" for name in found if name not in listed}
    changed = (name for name in listed if name in found and sha256_file(found[name]) != listed[name])
    problems |= {name: f"bytes differ from {SUMS}: cut or changed" for name in changed}
    return dict(sorted(problems.items()))


def _what(name: str) -> str:
    """What a packed file is, by its place."""
    path = Path(name)
    run = "/".join(path.parts[:-1])
    known = {
        RECORDS: f"the records of run {run}",
        FILES: f"what {run} holds beside its runs",
        "manifest.json": f"what run {run} ran on",
        "config.json": f"the configuration of run {run}",
        SUMS: f"the list of the original files of {run}",
        "runs.json": f"the list of the runs of {run}",
    }
    if REPORT in path.parts and path.suffix == TABLES:
        return f"the shipped table {path.stem} of {path.parts[0]}"
    return known.get(path.name, f"a file of {run}")


def unpack_runs(
    packed: Path,
    out: Path,
    names: Sequence[str],
    models: Sequence[Path],
    tokens: bool,
    progress: Progress | None = None,
) -> None:
    """Write some runs of a packed results directory; raises RunDirectoryError as ``unpack_run``.

    Without ``tokens`` a run lacks ``generations.jsonl``, which tables do not read.
    """
    parts = -(-len(names) // _TOGETHER)
    shares = [(packed, out, names[part::parts], models, tokens) for part in range(parts)]
    done = 0
    for count in mapped(_unpack_some, shares):
        done += count
        if progress is not None:
            progress.update(f"unpack {packed.name}", done, len(names))


def _unpack_some(share: tuple[Path, Path, Sequence[str], Sequence[Path], bool]) -> int:
    packed, out, names, models, tokens = share
    tokenizers = Tokenizers(models)
    for name in names:
        files = read_manifest(packed / name).model_files
        found = tokenizer(tokenizers.of(files)) if tokens else None
        unpack_run(packed / name, out / name, found, tokens)
    return len(names)


def unpack_rest(packed: Path, out: Path) -> None:
    """Write what is no run; raises RunDirectoryError for a container that cannot be read."""
    write_files(read_container(packed / FILES), out, packed / FILES)
    for path in packed.rglob("*"):
        if path.name in OPEN_NAMES and path.is_file() and not (path.parent / RECORDS).exists():
            write_files({path.relative_to(packed).as_posix(): path.read_bytes()}, out, path)


def unpack(packed: Path, out: Path, models: Sequence[Path], progress: Progress) -> list[str]:
    """Restore a whole results directory into an empty place; returns what is not as in its own lists.

    Reports are made again from the records and the block index from all files. Final adapters that were not
    packed are missing by name, and so is what interrupted runs left. Lists come first: what is stopped lacks
    what they name. Raises RunDirectoryError for unreadable containers, and where there is no run, ConfigError
    where ``out`` is no empty directory or lies in the evidence.
    """
    from search_to_signal.studies.reproduction import write_report

    refuse_special_files(packed)
    _refuse_place(out, packed)
    names = packed_runs(packed)
    if not names:
        raise RunDirectoryError(f"{packed} holds no run: restore it")
    unpack_rest(packed, out)
    unpack_runs(packed, out, names, models, True, progress)
    sealed = read_sums(out) if (out / SUMS).is_file() else {}
    if any(name.startswith(f"{REPORT}/") for name in sealed):
        write_report(out, out / REPORT)
    if BLOCKS in sealed:
        write_blocks(out)
    lists = [out] if sealed else [out / name for name in names]
    return [
        f"{(place / name).relative_to(out).as_posix()}: {what}"
        for place in lists
        for name, what in sum_problems(place).items()
    ]


def _refuse_place(out: Path, packed: Path) -> None:
    """Raise ConfigError for an output that is no empty directory, or would lie among the evidence."""
    if out.resolve().is_relative_to(packed.resolve()):
        raise ConfigError(f"{out} lies in the evidence that is unpacked: give another --out")
    there = next(place for place in (out, *out.parents) if place.exists())
    if out.is_symlink() or not there.is_dir():
        raise ConfigError(f"{out} is no directory: give another --out")
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty: give another --out")


def is_left_out(problem: str, problems: Sequence[str]) -> bool:
    """Whether a problem of ``unpack`` is a file that is not packed, or the block index over it.

    Final adapters are not, unless asked for, nor is what interrupted runs left.
    """
    missing = problem.endswith(": missing")
    unpacked = missing and any(f"/{part}/" in problem for part in (ADAPTER, INTERRUPTED))
    index = problem.startswith((BLOCKS, f"{SUMS}:"))
    return unpacked or (index and any(is_left_out(one, ()) or is_remade(one) for one in problems))


def is_remade(problem: str) -> bool:
    """Whether a problem of ``unpack`` is a page, picture or table that this version makes otherwise."""
    return problem.startswith((f"{REPORT}/", DATA_SUMS))


def keep_whole_seeds(results: Path) -> None:
    """Leave out the runs of a seed of which one is missing: a table compares runs of one seed.

    An anchor stands on a contract over all seeds: without one of them it is left out whole. What is removed
    was unpacked by this process: ``results`` lies in a directory of its own.
    """
    for directory in [roster.parent for roster in sorted(results.rglob(ROSTER))]:
        due = read_roster(directory)
        lacking = {_seed(name) for name in due if not (directory / name).is_dir()}
        if lacking and directory.name == ANCHOR:
            shutil.rmtree(directory)
        elif lacking:
            for name in due:
                if _seed(name) in lacking and (directory / name).is_dir():
                    shutil.rmtree(directory / name)
            write_roster(directory, [name for name in due if _seed(name) not in lacking])


def _seed(name: str) -> str:
    return name.rpartition("-s")[2]


@contextmanager
def readable(directory: Path, names: Sequence[str] | None = None, tokens: bool = False) -> Iterator[Path]:
    """A results directory as it is, or packed evidence unpacked for as long as it is read.

    ``names`` are the runs that are needed, by default all and what lies beside them. Raises
    RunDirectoryError as unpacking does.
    """
    if not packed_results(directory):
        yield directory
        return
    refuse_special_files(directory)
    with TemporaryDirectory(prefix="s2s-") as temporary:
        out = Path(temporary)
        for packed in packed_results(directory):
            place = out if packed == directory else out / packed.name
            lead = "" if packed == directory else f"{packed.name}/"
            chosen = [name for name in packed_runs(packed) if names is None or f"{lead}{name}" in names]
            unpack_runs(packed, place, chosen, (), tokens)
            if names is None:
                unpack_rest(packed, place)
        yield out

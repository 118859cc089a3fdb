"""Packed evidence restored as results directories, to verify, read and execute them."""

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from search_to_signal.base.errors import ConfigError, RunDirectoryError, S2SError
from search_to_signal.base.processes import mapped
from search_to_signal.base.progress import Progress, counted
from search_to_signal.records.adapters import why_left_out, write_unshipped
from search_to_signal.records.checksums import (
    BLOCKS,
    DATA_SUMS,
    SUMS,
    read_sums,
    sha256_file,
    sum_problems,
    write_blocks,
)
from search_to_signal.records.conditions import split_run_name
from search_to_signal.records.files import read_regular, refuse_special_files
from search_to_signal.records.layers import ANCHOR
from search_to_signal.records.manifest import REPORT, ROSTER, read_manifest, read_roster, write_roster
from search_to_signal.records.reader import GENERATIONS, TEXTS
from search_to_signal.run.texts import Tokenizers
from search_to_signal.study import container, packed_run

# Marks a directory that is being unpacked into.
_UNPACKING = ".unpacking"
# Runs that one process unpacks: it loads a tokenizer, which takes longer than a few runs.
_RUNS_PER_PROCESS = 8


class Unpacked(NamedTuple):
    """Differences from the checksum lists, and what says of which runs token ids lack, if of any."""

    problems: list[str]
    without_ids: str


def damages(root: Path) -> list[str]:
    """Return missing, truncated and changed files of packed evidence, one line each, with their content.

    Raises RunDirectoryError where there is no list, and for a file that is not regular. The plan and its
    amendments are left out: ``plan_checks`` compares them.
    """
    refuse_special_files(root)
    listed = {name: digest for name, digest in read_sums(root).items() if name not in container.PLAN_FILES}
    present = {
        path.relative_to(root).as_posix(): path
        for path in container.own_files(root)
        if container.is_record(path, root)
    }
    problems = {name: "missing" for name in listed if name not in present}
    problems |= {name: f"not listed in {SUMS}" for name in present if name not in listed}
    changed = (name for name in listed if name in present and sha256_file(present[name]) != listed[name])
    problems |= {name: f"bytes differ from {SUMS}: cut or changed" for name in changed}
    return [f"{name}: {what}; it was {_content(name)}" for name, what in sorted(problems.items())]


def _content(name: str) -> str:
    path = Path(name)
    run = "/".join(path.parts[:-1])
    known = {
        container.BEGUN: "what is recorded and not packed yet",
        container.RECORDS: f"the records of run {run}",
        container.FILES: f"the files of {run} outside of its runs",
        "manifest.json": f"what run {run} ran on",
        "config.json": f"the configuration of run {run}",
        SUMS: f"the list of the original files of {run}",
        "runs.json": f"the list of the runs of {run}",
    }
    if REPORT in path.parts and path.suffix == container.TABLES:
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
    """Write runs of a packed results directory below ``out``; raises RunDirectoryError as ``unpack_run``.

    Without ``tokens`` runs lack ``generations.jsonl``, which tables do not read.
    """
    processes = -(-len(names) // _RUNS_PER_PROCESS)
    tasks = [(packed, out, names[number::processes], models, tokens) for number in range(processes)]
    done = 0
    for count in mapped(_unpack_task, tasks):
        done += count
        if progress is not None:
            progress.update(f"unpack {packed.name}", done, len(names))


def _unpack_task(task: tuple[Path, Path, Sequence[str], Sequence[Path], bool]) -> int:
    packed, out, names, models, tokens = task
    tokenizers = Tokenizers(models)
    for name in names:
        files = read_manifest(packed / name).model_files
        run_tokenizer = packed_run.tokenizer(tokenizers.of(files)) if tokens else None
        packed_run.unpack_run(packed / name, out / name, run_tokenizer, tokens)
    return len(names)


def unpack_rest(packed: Path, out: Path) -> None:
    """Write the files outside of runs; raises RunDirectoryError for a container that cannot be read."""
    container.write_files(container.read_container(packed / container.FILES), out, packed / container.FILES)
    for path in packed.rglob("*"):
        if (
            path.name in container.OPEN_NAMES
            and path.is_file()
            and not (path.parent / container.RECORDS).exists()
        ):
            container.write_files({path.relative_to(packed).as_posix(): read_regular(path)}, out, path)


def unpack(packed: Path, out: Path, models: Sequence[Path], progress: Progress) -> Unpacked:
    """Restore a whole results directory into an empty one, and compare it with its checksum lists.

    Reports are rebuilt from the records, and the block index from all files. Final adapters that were not
    packed, and files of interrupted runs, are missing, and named next to the lists. Where token ids follow
    from a tokenizer that is not here a run has TEXTS in the place of its generations. Lists are written
    first, these names last, so that an interrupted command leaves a directory that lacks listed files.

    Raises RunDirectoryError for unreadable containers and lists and where there is no run. Before a byte is
    written it raises ConfigError where ``out`` is no empty directory, as when another command was first, or
    lies in the evidence.
    """
    from search_to_signal.layers.reproduction import write_report

    refuse_special_files(packed)
    if out.resolve().is_relative_to(packed.resolve()):
        raise ConfigError(f"{out} is inside the evidence that is unpacked: give another --out")
    existing = next(path for path in (out, *out.parents) if path.exists())
    if out.is_symlink() or not existing.is_dir():
        raise ConfigError(f"{out} is not a directory: give another --out")
    if out.exists() and any(out.iterdir()):
        raise _occupied(out)
    names = container.packed_runs(packed)
    if not names:
        raise RunDirectoryError(f"{packed} holds no run: restore it")
    tokenizers, lacking = Tokenizers(models), dict[str, str]()
    for name in names:
        manifest = read_manifest(packed / name)
        if tokenizers.directory_of(manifest.model_files) is None and packed_run.needs_tokenizer(
            packed / name
        ):
            lacking[name] = manifest.facts.model
    with _alone_in(out):
        unpack_rest(packed, out)
        unpack_runs(packed, out, [name for name in names if name not in lacking], models, True, progress)
        unpack_runs(packed, out, list(lacking), (), False, progress)
        for name in lacking:
            packed_run.write_texts(packed / name, out / name)
    sealed = read_sums(out) if (out / SUMS).is_file() else {}
    if any(name.startswith(f"{REPORT}/") for name in sealed):
        write_report(out, out / REPORT)
    if BLOCKS in sealed:
        write_blocks(out)
    write_unshipped(out)
    problems = [
        f"{(directory / name).relative_to(out).as_posix()}: {what}"
        for directory in ([out] if sealed else [out / name for name in names])
        for name, what in sum_problems(directory).items()
    ]
    if not lacking:
        return Unpacked(problems, "")
    others = f" ({', '.join(map(str, models))} is not it)" if models else ""
    needed = ", ".join(sorted(set(lacking.values())))
    without_ids = (
        f"{counted(len(lacking), 'run')} without token ids: {packed_run.NO_TOKENIZER}{others}: "
        f"give --model DIR of {needed} and another --out; {TEXTS} has the texts"
    )
    return Unpacked(problems, without_ids)


@contextmanager
def _alone_in(out: Path) -> Iterator[None]:
    """Hold an empty directory, made if need be; raises ConfigError where another command came first.

    The mark of it stays where unpacking fails: what is there then is not whole.
    """
    out.mkdir(parents=True, exist_ok=True)
    mark = out / _UNPACKING
    try:
        mark.touch(exist_ok=False)
    except FileExistsError as error:
        raise _occupied(out) from error
    if len(list(out.iterdir())) > 1:
        mark.unlink()
        raise _occupied(out)
    yield
    mark.unlink()


def _occupied(out: Path) -> ConfigError:
    return ConfigError(
        f"{out} is not empty: let another command that writes it end, give another --out, or remove what a "
        "stopped command left"
    )


def is_left_out(problem: str, problems: Sequence[str]) -> bool:
    """Whether a problem of ``unpack`` is a file that is never packed, or a list that includes it.

    Final adapters are packed on request alone, files of interrupted runs never.
    """
    missing = problem.endswith(": missing")
    unpacked = missing and why_left_out(problem.removesuffix(": missing")) is not None
    index = problem.startswith((BLOCKS, f"{SUMS}:"))
    return unpacked or (
        index and any(is_left_out(other, ()) or is_rebuilt(other) or lacks_ids(other) for other in problems)
    )


def lacks_ids(problem: str) -> bool:
    """Whether a problem of ``unpack`` is a file that a run without token ids lacks, or has in its place."""
    return problem.endswith((f"{GENERATIONS}: missing", f"{TEXTS}: not listed in {SUMS}"))


def is_rebuilt(problem: str) -> bool:
    """Whether a problem of ``unpack`` is a page, picture or table that this version builds differently."""
    return problem.startswith((f"{REPORT}/", DATA_SUMS))


def keep_whole_seeds(results: Path, apart: Path | None = None) -> None:
    """Remove the runs of every seed of which one run is missing, since tables compare runs of one seed.

    They go to the same places below ``apart``, if that is given. An anchor without one of its seeds is
    removed completely, since its contract covers all seeds. ``results`` has to be a temporary directory that
    this process unpacked.
    """
    for directory in [roster.parent for roster in sorted(results.rglob(ROSTER))]:
        planned = read_roster(directory)
        incomplete = {split_run_name(name)[1] for name in planned if not (directory / name).is_dir()}
        if incomplete and directory.name == ANCHOR:
            shutil.rmtree(directory)
        elif incomplete:
            for name in planned:
                run = directory / name
                if split_run_name(name)[1] not in incomplete or not run.is_dir():
                    continue
                if apart is None:
                    shutil.rmtree(run)
                else:
                    moved = apart / run.relative_to(results)
                    moved.parent.mkdir(parents=True, exist_ok=True)
                    run.rename(moved)
            write_roster(directory, [name for name in planned if split_run_name(name)[1] not in incomplete])


@contextmanager
def unpacked_apart(packed: Path) -> Iterator[Path]:
    """Yield a temporary directory to unpack evidence into; errors name the packed one in its place."""
    with TemporaryDirectory(prefix="s2s-") as temporary:
        try:
            yield Path(temporary)
        except S2SError as error:
            error.args = (str(error).replace(temporary, str(packed)),)
            raise


@contextmanager
def readable(
    directory: Path,
    names: Sequence[str] | None = None,
    tokens: bool = False,
    models: Sequence[Path] = (),
    progress: Progress | None = None,
    left_out: Collection[str] = (),
) -> Iterator[Path]:
    """Yield a results directory itself, or packed evidence unpacked into a temporary directory.

    ``names`` are the runs to unpack, by default all runs and all other files; with ``tokens`` their token ids
    too, which may follow from the tokenizers of ``models``. Runs of the layers ``left_out`` are not unpacked.
    Raises RunDirectoryError as unpacking does.
    """
    refuse_special_files(directory)
    if not container.packed_results(directory):
        yield directory
        return
    with unpacked_apart(directory) as out:
        for packed in container.packed_results(directory):
            unpacked = out if packed == directory else out / packed.name
            prefix = "" if packed == directory else f"{packed.name}/"
            chosen = [
                name
                for name in container.packed_runs(packed)
                if (names is None or f"{prefix}{name}" in names) and name.split("/")[0] not in left_out
            ]
            if progress is not None:
                progress.update(f"unpack {packed.name}", 0, len(chosen))
            unpack_runs(packed, unpacked, chosen, models, tokens, progress)
            if names is None:
                unpack_rest(packed, unpacked)
        yield out

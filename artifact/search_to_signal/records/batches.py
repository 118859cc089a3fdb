"""Stream recorded groups, ours or from outside, as batches of bounded size."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from search_to_signal.errors import RecordError
from search_to_signal.records.external import external_batch, read_external
from search_to_signal.records.files import files_named, read_lines, refuse_special_files
from search_to_signal.records.groups import GroupBatch, batch_of
from search_to_signal.records.manifest import INTERRUPTED
from search_to_signal.records.reader import COMPLETIONS, read_groups

BATCH = 4096

Group = TypeVar("Group")


def record_files(inputs: Sequence[Path]) -> list[Path]:
    """The record files among the inputs: files themselves, and every completions.jsonl below a directory.

    Unfinished runs that a cohort set aside below a directory are left out.
    Raises RecordError for a path without any, and RunDirectoryError for a link or pipe in a directory.
    """
    all_files: list[Path] = []
    for path in inputs:
        files = _below(path) if path.is_dir() else [path] if path.exists() else []
        if not files:
            raise RecordError(f"{path} holds no {COMPLETIONS}: give run directories or JSON Lines of groups")
        all_files += files
    return all_files


def _below(directory: Path) -> list[Path]:
    refuse_special_files(directory)
    files = files_named(directory, COMPLETIONS)
    return [file for file in files if INTERRUPTED not in file.relative_to(directory).parts]


def read_batches(files: Sequence[Path], size: int = BATCH) -> Iterator[tuple[str, GroupBatch]]:
    """Yield (problem, batch) of at most ``size`` groups of one problem and one G, file by file."""
    for file in files:
        if _is_external(file):
            groups = read_external(file)
            yield from _batched(groups, lambda g: (g.problem, len(g.candidates)), external_batch, size)
        else:
            records = read_groups(file)
            yield from _batched(records, lambda g: (g[0].problem, len(g)), batch_of, size)


def _batched(
    groups: Iterable[Group],
    key: Callable[[Group], tuple[str, int]],
    stack: Callable[[Sequence[Group]], GroupBatch],
    size: int,
) -> Iterator[tuple[str, GroupBatch]]:
    waiting: dict[tuple[str, int], list[Group]] = {}
    for group in groups:
        kind = key(group)
        queue = waiting.setdefault(kind, [])
        queue.append(group)
        if len(queue) == size:
            yield kind[0], stack(waiting.pop(kind))
    for (problem, _), queue in waiting.items():
        yield problem, stack(queue)


def _is_external(file: Path) -> bool:
    """A line of this package has no candidates, a line from outside must have them."""
    return b'"candidates"' in next(read_lines(file), b"")

"""Records as a stream: memory does not grow with the file; a line is canonical JSON, appended whole."""

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

import msgspec

from search_to_signal.base.errors import UNREADABLE, RecordError
from search_to_signal.records.files import read_lines
from search_to_signal.records.schema import CompletionRecord

COMPLETIONS = "completions.jsonl"
STEPS = "steps.jsonl"
HEURISTICS = "heuristics.jsonl"
GENERATIONS = "generations.jsonl"
# The same without token ids, which a tokenizer that is not here would give.
TEXTS = "generations-without-ids.jsonl"
TIMINGS = "timings.jsonl"

Record = TypeVar("Record")
Group = tuple[CompletionRecord, ...]
"""The completions of one step, in order."""


def read_completions(path: Path) -> Iterator[CompletionRecord]:
    """Yield the completion records of a file, or of the completions.jsonl of a run directory.

    Raises RecordError, naming file and line, for a line that cannot be read.
    """
    yield from read_records(_file(path), CompletionRecord)


def read_records(file: Path, kind: type[Record]) -> Iterator[Record]:
    """Yield the records of any record file; raises RecordError as read_completions does."""
    decode = msgspec.json.Decoder(kind).decode
    for number, line in enumerate(read_lines(file), start=1):
        try:
            record = decode(line)
        except UNREADABLE as error:
            raise _error(file, number, f"unreadable line ({error})") from error
        if not line.endswith(b"\n"):
            raise _error(file, number, "the last line is cut off")
        yield record


def read_groups(path: Path) -> Iterator[Group]:
    """Yield the groups of a file in order: consecutive completions of one step, indices 0 to G - 1.

    Raises RecordError for an unreadable, missing, duplicated or reordered line.
    """
    last, before, path = None, 0, _file(path)
    for step, records in groupby(read_records(path, CompletionRecord), key=attrgetter("step")):
        group = tuple(records)
        if last is not None and step <= last:
            raise _error(path, before + 1, f"step {step} after step {last}: lines reordered or duplicated")
        for index, record in enumerate(group):
            if record.index != index:
                number = before + 1 + index
                raise _error(path, number, f"step {step} has index {record.index}, expected {index}")
        last = step
        before += len(group)
        yield group


def _file(path: Path) -> Path:
    return path / COMPLETIONS if path.is_dir() else path


def _error(path: Path, number: int, problem: str) -> RecordError:
    return RecordError(f"{path}:{number}: {problem}; restore the file from its checksummed copy or rerun")

"""Logs of other frameworks as reward-level groups: one file per format, recognized by what a file holds."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from search_to_signal.audit.groups import Assumption, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions
from search_to_signal.audit.importers.recognition import FORMATS as FORMATS
from search_to_signal.audit.importers.recognition import find as find
from search_to_signal.errors import ConfigError, RecordError

_REPEATED = "a file with the rows of the one before it is the same batch written again, and is left out"


def read(path: Path, format: str | None = None, options: ReadOptions | None = None) -> Iterator[RewardGroups]:
    """Batches of the groups of a log file, or of every file of a log directory, in order.

    The format is recognized unless it is named. What was assumed is with each batch (``groups.summed``).
    Raises RecordError for a path that holds no log, ConfigError for a format that does not exist or that has
    no use for named components, or for a named reward.
    """
    options = options or ReadOptions()
    chosen, files = find(path, format, bool(options.columns))
    if (options.components or options.weights) and not chosen.sums:
        able = ", ".join(form.name for form in FORMATS if form.sums)
        raise ConfigError(f"{chosen.name} says what the reward is: components are named for {able} alone")
    if options.reward is not None and not chosen.several:
        able = ", ".join(form.name for form in FORMATS if form.several)
        raise ConfigError(f"{chosen.name} says what the reward is: one of several is named for {able} alone")
    for _, run in groupby(files, key=lambda file: _contents(chosen, file)):
        same = list(run)
        yield from _with_copies(chosen.read(same[0], options), len(same) - 1)


def _contents(format: Format, file: Path) -> bytes:
    """Equal for files that hold one batch; a file that cannot be read is like no other."""
    try:
        return format.contents(file) if format.contents else bytes(file)
    except RecordError:
        return bytes(file)


def _with_copies(batches: Iterator[RewardGroups], copies: int) -> Iterator[RewardGroups]:
    """The batches of a file; the first says how many files after it hold the same."""
    for number, batch in enumerate(batches):
        if copies and not number:
            left_out = Assumption("repeated_files", _REPEATED, {"files": copies})
            batch = replace(batch, assumptions=(*batch.assumptions, left_out))
        yield batch

"""Logs of other frameworks as reward-level groups: one file per format, recognized by what a file holds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from search_to_signal.audit.groups import Assumption, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions
from search_to_signal.audit.importers.recognition import FORMATS as FORMATS
from search_to_signal.audit.importers.recognition import find as find
from search_to_signal.audit.importers.recognition import other_logs
from search_to_signal.errors import ConfigError, RecordError

_OTHERS = "other files of the directory hold rollouts too and are left out: give each by itself"
_REPEATED = "a file with the rows of the one before it is the same batch written again, and is left out"


def read(path: Path, format: str | None = None, options: ReadOptions | None = None) -> Iterator[RewardGroups]:
    """Batches of the groups of a log file, or of every file of a log directory, in order.

    The format is recognized unless it is named. What was assumed is with each batch (``groups.summed``).
    Raises RecordError for a path that holds no log, ConfigError for a format that does not exist or that has
    no use for named components, for a named reward, or for a group size.
    """
    options = options or ReadOptions()
    chosen, files = find(path, format, bool(options.columns))
    if (options.components or options.weights) and not chosen.sums:
        able = ", ".join(form.name for form in FORMATS if form.sums)
        raise ConfigError(f"{chosen.name} says what the reward is: components are named for {able} alone")
    if options.reward is not None and not chosen.several:
        able = ", ".join(form.name for form in FORMATS if form.several)
        raise ConfigError(f"{chosen.name} says what the reward is: one of several is named for {able} alone")
    if options.group_size is not None and not chosen.splits:
        able = ", ".join(form.name for form in FORMATS if form.splits)
        raise ConfigError(f"{chosen.name} says what a group is: a group size is given for {able} alone")
    others = other_logs(path, files) if path.is_dir() else 0
    try:
        for number, (_, run) in enumerate(groupby(files, key=lambda file: _contents(chosen, file))):
            same = list(run)
            left = {"files": len(same) - 1}
            notes = [Assumption("repeated_files", _REPEATED, left)] if len(same) > 1 else []
            if others and not number:
                notes.append(Assumption("other_files", _OTHERS, {"files": others}))
            yield from _noted(chosen.read(same[0], options), notes)
    except RecursionError as error:
        raise RecordError(f"{path}: values within values, too deep to be read; leave them out") from error


def _contents(format: Format, file: Path) -> bytes:
    """Equal for files that hold one batch; a file that cannot be read is like no other."""
    try:
        return format.contents(file) if format.contents else bytes(file)
    except RecordError:
        return bytes(file)


def _noted(batches: Iterator[RewardGroups], notes: Sequence[Assumption]) -> Iterator[RewardGroups]:
    """The batches of a file, the first with what is said of it."""
    for number, batch in enumerate(batches):
        yield batch if number else replace(batch, assumptions=(*batch.assumptions, *notes))

"""Logs of other frameworks as reward-level groups: one file per format, recognized by what a file holds."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path

from search_to_signal.audit.groups import Assumption, RewardGroups
from search_to_signal.audit.importers.base import Format, Read, ReadOptions
from search_to_signal.audit.importers.containers import is_cut
from search_to_signal.audit.importers.recognition import FORMATS as FORMATS
from search_to_signal.audit.importers.recognition import beside
from search_to_signal.audit.importers.recognition import find as find
from search_to_signal.audit.importers.rows import noted
from search_to_signal.audit.importers.several_files import by_step, in_turn
from search_to_signal.errors import ConfigError, RecordError

_OTHERS = "other files of the directory hold rollouts too and are left out: give each by itself"
# GroupRecorder and live.write number the batches of a step, each of which was normalized by itself.
_BATCH = re.compile(r"rollouts_\d{8}_\d{4}\.jsonl(\.gz|\.zst)?")
_NO_ROLLOUTS = "files of the directory that hold no rollouts, or are damaged, are left out"
_CUT = "the end of the file was cut, as by a writer that was stopped: what is whole is read"
_REPEATED = "a file with the rows of the one before it is the same batch written again, and is left out"


def read(path: Path, format: str | None = None, options: ReadOptions | None = None) -> Iterator[RewardGroups]:
    """Batches of the groups of a log file, or of every file of a log directory, in order.

    The format is recognized unless it is named. What was assumed is with each batch (``groups.summed``).
    Raises RecordError for a path that holds no log, ConfigError for a format that does not exist or that has
    no use for named components, for a named reward, or for a group size.
    """
    options = options or ReadOptions()
    chosen, files = find(path, format, options.columns)
    if (options.components or options.weights) and not chosen.sums:
        able = ", ".join(form.name for form in FORMATS if form.sums)
        raise ConfigError(f"{chosen.name} says what the reward is: components are named for {able} alone")
    if options.reward is not None and not chosen.several:
        able = ", ".join(form.name for form in FORMATS if form.several)
        raise ConfigError(f"{chosen.name} says what the reward is: one of several is named for {able} alone")
    if options.group_size is not None and not chosen.splits:
        able = ", ".join(form.name for form in FORMATS if form.splits)
        raise ConfigError(f"{chosen.name} says what a group is: a group size is given for {able} alone")
    notes = _beside(path, files) if path.is_dir() else []
    if chosen.joined and path.is_dir():
        yield from noted(chosen.joined(files, options), notes)
        return
    read_file = chosen.of_run(files, options) if chosen.of_run else chosen.read
    sources = [
        partial(_read, read_file, list(run), options, () if number else notes)
        for number, (_, run) in enumerate(groupby(files, key=lambda file: _contents(chosen, file)))
    ]
    apart = len(files) == 1 or all(map(_BATCH.fullmatch, (file.name for file in files)))
    try:
        if apart:
            yield from chain.from_iterable(source() for source in sources)
        else:
            yield from in_turn(sources) if options.together else by_step(sources, options.rows)
    except RecursionError as error:
        raise RecordError(f"{path}: values within values, too deep to be read; leave them out") from error


def _read(
    read_file: Read, same: Sequence[Path], options: ReadOptions, notes: Sequence[Assumption]
) -> Iterator[RewardGroups]:
    """Batches of a file that was perhaps written several times, with what is said of it."""
    again = [Assumption("repeated_files", _REPEATED, {"files": len(same) - 1})] if len(same) > 1 else []
    cut = [Assumption("cut_end", _CUT, {"files": 1})] if is_cut(same[0]) else []
    yield from noted(read_file(same[0], options), [*notes, *again, *cut])


def _beside(directory: Path, files: Sequence[Path]) -> list[Assumption]:
    """What is left out of a directory."""
    rollouts, others = beside(directory, files)
    names = f"{', '.join(file.name for file in others[:3])}{' and others' if len(others) > 3 else ''}"
    notes = ((_OTHERS, "other_files", rollouts), (f"{_NO_ROLLOUTS}: {names}", "no_rollouts", others))
    return [Assumption(key, says, {"files": len(left)}) for says, key, left in notes if left]


def _contents(format: Format, file: Path) -> bytes:
    """Equal for files that hold one batch; a file that cannot be read is like no other."""
    try:
        return format.contents(file) if format.contents else bytes(file)
    except RecordError:
        return bytes(file)

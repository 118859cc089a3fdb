"""Logs of other frameworks as reward-level groups: one file per format, recognized by what a file holds."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path, PurePath

from search_to_signal.audit.groups import Assumption, RewardGroups
from search_to_signal.audit.importers import (
    llm4ad,
    nemo_rl,
    neutral,
    openevolve,
    openevolve_checkpoints,
    own_records,
    prime_rl_tokens,
    prime_rl_traces,
    shinka,
    skyrl,
    slime,
    theta_evolve,
    tinker,
    trl,
    trl_tables,
    ttt_discover,
    verl,
)
from search_to_signal.audit.importers.base import Format, ReadOptions
from search_to_signal.audit.importers.sniffing import Sniffed, sniff
from search_to_signal.errors import ConfigError, RecordError

FORMATS: tuple[Format, ...] = (
    trl.FORMAT,
    trl_tables.FORMAT,
    verl.FORMAT,
    nemo_rl.FORMAT,
    skyrl.FORMAT,
    prime_rl_traces.FORMAT,
    prime_rl_tokens.FORMAT,
    tinker.FORMAT,
    ttt_discover.FORMAT,
    slime.FORMAT,
    theta_evolve.FORMAT,
    own_records.FORMAT,
    openevolve.FORMAT,
    openevolve.JSON_FORMAT,
    openevolve_checkpoints.FORMAT,
    shinka.FORMAT,
    llm4ad.FORMAT,
    neutral.JSONL_FORMAT,
    neutral.JSON_FORMAT,
    neutral.CSV_FORMAT,
    neutral.PARQUET_FORMAT,
)


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


def find(path: Path, format: str | None = None, mapped: bool = False) -> tuple[Format, list[Path]]:
    """The format of a log and its files; ``mapped`` where a caller names its columns. Errors as in read."""
    candidates = FORMATS if format is None else (_named(format),)
    if mapped:
        able = tuple(form for form in candidates if form.maps)
        if not able:
            names = ", ".join(form.name for form in FORMATS if form.maps)
            raise ConfigError(f"{format} knows its columns: they are named for {names} alone")
        # Whatever the file's columns are called, the caller says which are which.
        candidates = tuple(replace(form, needs=()) for form in able)
    return _in_directory(path, candidates) if path.is_dir() else (_of_file(path, candidates), [path])


def _named(name: str) -> Format:
    known = {form.name: form for form in FORMATS}
    if name not in known:
        raise ConfigError(f"no format is called {name}: choose one of {', '.join(known)}")
    return known[name]


def _of_file(path: Path, candidates: tuple[Format, ...]) -> Format:
    sniffed = sniff(path)
    best = max(candidates, key=lambda form: form.score(sniffed))
    if not best.score(sniffed):
        raise _unknown(path, sniffed, candidates)
    return best


def _in_directory(directory: Path, candidates: tuple[Format, ...]) -> tuple[Format, list[Path]]:
    """The format whose files the directory holds; of several, the one that knows most of its columns."""
    held = {form: files for form in candidates if (files := form.files(directory))}
    if not held:
        names = dict.fromkeys(PurePath(pattern).name for form in candidates for pattern in form.patterns)
        raise RecordError(f"{directory} holds no known log, none of {', '.join(names)}; give the log itself")
    best = max(held, key=lambda form: _score(form, held[form][0]))
    if not _score(best, held[best][0]):
        raise _unknown(held[best][0], sniff(held[best][0]), tuple(held))
    return best, held[best]


def _score(format: Format, file: Path) -> int:
    """How well a file fits; 0 for one that cannot be read, since another file may be the log."""
    try:
        return format.score(sniff(file))
    except RecordError:
        return 0


def _unknown(path: Path, sniffed: Sniffed, candidates: tuple[Format, ...]) -> RecordError:
    """One line: the columns that were found, and those that the nearest format misses."""
    alike = [form for form in candidates if form.container == sniffed.container]
    described = f"{path} ({sniffed.container}) has the columns {', '.join(sniffed.columns) or 'none'}"
    if not alike:
        expected = " or ".join(sorted({form.container for form in candidates}))
        return RecordError(
            f"{described}; this format is {expected}: give such a file, or leave the format out"
        )
    near = min(alike, key=lambda form: (len(form.missing(sniffed)), -len(form.needs)))
    return RecordError(
        f"{described}; to be read as {near.name} it misses {', '.join(near.missing(sniffed))}: "
        "name another format, or say by --map reward=COLUMN,group=COLUMN what its columns mean"
    )

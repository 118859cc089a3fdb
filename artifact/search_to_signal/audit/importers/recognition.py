"""Which format a log has: recognized by the files of a directory, and by the columns of a file."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath

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
from search_to_signal.audit.importers.base import Format
from search_to_signal.audit.importers.containers import Sniffed, sniff
from search_to_signal.errors import ConfigError, RecordError
from search_to_signal.records.conditions import FROZEN

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
    if not any(_score(form, files[0]) for form, files in held.items()) and (run := _own_run(directory)):
        raise RecordError(f"{directory} holds runs of s2s, which are audited one by one: give {run}, say")
    if not held:
        names = dict.fromkeys(PurePath(pattern).name for form in candidates for pattern in form.patterns)
        raise RecordError(f"{directory} holds no known log, none of {', '.join(names)}; give the log itself")
    best = max(held, key=lambda form: _score(form, held[form][0]))
    if not _score(best, held[best][0]):
        raise _unknown(held[best][0], sniff(held[best][0]), tuple(held))
    return best, held[best]


def other_logs(directory: Path, files: Sequence[Path]) -> int:
    """How many other files of a directory hold rollouts by their columns."""
    found: set[Path] = set()
    for form in FORMATS:
        # A format whose files are of several runs is none of these.
        with suppress(RecordError):
            found.update(file for file in set(form.files(directory)).difference(files) if _score(form, file))
    return len(found)


def _own_run(directory: Path) -> Path | None:
    """A run below a results directory or a layer of one, a trained one if any is; None for anything else."""
    name = own_records.FORMAT.patterns[0]
    runs = [path.parent for depth in ("*", "*/*") for path in sorted(directory.glob(f"{depth}/{name}"))]
    trained = [run for run in runs if not run.name.startswith(FROZEN)]
    return next(iter([*trained, *runs]), None)


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

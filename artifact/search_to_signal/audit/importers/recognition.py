"""Which format a log has: known by its columns, in a directory whatever stands beside it."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from search_to_signal.audit.importers import (
    list_columns,
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
from search_to_signal.audit.importers.base import PACKED, Format, in_order
from search_to_signal.audit.importers.containers import TORCH, Sniffed, sniff
from search_to_signal.audit.importers.scalars import by_name, refusal, scalars_of
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
    list_columns.FORMAT,
    list_columns.RAY_FORMAT,
    list_columns.ROLL_FORMAT,
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


# Files that may be a log of any format, by the end of their names.
_TABLES = (".jsonl", ".parquet", ".csv", ".tsv", ".json")
# So many levels of directories are looked through, and so many files of a directory that holds no log.
_DEPTH, _LOOKED_AT = 3, 500
# Directories of one log: of a version, a step, a rank or a task. Others are of several runs.
_COUNTED = re.compile(
    r"((global[_-]?)?step|iter(ation)?|epoch|v(ersion)?|rollouts?|batch|update|rank|worker|proc(ess)?|shard|part"
    r"|chunk|node|gpu|dp|task|split|replica)?[_=-]?\d+",
    re.IGNORECASE,
)
_NAMED = 3


@dataclass
class _Look:
    """What the files of a directory hold; each is opened once."""

    sniffed: dict[Path, Sniffed | None] = field(default_factory=dict)

    def of(self, file: Path) -> Sniffed | None:
        """Container and columns; None for a file that is empty, damaged or unknown."""
        if file not in self.sniffed:
            try:
                self.sniffed[file] = sniff(file)
            except RecordError:
                self.sniffed[file] = None
        return self.sniffed[file]

    def score(self, form: Format, file: Path) -> int:
        """How well a file fits."""
        known = self.of(file)
        return form.score(known) if known else 0

    def fitting(self, form: Format) -> Callable[[Path], bool]:
        """Which files are of a format; a dump is large, and taken for one by its name."""
        return lambda file: form.container == TORCH or self.score(form, file) > 0


def find(
    path: Path, format: str | None = None, columns: Mapping[str, str] = MappingProxyType({})
) -> tuple[Format, list[Path]]:
    """The format of a log and its files; ``columns`` where a caller names them. Errors as in read."""
    candidates = FORMATS if format is None else (_named(format),)
    if columns:
        able = tuple(form for form in candidates if form.maps)
        if not able:
            names = ", ".join(form.name for form in FORMATS if form.maps)
            raise ConfigError(f"{format} knows its columns: they are named for {names} alone")
        # Whatever the file's columns are called, the caller says which are which.
        named = {"group": "group", **columns}
        needed = tuple(dict.fromkeys(name.split(".")[0] for name in named.values()))
        candidates = tuple(replace(form, needs=needed if path.is_dir() else ()) for form in able)
    return _in_directory(path, candidates) if path.is_dir() else (_of_file(path, candidates), [path])


def _named(name: str) -> Format:
    known = {form.name: form for form in FORMATS}
    if name not in known:
        raise ConfigError(f"no format is called {name}: choose one of {', '.join(known)}")
    return known[name]


def _of_file(path: Path, candidates: tuple[Format, ...]) -> Format:
    try:
        sniffed = sniff(path)
    except RecordError:
        if path.is_file() and (found := scalars_of(path)):
            raise refusal(path, {path: found}) from None
        raise
    best = max(candidates, key=lambda form: form.score(sniffed))
    if not best.score(sniffed):
        raise _unknown(path, sniffed, candidates)
    return best


def _in_directory(directory: Path, candidates: tuple[Format, ...]) -> tuple[Format, list[Path]]:
    """The format whose files the directory holds, or directories in it."""
    look = _Look()
    if found := _held(directory, candidates, look):
        return found
    if run := _own_run(directory, look):
        raise RecordError(f"{directory} holds runs of s2s, which are audited one by one: give {run}, say")
    if found := _below(directory, candidates, look):
        return found
    raise _no_log(directory, candidates, look)


def _held(directory: Path, candidates: tuple[Format, ...], look: _Look) -> tuple[Format, list[Path]] | None:
    """The format that knows most columns of its files there, and these files; others may stand beside them.

    Where no file is called as a format's are, files of any name are known by their columns.
    """
    held = {form: files for form in candidates if (files := form.files(directory, look.fitting(form)))}
    if not any(look.score(form, files[0]) for form, files in held.items()):
        tables = _tables(directory)
        held = {form: files for form in candidates if (files := [*filter(look.fitting(form), tables)])}
    best = max(held, key=lambda form: look.score(form, held[form][0]), default=None)
    return (best, held[best]) if best and look.score(best, held[best][0]) else None


def _below(directory: Path, candidates: tuple[Format, ...], look: _Look) -> tuple[Format, list[Path]] | None:
    """What directories in this one hold, as a writer makes one for each version, step or rank.

    Raises RecordError where they are of several runs.
    """
    for depth in range(1, _DEPTH + 1):
        held: dict[Path, list[Path]] = {}
        for place in _directories(directory, depth):
            if found := _held(place, candidates, look):
                candidates, held[place] = (found[0],), found[1]
        if held:
            levels = zip(*(place.relative_to(directory).parts for place in held), strict=True)
            if any(len(set(names)) > 1 and not all(map(_COUNTED.fullmatch, names)) for names in levels):
                raise RecordError(
                    f"{directory} holds logs in {len(held)} directories, which are audited one by one: "
                    f"give one of {_some(held)}"
                )
            return candidates[0], [file for files in held.values() for file in files]
    return None


def _directories(directory: Path, depth: int) -> list[Path]:
    places = (path for path in directory.glob("/".join("*" * depth)) if path.is_dir())
    return in_order(directory, (place for place in places if not _is_hidden(directory, place)))


def _is_hidden(directory: Path, path: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(directory).parts)


def _tables(directory: Path, pattern: str = "*") -> list[Path]:
    """Files that may be a log, in order; of a file and its packed copy one."""
    names = [f"{pattern}{end}{packed}" for end in _TABLES for packed in ("", *PACKED)]
    found = {path for name in names for path in directory.glob(name)}
    kept = (path for path in found if path.suffix not in PACKED or path.with_suffix("") not in found)
    return in_order(directory, (path for path in kept if path.is_file() and not _is_hidden(directory, path)))


def beside(directory: Path, files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Tables that stand with the files of a log: those that hold rollouts by their columns, and others."""
    read = {*files, *(file.with_suffix("") for file in files if file.suffix in PACKED)}
    places = dict.fromkeys([directory, *(file.parent for file in files)])
    others = [path for place in places for path in _tables(place) if path not in read]
    look = _Look()
    rollouts = [path for path in others if any(look.score(form, path) for form in FORMATS)]
    return rollouts, [path for path in others if path not in rollouts]


def _own_run(directory: Path, look: _Look) -> Path | None:
    """A run below a results directory or a layer of one, a trained one if any is; None for anything else."""
    form = own_records.FORMAT
    files = (path for depth in ("*", "*/*") for path in sorted(directory.glob(f"{depth}/{form.patterns[0]}")))
    runs = [path.parent for path in files if look.score(form, path)]
    trained = [run for run in runs if not run.name.startswith(FROZEN)]
    return next(iter([*trained, *runs]), None)


def _no_log(directory: Path, candidates: tuple[Format, ...], look: _Look) -> RecordError:
    """One line: the nearest to a log that is there, or what is there at all."""
    for form in candidates:
        if form.container == TORCH and (dumps := form.files(directory)):
            return _unknown(dumps[0], sniff(dumps[0]), (form,))
    if arrow := next((path for depth in ("", "*/") for path in directory.glob(f"{depth}*.arrow")), None):
        return RecordError(
            f"{directory} is a data set of Hugging Face: write it by datasets.load_from_disk({arrow.parent})"
            ".to_parquet(FILE), and give that file"
        )
    tables = [*islice(_all_tables(directory), _LOOKED_AT)]
    known = {path: sniffed for path in tables if (sniffed := look.of(path)) and sniffed.columns}
    numbers = {path: found for path in tables if (found := scalars_of(path))}
    if stranger := next((path for path in known if path not in numbers), None):
        return _unknown(stranger, known[stranger], candidates)
    numbers |= {path: found for path in in_order(directory, directory.iterdir()) if (found := by_name(path))}
    if numbers:
        return refusal(directory, numbers)
    for damaged in (path for path in tables if path.suffix == ".parquet"):
        sniff(damaged)
    kinds = Counter(path.suffix or path.name for path in directory.iterdir() if path.is_file())
    there = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(_NAMED)) or "no file"
    return RecordError(
        f"{directory} holds no log of rollouts, only {there}: give the file or directory that the trainer "
        "writes rollouts into; `--format` names the format where its columns do not"
    )


def _all_tables(directory: Path) -> Iterator[Path]:
    for depth in range(_DEPTH + 1):
        tables = _tables(directory, "*/" * depth + "*")
        yield from sorted(tables, key=lambda path: ".json" in (path.suffix, path.with_suffix("").suffix))


def _some(paths: Iterable[Path]) -> str:
    names = list(map(str, paths))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _unknown(path: Path, sniffed: Sniffed, candidates: tuple[Format, ...]) -> RecordError:
    """One line: the columns that were found, and those that the nearest format misses."""
    if found := scalars_of(path):
        return refusal(path, {path: found})
    if not sniffed.columns:
        return RecordError(f"{path} ({sniffed.container}) holds no groups: it has no whole record in it")
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

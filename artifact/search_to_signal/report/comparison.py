"""Comparison of two results directories, or two runs: settings, metrics and records.

Only records are read. Timings, environment and manifests may differ between equal runs and are ignored; a
different source or model counts as a setting.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.base.errors import UNREADABLE, RunDirectoryError
from search_to_signal.records.differences import flat
from search_to_signal.records.files import entries_below, read_lines, refuse_special_files
from search_to_signal.records.manifest import INTERRUPTED, REPORT, read_manifest, runs_below
from search_to_signal.records.reader import COMPLETIONS, TIMINGS, read_groups
from search_to_signal.report.metrics.search import run_metrics

_ABSENT = "(absent)"
_NO_RECORDS = (TIMINGS, "BLOCKS.jsonl")
_UNREPORTED = (REPORT, INTERRUPTED, "checkpoint")


@dataclass(frozen=True)
class Setting:
    """A setting that differs in ``runs``, by its dotted name."""

    name: str
    first: str
    second: str
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Metric:
    """A metric of a run in both directories; scores are higher-is-better, rates fractions of 1."""

    run: str
    name: str
    first: float | None
    second: float | None


@dataclass(frozen=True)
class RecordDifference:
    """The first line (from 1) in which two record files differ, and its fields; none for a missing line."""

    file: str
    line: int
    fields: tuple[str, ...]


@dataclass(frozen=True)
class DirectoryComparison:
    """The result of a comparison; ``only_*`` are runs and record files of one directory alone."""

    runs: int
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    settings: tuple[Setting, ...]
    metrics: tuple[Metric, ...]
    records: tuple[RecordDifference, ...]

    @property
    def equal(self) -> bool:
        """Whether settings and records are the same; equal records have equal metrics."""
        return not (self.only_first or self.only_second or self.settings or self.records)


def compare(first: Path, second: Path) -> DirectoryComparison:
    """Compare two results directories, or two runs whatever their names.

    Raises RunDirectoryError where there is no run, RecordError for a record that cannot be read.
    """
    runs, others = _runs(first), _runs(second)
    shared = [name for name in runs if name in others]
    files, other_files = _record_files(first), _record_files(second)
    metrics = []
    for name in shared:
        values, other_values = (_measured(place) for place in (runs[name], others[name]))
        metrics += [Metric(name, m, values.get(m), other_values.get(m)) for m in values or other_values]
    return DirectoryComparison(
        runs=len(shared),
        only_first=_missing({**runs, **files}, {**others, **other_files}),
        only_second=_missing({**others, **other_files}, {**runs, **files}),
        settings=_settings({name: (runs[name], others[name]) for name in shared}),
        metrics=tuple(metrics),
        records=tuple(_first_differences(files, other_files)),
    )


def _missing(here: Mapping[str, Path], there: Mapping[str, Path]) -> tuple[str, ...]:
    """Return the names that only ``here`` has; a run that is missing as a whole is one name."""
    names = [name for name in here if name not in there]
    return tuple(name for name in names if not any(name.startswith(f"{other}/") for other in names))


def _runs(directory: Path) -> dict[str, Path]:
    if not directory.is_dir():
        raise RunDirectoryError(f"there is no directory {directory}: check the path")
    refuse_special_files(directory)
    runs = {run.relative_to(directory).as_posix(): run for run in runs_below(directory)}
    if not runs:
        raise RunDirectoryError(f"{directory} holds no run: give the directory of a run or of results")
    return runs


def _record_files(directory: Path) -> dict[str, Path]:
    files = sorted(Path(entry) for entry in entries_below(directory) if entry.name.endswith(".jsonl"))
    names = {path.relative_to(directory): path for path in files}
    return {
        name.as_posix(): path
        for name, path in names.items()
        if name.name not in _NO_RECORDS and not set(_UNREPORTED) & set(name.parts)
    }


def _settings(runs: Mapping[str, tuple[Path, Path]]) -> tuple[Setting, ...]:
    where: dict[tuple[str, str, str], list[str]] = {}
    for run, places in runs.items():
        first, second = (_facts(place) for place in places)
        for name in sorted({*first, *second}):
            pair = first.get(name, _ABSENT), second.get(name, _ABSENT)
            if pair[0] != pair[1]:
                where.setdefault((name, *pair), []).append(run)
    return tuple(Setting(*key, tuple(names)) for key, names in where.items())


def _facts(run: Path) -> dict[str, str]:
    manifest = read_manifest(run)
    made: dict[str, Any] = {"source": manifest.source.sha256, "model_files": manifest.model_files}
    facts = flat("", {**manifest.config, **made, "host": manifest.host, "status": manifest.status})
    return {name: msgspec.json.encode(value).decode() for name, value in facts}


def _measured(run: Path) -> dict[str, float | None]:
    groups = list(read_groups(run)) if (run / COMPLETIONS).is_file() else []
    return asdict(run_metrics(groups)) if groups else {}


def _first_differences(files: Mapping[str, Path], others: Mapping[str, Path]) -> Iterator[RecordDifference]:
    for name in sorted(files.keys() & others.keys()):
        pairs = zip_longest(read_lines(files[name]), read_lines(others[name]))
        for number, (line, other_line) in enumerate(pairs, start=1):
            if line != other_line:
                fields: tuple[str, ...] = ()
                if line is not None and other_line is not None:
                    with suppress(*UNREADABLE):
                        old, new = (
                            msgspec.json.decode(text, type=dict[str, Any]) for text in (line, other_line)
                        )
                        fields = tuple(key for key in {**old, **new} if old.get(key) != new.get(key))
                yield RecordDifference(name, number, fields)
                break

"""ShinkaEvolve's database: SQLite, tables programs, archive and attempt_log; opened read-only.

Read: SakanaAI/ShinkaEvolve, shinka/database/dbase.py and shinka/core/async_runner.py,
9912af12d423504b8d580f4179fd15f5f88b8c50, 2026-08-21.

A program is a candidate: combined_score, correct, parent_id, generation. The archive is the one at the end
of the run, so a candidate that was kept and later pushed out counts as not admitted. What failed before it
could be evaluated is in attempt_log alone, with status ``failed`` and its class in details; databases of
earlier versions have no such table. A copy of a program to another island is a row of its own, archived if
it is correct, and marked in metadata: ``_is_island_copy`` (islands.copy_program_to_islands) or
``_spawned_island`` (a program or a subtree on a new island). It is no candidate, and may be a parent. A run
that was killed leaves its last rows in the write-ahead log. Up to 2025 the file may be called ``None``.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import UNKNOWN, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, refuse_unknown_label, value_at
from search_to_signal.audit.importers.candidates import COPIES, Tally, candidates, ended
from search_to_signal.audit.importers.containers import SQLITE
from search_to_signal.audit.importers.lines import parse_json
from search_to_signal.audit.importers.rows import (
    NAN,
    RolloutRow,
    batches,
    consecutive,
    count,
    digest,
    rows_of,
    score,
)
from search_to_signal.audit.importers.sqlite import read_only, table_columns
from search_to_signal.errors import RecordError

_PROGRAMS = """
    SELECT child.*, child.rowid AS position, parent.combined_score AS parent_score, {admitted} AS admitted
    FROM programs AS child LEFT JOIN programs AS parent ON parent.id = child.parent_id
    ORDER BY child.generation, child.timestamp, child.rowid
"""
_ARCHIVED = "EXISTS (SELECT 1 FROM archive WHERE archive.program_id = child.id)"
_SAYS = "a group is one candidate, improvement is over its parent, admitted is archived at the end"
_FAILED = "SELECT *, rowid AS position FROM attempt_log WHERE status = 'failed' ORDER BY generation, position"


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Candidates by generation, then failed attempts; raises RecordError for a damaged database."""
    columns = table_columns(path)
    names = {name.partition(".")[2]: None for name in columns if name.startswith("programs.")}
    refuse_unknown_label(path, names, options.label)
    tally = Tally((COPIES,))
    rows = _rows(path, columns, options, tally)
    first = next(rows, None)
    if first is None:
        raise RecordError(
            f"{path} holds no groups: no program is in it; those of a run that was killed are in "
            f"{path.name}-wal, which has to be beside it as a whole"
        )
    yield from batches(str(path), consecutive(chain([first], rows)), options.rows, candidates(_SAYS, tally))


def _rows(path: Path, columns: Sequence[str], options: ReadOptions, tally: Tally) -> Iterator[RolloutRow]:
    archived = _ARCHIVED if "archive.program_id" in columns else str(UNKNOWN)
    with read_only(path) as connection:
        programs = map(dict, connection.execute(_PROGRAMS.format(admitted=archived)))
        own = ((row["position"], row) for row in programs if not _is_copy(row, tally))
        yield from rows_of(path, own, lambda row, at: _program(row, at, options))
        if "attempt_log.details" in columns:
            attempts = map(dict, connection.execute(_FAILED))
            yield from rows_of(path, ((row["position"], row) for row in attempts), _attempt)


def _is_copy(row: dict[str, Any], tally: Tally) -> bool:
    metadata = _parsed(row.get("metadata"))
    copied = bool(metadata.get("_is_island_copy") or metadata.get("_spawned_island"))
    tally.counts["copies"] += copied
    tally.counts["copies in the archive"] += copied and row["admitted"] == 1
    return copied


def _program(row: dict[str, Any], position: int, options: ReadOptions) -> RolloutRow:
    fitness, correct = score(row["combined_score"]), score(row["correct"])
    return RolloutRow(
        group=("program", position),
        position=position,
        step=count(row["generation"]),
        reward=fitness,
        response=digest(row["code"] if isinstance(row["code"], str) else None),
        label=value_at(row, options.label),
        status=ended("correct" if correct > 0 else "incorrect", fitness),
        improvement=fitness - score(row["parent_score"]),
        admitted=row["admitted"],
        metrics={"correct": correct},
    )


def _attempt(row: dict[str, Any], position: int) -> RolloutRow:
    """A proposal that failed before it could be evaluated: its class of failure, or the stage."""
    failure = value_at(_parsed(row["details"]), "failure_class") or row["stage"]
    return RolloutRow(
        group=("attempt", position),
        position=position,
        step=count(row["generation"]),
        reward=NAN,
        status=f"failed: {failure}",
        admitted=0,
    )


def _parsed(text: object) -> dict[str, Any]:
    """The object of a column that holds JSON; empty for anything else."""
    try:
        value = parse_json(text.encode()) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


FORMAT = Format(
    name="shinka",
    container=SQLITE,
    needs=tuple(
        f"programs.{name}"
        for name in ("id", "code", "parent_id", "generation", "timestamp", "combined_score", "correct")
    ),
    patterns=("*.sqlite", "*.db", "*.sqlite3"),
    read=read,
    beside=("prompts.sqlite",),
    nameless=True,
    writer="SakanaAI/ShinkaEvolve shinka/database/dbase.py "
    "9912af12d423504b8d580f4179fd15f5f88b8c50 2026-08-21",
    met="real writer: ProgramDatabase.add and record_attempt_event, called with given programs",
)

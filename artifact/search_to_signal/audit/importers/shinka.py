"""ShinkaEvolve's database: SQLite, tables programs, archive and attempt_log; opened read-only.

Read: SakanaAI/ShinkaEvolve, shinka/database/dbase.py and shinka/core/async_runner.py,
9912af12d423504b8d580f4179fd15f5f88b8c50, 2026-08-21.

A program is a candidate: combined_score, correct, parent_id, generation. The archive is the one at the end
of the run, so a candidate that was kept and later pushed out counts as not admitted. What failed before it
could be evaluated is in attempt_log alone, with status ``failed`` and its class in details; databases of
earlier versions have no such table. A copy of a program to another island is a row of its own.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import UNKNOWN, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, refuse_unknown_label, value_at
from search_to_signal.audit.importers.candidates import candidates
from search_to_signal.audit.importers.containers import SQLITE
from search_to_signal.audit.importers.lines import parse_json
from search_to_signal.audit.importers.rows import (
    NAN,
    RolloutRow,
    batches,
    consecutive,
    count,
    digest,
    number,
    score,
)
from search_to_signal.audit.importers.sqlite import read_only, table_columns

_PROGRAMS = """
    SELECT child.*, child.rowid AS position, parent.combined_score AS parent_score, {admitted} AS admitted
    FROM programs AS child LEFT JOIN programs AS parent ON parent.id = child.parent_id
    ORDER BY child.generation, child.timestamp, child.rowid
"""
_ARCHIVED = "EXISTS (SELECT 1 FROM archive WHERE archive.program_id = child.id)"
_EVIDENCE = candidates(
    "a group is one candidate, improvement is over its parent, admitted is archived at the end"
)
_FAILED = "SELECT * FROM attempt_log WHERE status = 'failed' ORDER BY generation, id"


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Candidates by generation, then failed attempts; raises RecordError for a damaged database."""
    columns = table_columns(path)
    names = {name.partition(".")[2]: None for name in columns if name.startswith("programs.")}
    refuse_unknown_label(path, names, options.label)
    rows = _rows(path, columns, options)
    yield from batches(str(path), consecutive(rows), options.rows, _EVIDENCE)


def _rows(path: Path, columns: Sequence[str], options: ReadOptions) -> Iterator[RolloutRow]:
    archived = _ARCHIVED if "archive.program_id" in columns else str(UNKNOWN)
    with read_only(path) as connection:
        for program in connection.execute(_PROGRAMS.format(admitted=archived)):
            yield _program(program, options)
        if "attempt_log.details" in columns:
            for attempt in connection.execute(_FAILED):
                yield _attempt(attempt)


def _program(row: sqlite3.Row, options: ReadOptions) -> RolloutRow:
    fitness = score(row["combined_score"])
    return RolloutRow(
        group=("program", row["position"]),
        position=int(row["position"]),
        step=count(row["generation"]),
        reward=fitness,
        response=digest(row["code"] if isinstance(row["code"], str) else None),
        label=value_at(dict(row), options.label),
        status="correct" if row["correct"] else "incorrect",
        improvement=fitness - number(row["parent_score"]),
        admitted=int(row["admitted"]),
        metrics={"correct": number(row["correct"])},
    )


def _attempt(row: sqlite3.Row) -> RolloutRow:
    """A proposal that failed before it could be evaluated: its class of failure, or the stage."""
    return RolloutRow(
        group=("attempt", row["id"]),
        position=int(row["id"]),
        step=count(row["generation"]),
        reward=NAN,
        status=_failure(row["details"]) or f"failed: {row['stage']}",
        admitted=0,
    )


def _failure(details: Any) -> str:
    try:
        return value_at(parse_json(details.encode()), "failure_class") if isinstance(details, str) else ""
    except (ValueError, RecursionError):
        return ""


FORMAT = Format(
    name="shinka",
    container=SQLITE,
    needs=tuple(
        f"programs.{name}"
        for name in ("id", "code", "parent_id", "generation", "timestamp", "combined_score", "correct")
    ),
    patterns=("*.sqlite", "*.db", "*.sqlite3"),
    read=read,
    writer="SakanaAI/ShinkaEvolve shinka/database/dbase.py "
    "9912af12d423504b8d580f4179fd15f5f88b8c50 2026-08-21",
    met="real writer: ProgramDatabase.add and record_attempt_event, called with given programs",
)

"""Logs of searches, where a group is one candidate: what they have in common, ShinkaEvolve, LLM4AD."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from search_to_signal.audit.groups import SEARCH, UNKNOWN, Assumption, RewardGroups
from search_to_signal.audit.importers.base import (
    Format,
    ReadOptions,
    read_json,
    refuse_unknown_label,
    value_at,
)
from search_to_signal.audit.importers.containers import JSON, SQLITE, read_only, table_columns
from search_to_signal.audit.importers.rows import (
    NAN,
    Evidence,
    Group,
    RolloutRow,
    batches,
    consecutive,
    count,
    digest,
    digest_of,
    rows_of,
    score,
)
from search_to_signal.audit.importers.streams import parse_json, read_document
from search_to_signal.base.errors import RecordError


@dataclass(frozen=True)
class Told:
    """What is said of a log once a count of ``names[0]`` is above 0, with the counts of all names."""

    key: str
    says: str
    names: tuple[str, ...]


COPIES = Told(
    "copies",
    "copies of a program on another island are no candidates, and are left out",
    ("copies", "copies in the archive"),
)
REPEATED = Told(
    "repeated_programs",
    "a program whose id stands in the log again counts once",
    ("repetitions",),
)


@dataclass
class Tally:
    """What is counted beside the rows of a log as they are read."""

    tells: Sequence[Told]
    counts: Counter[str] = field(default_factory=Counter)
    _known: set[tuple[str, int]] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)

    def stood_before(self, kind: str, value: object) -> bool:
        """Whether an id or a number of this kind was met before; False for one that was not logged."""
        if value is None:
            return False
        entry, size = (kind, digest(str(value))), len(self._known)
        self._known.add(entry)
        return len(self._known) == size

    def assumptions(self) -> Iterator[Assumption]:
        """What was counted since the batch before."""
        for told in self.tells:
            if self.counts[told.names[0]]:
                self._told.add(told.key)
            if told.key in self._told:
                yield Assumption(told.key, told.says, {name: self.counts.pop(name, 0) for name in told.names})


def candidates(says: str, tally: Tally | None = None) -> Evidence:
    """One assumption with the numbers that a search's log is read for, and what was counted beside them."""

    def evidence(groups: Sequence[Group]) -> tuple[Assumption, ...]:
        rows = [row for group in groups for row in group]
        counts = {
            "candidates": len(rows),
            "compared": sum(not math.isnan(row.improvement) for row in rows),
            "improved": sum(row.improvement > 0.0 for row in rows),
            "admitted": sum(row.admitted == 1 for row in rows),
        }
        how = f"{says}; a higher score is better"
        return (Assumption(SEARCH, how, counts), *(tally.assumptions() if tally else ()))

    return evidence


def ended(told: str, score: float) -> str:
    """How an evaluation ended: as the log tells it, or as a failure where its score is no finite number."""
    return told if told not in ("ok", "correct") or math.isfinite(score) else f"failed: score {score}"


# ShinkaEvolve: a SQLite database with the tables programs, archive and attempt_log. A program is a candidate:
# combined_score, correct, parent_id, generation. The archive is the one at the end of the run, so a candidate
# that was kept and later pushed out counts as not admitted. What failed before it could be evaluated is in
# attempt_log (shinka/core/async_runner.py), with status ``failed`` and its class in details; databases of
# earlier versions have no such table. A copy of a program to another island is a row of its own, archived if
# it is correct, and marked in metadata: ``_is_island_copy`` (islands.copy_program_to_islands) or
# ``_spawned_island`` (a program or a subtree on a new island). It is no candidate, and may be a parent. A run
# that was killed leaves its last rows in the write-ahead log. Up to 2025 the file may be called ``None``.

_PROGRAMS = """
    SELECT child.*, child.rowid AS position, parent.combined_score AS parent_score, {admitted} AS admitted
    FROM programs AS child LEFT JOIN programs AS parent ON parent.id = child.parent_id
    ORDER BY child.generation, child.timestamp, child.rowid
"""
_ARCHIVED = "EXISTS (SELECT 1 FROM archive WHERE archive.program_id = child.id)"
_SHINKA = "a group is one candidate, improvement is over its parent, admitted is archived at the end"
_FAILED = "SELECT *, rowid AS position FROM attempt_log WHERE status = 'failed' ORDER BY generation, position"


def _read_shinka(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
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
    yield from batches(str(path), consecutive(chain([first], rows)), options.rows, candidates(_SHINKA, tally))


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
        response=digest_of(row["code"]),
        label=value_at(row, options.label),
        status=ended("correct" if correct > 0 else "incorrect", fitness),
        improvement=fitness - score(row["parent_score"]),
        admitted=row["admitted"],
        metrics={"correct": correct},
    )


def _attempt(row: dict[str, Any], position: int) -> RolloutRow:
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
    try:
        value = parse_json(text.encode()) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


SHINKA = Format(
    name="shinka",
    container=SQLITE,
    needs=tuple(
        f"programs.{name}"
        for name in ("id", "code", "parent_id", "generation", "timestamp", "combined_score", "correct")
    ),
    patterns=("*.sqlite", "*.db", "*.sqlite3"),
    read=_read_shinka,
    beside=("prompts.sqlite",),
    nameless=True,
    writer="SakanaAI/ShinkaEvolve shinka/database/dbase.py "
    "9912af12d423504b8d580f4179fd15f5f88b8c50 2026-08-21",
    met="real writer: ProgramDatabase.add and record_attempt_event, called with given programs",
)


# LLM4AD: ``samples/samples_1~200.json`` and so on, one JSON list per 200 samples. A sample has sample_order,
# function and score; program except in LHNS, MLES and PartEvo; operator in most methods, algorithm in EoH and
# its kin, which leave operator out. A score of null is a failure, and nothing says which; so is one of NaN or
# -Infinity, which the search never takes. With several objectives the score is a list: ``reward`` then names
# one by its number, from 0. ``samples_best.json`` repeats samples and is not read.

_LLM4AD = (
    "a group is one candidate, and admission is not logged; improvement is over the best score before the "
    "candidate: the log names no parent"
)
_AGAIN = Told(
    "sample_orders",
    "sample orders stand again, as after a second run into one directory: its candidates count, and are "
    "compared with the best of both runs",
    ("candidates of such an order",),
)


def _read_llm4ad(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    tally = Tally((_AGAIN,))

    def grouped(rows: Iterable[RolloutRow]) -> Iterator[Group]:
        return consecutive(_over_the_best(rows, _best_before(path, options), tally))

    def row(record: dict[str, Any], position: int) -> RolloutRow:
        given = record.get("score")
        reward = _objective(path, given, options.reward)
        return RolloutRow(
            group=position,
            position=position,
            step=count(record.get("sample_order")),
            reward=reward,
            response=digest_of(record.get("function")),
            label=value_at(record, options.label or "operator"),
            status=ended("failed" if given is None else "ok", reward),
        )

    return read_json(path, options, row, grouped, candidates(_LLM4AD, tally))


def _best_before(path: Path, options: ReadOptions) -> float:
    log = LLM4AD.files(path.parent)
    earlier = log[: log.index(path)] if path in log else []
    scores = chain.from_iterable(
        rows_of(
            file,
            enumerate(read_document(file)),
            lambda record, _: _objective(path, record.get("score"), options.reward),
        )
        for file in earlier
    )
    return max(filter(math.isfinite, scores), default=-math.inf)


def _over_the_best(rows: Iterable[RolloutRow], best: float, tally: Tally) -> Iterator[RolloutRow]:
    """Candidates in order with their improvement over the best finite score before, ``best`` at first."""
    for row in rows:
        again = tally.stood_before("order", None if row.step == UNKNOWN else row.step)
        tally.counts["candidates of such an order"] += again
        compared = math.isfinite(best) and math.isfinite(row.reward)
        yield replace(row, improvement=row.reward - best) if compared else row
        best = max(best, row.reward) if math.isfinite(row.reward) else best


def _objective(path: Path, recorded: object, objective: str | None) -> float:
    if not isinstance(recorded, list):
        if objective is not None and recorded is not None:
            raise RecordError(f"{path}: a score is one number, without a name: leave `reward` out")
        return score(recorded)
    if objective is None or not re.fullmatch(r"\d+", objective) or int(objective) >= len(recorded):
        raise RecordError(
            f"{path}: a score has {len(recorded)} objectives; name one of them as `reward`, from 0 on"
        )
    return score(recorded[int(objective)]) if recorded else NAN


LLM4AD = Format(
    name="llm4ad",
    container=JSON,
    needs=("sample_order", "function", "score"),
    patterns=("samples/samples_*~*.json", "samples_*~*.json", "*/samples/samples_*~*.json"),
    run=r".*(?=/samples/samples_)",
    read=_read_llm4ad,
    several=True,
    writer="Optima-CityU/LLM4AD llm4ad/tools/profiler/profile.py "
    "e8d848fea67db0626a1669718685afbe338547b2 2026-04-15",
    met="real writer: _write_json of ProfilerBase and EoHProfiler, called with given functions",
)

"""Logs of searches, where a group is one candidate: ShinkaEvolve, LLM4AD, and OpenEvolve (codelion/openevolve
before) by its evolution trace and its checkpoints.

Of OpenEvolve read beside what the formats name: utils/trace_export_utils.py, utils/metrics_utils.py
(``get_fitness_score``), process_parallel.py, evaluator.py and controller.py (``_save_checkpoint``), all at
411fb59.

Its own fitness is combined_score, and without one the mean of the numbers that are no feature of the map.
Before 0.3.2 (411fb59) truth values were averaged in, and a timeout had 0.5: a log does not name its version,
but what is dated before that commit was scored so. That fitness is the reward here.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from search_to_signal.audit.groups import SEARCH, UNKNOWN, Assumption, RewardGroups
from search_to_signal.audit.importers import containers, streams
from search_to_signal.audit.importers.base import (
    Format,
    ReadOptions,
    read_json,
    refuse_unknown_label,
    refuse_unknown_reward,
    value_at,
)
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
    number,
    numbers,
    rows_of,
    score,
)
from search_to_signal.base.errors import RecordError, reason


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
    "a program whose id is in the log more than once counts once",
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
    columns = containers.table_columns(path)
    names = {name.partition(".")[2]: None for name in columns if name.startswith("programs.")}
    refuse_unknown_label(path, names, options.label)
    tally = Tally((COPIES,))
    rows = _rows(path, columns, options, tally)
    first = next(rows, None)
    if first is None:
        raise RecordError(
            f"{path} holds no groups: no program is in it; if the run was killed, its programs are in "
            f"{path.name}-wal: put the whole of that file into the same directory"
        )
    yield from batches(str(path), consecutive(chain([first], rows)), options.rows, candidates(_SHINKA, tally))


def _rows(path: Path, columns: Sequence[str], options: ReadOptions, tally: Tally) -> Iterator[RolloutRow]:
    archived = _ARCHIVED if "archive.program_id" in columns else str(UNKNOWN)
    with containers.read_only(path) as connection:
        for row in map(dict, connection.execute(_PROGRAMS.format(admitted=archived))):
            metadata = streams.json_object(row.get("metadata"))
            copied = bool(metadata.get("_is_island_copy") or metadata.get("_spawned_island"))
            tally.counts["copies"] += copied
            tally.counts["copies in the archive"] += copied and row["admitted"] == 1
            if not copied:
                yield from rows_of(path, [(row["position"], row)], partial(_program, options))
        if "attempt_log.details" in columns:
            attempts = map(dict, connection.execute(_FAILED))
            yield from rows_of(path, ((row["position"], row) for row in attempts), _attempt)


def _program(options: ReadOptions, row: dict[str, Any], position: int) -> RolloutRow:
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
    failure = value_at(streams.json_object(row["details"]), "failure_class") or row["stage"]
    return RolloutRow(
        group=("attempt", position),
        position=position,
        step=count(row["generation"]),
        reward=NAN,
        status=f"failed: {failure}",
        admitted=0,
    )


SHINKA = Format(
    name="shinka",
    container=containers.SQLITE,
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
    "sample orders repeat, as after a second run into one directory: its candidates count, and are "
    "compared with the best of both runs",
    ("candidates of such an order",),
)


def _read_llm4ad(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    tally = Tally((_AGAIN,))

    def grouped(rows: Iterable[RolloutRow]) -> Iterator[Group]:
        return consecutive(_over_the_best(rows, _best_before(path, options), tally))

    def row(_: Path, options: ReadOptions, record: dict[str, Any], position: int) -> RolloutRow:
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
            enumerate(streams.read_document(file)),
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
    container=containers.JSON,
    needs=("sample_order", "function", "score"),
    patterns=("samples/samples_*~*.json", "samples_*~*.json", "*/samples/samples_*~*.json"),
    run=r".*(?=/samples/samples_)",
    read=_read_llm4ad,
    takes=("reward",),
    writer="Optima-CityU/LLM4AD llm4ad/tools/profiler/profile.py "
    "e8d848fea67db0626a1669718685afbe338547b2 2026-04-15",
    met="real writer: _write_json of ProfilerBase and EoHProfiler, called with given functions",
)


# The trace, ``evolution_trace.jsonl`` (also ``.jsonl.gz``) or ``.json``, is off by default: one candidate per
# line, in the order in which they finished. A proposal that gave no program is never traced; a program whose
# evaluation failed is, with metrics ``{"error": 0.0}``, or ``{"error": 0.0, "timeout": true}``; a later stage
# that failed leaves ``stage2_passed`` 0 beside the scores of the first. A trace made of a checkpoint holds
# the copies that migrated, too. It does not name the features of the map, so those of the default are taken,
# nor whether the population kept a candidate.

# The dimensions of the map where a run does not name others.
_FEATURES = ("complexity", "diversity")
_EARLIER_RULE = Told(
    "earlier_fitness",
    "since OpenEvolve 0.3.2 (411fb59, 2026-07-18) truth values are no scores: candidates dated before it are "
    "read by the earlier rule, which averaged them in, and all others by the new one",
    ("candidates that differ", "dated before", "improved by the new rule", "improved by the earlier rule"),
)
# Unix times of OpenEvolve's first commit and of 411fb59: what is dated between them had the earlier rule.
_FIRST, _SINCE = 1747309612, 1784380547
_RESUMED = Told(
    "resumed",
    "iterations repeat with another program, as after a resume from a checkpoint: all of them count",
    ("candidates of such an iteration",),
)
_TRACED = "a group is one candidate, improvement is over its parent, and admission is not logged"


def _read_trace(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    tally = Tally((COPIES, REPEATED, _RESUMED, _EARLIER_RULE))
    return read_json(
        path,
        options,
        partial(_trace_row, tally),
        lambda rows: consecutive(row for row in rows if row.group is not None),
        candidates(_TRACED, tally),
        rewards=lambda record: numbers(record.get("child_metrics")),
    )


def _trace_row(
    tally: Tally, _: Path, options: ReadOptions, record: dict[str, Any], position: int
) -> RolloutRow:
    child, parent = record.get("child_metrics"), record.get("parent_metrics")
    candidate = _is_candidate(record, tally)
    if record.get("parent_id") is None:
        parent = None
    time, counted = record.get("timestamp"), tally if candidate else None
    own, improvement = _compared(child, parent, time, options.reward, _FEATURES, counted)
    texts = (record.get("child_code"), record.get("llm_response"))
    code, answer = (text if isinstance(text, str) else None for text in texts)
    return RolloutRow(
        group=position if candidate else None,
        position=position,
        step=count(record.get("iteration")),
        reward=own,
        response=digest(code or answer),
        label=value_at(record, options.label),
        status=ended(_status(child), own),
        improvement=improvement,
        metrics=numbers(child),
    )


def _is_candidate(record: Mapping[str, Any], tally: Tally) -> bool:
    copied = bool(_metadata(record).get("migrant"))
    repeated = tally.stood_before("child", record.get("child_id"))
    tally.counts["copies"] += copied
    tally.counts["repetitions"] += repeated and not copied
    if copied or repeated:
        return False
    step = count(record.get("iteration"))
    again = tally.stood_before("iteration", None if step == UNKNOWN else step)
    tally.counts["candidates of such an iteration"] += again
    return True


def _compared(
    child: object,
    parent: object,
    time: object,
    name: str | None,
    features: Collection[str],
    tally: Tally | None,
) -> tuple[float, float]:
    """Fitness of a child and what it gains over its parent, by the rule of its time; both are counted."""
    new, earlier = (
        [_fitness(metrics, name, features, flags) for metrics in (child, parent)] for flags in (False, True)
    )
    dated = _FIRST <= number(time) < _SINCE
    if tally:
        tally.counts["candidates that differ"] += repr(earlier) != repr(new)
        tally.counts["dated before"] += dated
        tally.counts["improved by the new rule"] += new[0] > new[1]
        tally.counts["improved by the earlier rule"] += earlier[0] > earlier[1]
    own, before = earlier if dated else new
    return own, own - before


def _fitness(metrics: object, name: str | None, features: Collection[str], flags: bool) -> float:
    """The named metric, or the framework's fitness; NaN where no metrics were logged.

    ``features`` count only where there is nothing else, truth values only with ``flags``.
    """
    if not isinstance(metrics, Mapping):
        return NAN
    if name is not None:
        return number(metrics.get(name))
    if metrics.get("combined_score") is not None:
        # The framework converts it; where that fails it falls back to the mean, as here.
        with suppress(ValueError):
            return score(metrics["combined_score"])
    known = {
        key: value
        for key, value in numbers(metrics).items()
        if not math.isnan(value) and (flags or not isinstance(metrics[key], bool))
    }
    counted = [value for key, value in known.items() if key not in features] or list(known.values())
    return sum(counted) / len(counted) if counted else 0.0


def _status(metrics: object) -> str:
    """How an evaluation ended. An error is a text, or a number where nothing was measured beside it."""
    if not isinstance(metrics, Mapping) or not metrics:
        return "failed: no metrics"
    if metrics.get("timeout") == 1:
        return "timeout"
    error = metrics.get("error")
    if isinstance(error, int | float) and not isinstance(error, bool):
        error = not any(numbers(metrics, without=("error", "timeout")).values())
    unpassed = any(re.fullmatch(r"stage\d+_passed", str(key)) and metrics[key] == 0 for key in metrics)
    return "error" if error or unpassed else "ok"


TRACE = Format(
    name="openevolve",
    container=containers.JSONL,
    needs=("iteration", "parent_id", "child_id", "parent_metrics", "child_metrics"),
    patterns=("evolution_trace*.jsonl", "*/evolution_trace*.jsonl"),
    read=_read_trace,
    takes=("reward",),
    run=r".*/(?=evolution_trace)",
    writer="algorithmicsuperintelligence/openevolve openevolve/evolution_trace.py "
    "411fb59c886c18704caaffb611e17cf9e7d824d2 2026-07-18",
    met="real writer: EvolutionTracer, called with given programs",
)
TRACE_JSON = replaced(
    TRACE,
    name="openevolve-json",
    container=containers.JSON,
    patterns=("evolution_trace*.json", "*/evolution_trace*.json"),
)


# A checkpoint is ``checkpoints/checkpoint_N/metadata.json`` and the ``programs/*.json`` beside it; every run
# writes them. It holds the programs of the population at that time, so the last one is read; what the
# population had dropped before is in none, or in an earlier one. A program copied to another island
# (``migrate_programs``, ``_sample_exploration_parent``) has a new id and ``migrant`` in its metadata, or the
# generation of its parent: it is no candidate. The features of the map are those of ``feature_stats``.
# Metrics may be Infinity, NaN or texts. The archive takes any program until it is full, a failed one too.

Program = dict[str, Any]
_CHECKPOINT = (
    "a group is one program of the last checkpoint, which lacks the programs that the population dropped; "
    "improvement is over the parent, admission is to the archive"
)
_EMPTY = Told("empty_islands", "islands of the checkpoint hold no program", ("empty", "islands"))
_GONE = Told("archive", "ids of the archive are of no program in the checkpoint", ("unknown", "archived"))


@dataclass(frozen=True)
class _Checkpoint:
    """Programs by id, in the order in which they were found, and what the metadata say of them."""

    programs: Mapping[str, Program]
    archive: frozenset[str]
    features: frozenset[str]

    def parent(self, program: Program) -> Program | None:
        parent = program.get("parent_id")
        return None if parent is None else self.programs.get(str(parent))

    def is_copy(self, program: Program) -> bool:
        """A program that migrated, or one that was put on an empty island: a child is a generation on."""
        parent, generation = self.parent(program) or {}, program.get("generation")
        same = generation is not None and parent.get("generation") == generation
        return bool(_metadata(program).get("migrant")) or (same and parent.get("code") == program.get("code"))


def _read_checkpoint(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    metadata = streams.first_record(path)
    known = [_loaded(file) for file in sorted((path.parent / "programs").glob("*.json"))]
    refuse_unknown_label(path, next(iter(known), {}), options.label)
    if options.reward is not None:
        measured = (numbers(program.get("metrics")) for program in known)
        refuse_unknown_reward(path, options.reward, measured)
    programs: dict[str, Program] = {}
    found = (
        (count(one.get("iteration_found")), number(one.get("timestamp")), str(one.get("id"))) for one in known
    )
    for _, program in sorted(zip(found, known, strict=True), key=lambda pair: pair[0]):
        programs.setdefault(str(program.get("id")), program)
    checkpoint = _Checkpoint(
        programs,
        frozenset(map(str, _part(path, metadata, "archive", list))),
        frozenset(_part(path, metadata, "feature_stats", dict)),
    )
    tally = Tally((COPIES, REPEATED, _EMPTY, _GONE, _EARLIER_RULE))
    copies = {name for name, program in programs.items() if checkpoint.is_copy(program)}
    islands = _part(path, metadata, "islands", list)
    held = [isinstance(one, list) and any(str(name) in programs for name in one) for one in islands]
    tally.counts.update(
        {
            "copies": len(copies),
            "copies in the archive": len(checkpoint.archive.intersection(copies)),
            "repetitions": len(known) - len(programs),
            "islands": len(held),
            "empty": held.count(False),
            "archived": len(checkpoint.archive),
            "unknown": len(checkpoint.archive.difference(programs)),
        }
    )
    own = [program for name, program in programs.items() if name not in copies]
    rows = rows_of(
        path, enumerate(own), lambda program, at: _program_row(program, at, checkpoint, options, tally)
    )
    yield from batches(str(path.parent), consecutive(rows), options.rows, candidates(_CHECKPOINT, tally))


def _loaded(file: Path) -> Program:
    try:
        program = streams.parse_json(streams.start_of(file, -1))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{file}: no program ({reason(error)}); copy the checkpoint again") from error
    if not isinstance(program, dict):
        raise RecordError(f"{file}: no program, which is a JSON object; copy the checkpoint again")
    return program


def _part(path: Path, metadata: Mapping[str, Any], name: str, kind: type) -> Any:
    """A list or object of the metadata; empty where it is null or missing."""
    value = metadata.get(name)
    if value is not None and not isinstance(value, kind):
        what = "list" if kind is list else "object"
        raise RecordError(f"{path}: {name} is no {what}, as a checkpoint has it; copy the checkpoint again")
    return kind() if value is None else value


def _metadata(program: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = program.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _program_row(
    program: Program, position: int, checkpoint: _Checkpoint, options: ReadOptions, tally: Tally
) -> RolloutRow:
    parent, metrics = checkpoint.parent(program), program.get("metrics")
    before = _metadata(program).get("parent_metrics") if parent is None else parent.get("metrics")
    time, features = program.get("timestamp"), checkpoint.features
    own, improvement = _compared(metrics, before, time, options.reward, features, tally)
    return RolloutRow(
        group=position,
        position=position,
        step=count(program.get("iteration_found")),
        reward=own,
        response=digest_of(program.get("code")),
        label=value_at(program, options.label),
        status=ended(_status(metrics), own),
        improvement=improvement,
        admitted=int(str(program.get("id")) in checkpoint.archive),
        metrics=numbers(metrics),
    )


CHECKPOINT = Format(
    name="openevolve-checkpoint",
    container=containers.JSONL,
    needs=("islands", "archive", "best_program_id", "island_generations"),
    patterns=(
        "metadata.json",
        "checkpoint_*/metadata.json",
        "checkpoints/checkpoint_*/metadata.json",
        "*/checkpoints/checkpoint_*/metadata.json",
    ),
    read=_read_checkpoint,
    takes=("reward",),
    newest=True,
    run=r".*(?=checkpoint_[^/]*/metadata\.json)",
    writer="algorithmicsuperintelligence/openevolve openevolve/database.py "
    "411fb59c886c18704caaffb611e17cf9e7d824d2 2026-07-18",
    met="real writer: ProgramDatabase.save, called with given programs",
)

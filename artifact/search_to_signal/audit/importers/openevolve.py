"""OpenEvolve (codelion/openevolve before): its evolution trace, and its checkpoints.

Read beside what the formats name: utils/trace_export_utils.py, utils/metrics_utils.py
(``get_fitness_score``), process_parallel.py, evaluator.py and controller.py (``_save_checkpoint``), all at
411fb59.

The framework's own fitness is combined_score, and without one the mean of the numbers that are no feature of
the map. Before 0.3.2 (411fb59) truth values were averaged in, and a timeout had 0.5: a log does not name its
version, but what is dated before that commit was scored so. That fitness is the reward here.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import UNKNOWN, RewardGroups
from search_to_signal.audit.importers.base import (
    Format,
    ReadOptions,
    read_json,
    refuse_unknown_label,
    refuse_unknown_reward,
    value_at,
)
from search_to_signal.audit.importers.containers import JSON, JSONL
from search_to_signal.audit.importers.rows import (
    NAN,
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
from search_to_signal.audit.importers.searches import COPIES, REPEATED, Tally, Told, candidates, ended
from search_to_signal.audit.importers.streams import first_record, parse_json, start_of
from search_to_signal.base.errors import RecordError, reason

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
    "iterations stand again with another program, as after a resume from a checkpoint: all of them count",
    ("candidates of such an iteration",),
)
_SAYS = "a group is one candidate, improvement is over its parent, and admission is not logged"


def _read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    tally = Tally((COPIES, REPEATED, _RESUMED, _EARLIER_RULE))
    return read_json(
        path,
        options,
        partial(_row, options=options, tally=tally),
        lambda rows: consecutive(row for row in rows if row.group is not None),
        candidates(_SAYS, tally),
        rewards=lambda record: numbers(record.get("child_metrics")),
    )


def _row(record: dict[str, Any], position: int, options: ReadOptions, tally: Tally) -> RolloutRow:
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
    metadata = record.get("metadata")
    copied = isinstance(metadata, Mapping) and bool(metadata.get("migrant"))
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
    container=JSONL,
    needs=("iteration", "parent_id", "child_id", "parent_metrics", "child_metrics"),
    patterns=("evolution_trace*.jsonl", "*/evolution_trace*.jsonl"),
    read=_read,
    several=True,
    run=r".*/(?=evolution_trace)",
    writer="algorithmicsuperintelligence/openevolve openevolve/evolution_trace.py "
    "411fb59c886c18704caaffb611e17cf9e7d824d2 2026-07-18",
    met="real writer: EvolutionTracer, called with given programs",
)
TRACE_JSON = replace(
    TRACE,
    name="openevolve-json",
    container=JSON,
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
    "a group is one program of the last checkpoint: those that the population had dropped are not in it; "
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
    metadata = first_record(path)
    known = [_program(file) for file in sorted((path.parent / "programs").glob("*.json"))]
    refuse_unknown_label(path, next(iter(known), {}), options.label)
    if options.reward is not None:
        measured = (numbers(program.get("metrics")) for program in known)
        refuse_unknown_reward(path, options.reward, measured)
    programs: dict[str, Program] = {}
    for program in sorted(known, key=_order):
        programs.setdefault(str(program.get("id")), program)
    checkpoint = _Checkpoint(
        programs,
        frozenset(map(str, _part(path, metadata, "archive", list))),
        frozenset(_part(path, metadata, "feature_stats", dict)),
    )
    tally = _tally(checkpoint, _part(path, metadata, "islands", list), len(known))
    own = [program for program in programs.values() if not checkpoint.is_copy(program)]
    rows = rows_of(
        path, enumerate(own), lambda program, at: _program_row(program, at, checkpoint, options, tally)
    )
    yield from batches(str(path.parent), consecutive(rows), options.rows, candidates(_CHECKPOINT, tally))


def _program(file: Path) -> Program:
    try:
        program = parse_json(start_of(file, -1))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{file}: no program ({reason(error)}); copy the checkpoint again") from error
    if not isinstance(program, dict):
        raise RecordError(f"{file}: no program, which is a JSON object; copy the checkpoint again")
    return program


def _order(program: Program) -> tuple[int, float, str]:
    return count(program.get("iteration_found")), number(program.get("timestamp")), str(program.get("id"))


def _part(path: Path, metadata: Mapping[str, Any], name: str, kind: type) -> Any:
    """A list or object of the metadata; empty where it is null or missing."""
    value = metadata.get(name)
    if value is not None and not isinstance(value, kind):
        what = "list" if kind is list else "object"
        raise RecordError(f"{path}: {name} is no {what}, as a checkpoint has it; copy the checkpoint again")
    return kind() if value is None else value


def _metadata(program: Program) -> Mapping[str, Any]:
    metadata = program.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _tally(checkpoint: _Checkpoint, islands: Sequence[object], files: int) -> Tally:
    tally = Tally((COPIES, REPEATED, _EMPTY, _GONE, _EARLIER_RULE))
    copies = [name for name, program in checkpoint.programs.items() if checkpoint.is_copy(program)]
    held = [
        isinstance(island, list) and any(str(name) in checkpoint.programs for name in island)
        for island in islands
    ]
    tally.counts.update(
        {
            "copies": len(copies),
            "copies in the archive": len(checkpoint.archive.intersection(copies)),
            "repetitions": files - len(checkpoint.programs),
            "islands": len(held),
            "empty": held.count(False),
            "archived": len(checkpoint.archive),
            "unknown": len(checkpoint.archive.difference(checkpoint.programs)),
        }
    )
    return tally


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
    container=JSONL,
    needs=("islands", "archive", "best_program_id", "island_generations"),
    patterns=(
        "metadata.json",
        "checkpoint_*/metadata.json",
        "checkpoints/checkpoint_*/metadata.json",
        "*/checkpoints/checkpoint_*/metadata.json",
    ),
    read=_read_checkpoint,
    several=True,
    newest=True,
    run=r".*(?=checkpoint_[^/]*/metadata\.json)",
    writer="algorithmicsuperintelligence/openevolve openevolve/database.py "
    "411fb59c886c18704caaffb611e17cf9e7d824d2 2026-07-18",
    met="real writer: ProgramDatabase.save, called with given programs",
)

"""OpenEvolve's evolution trace: ``evolution_trace.jsonl`` (also ``.jsonl.gz``), or ``.json``; off by default.

Read: codelion/openevolve, openevolve/evolution_trace.py, utils/trace_export_utils.py,
utils/metrics_utils.py, process_parallel.py and evaluator.py, 75bc29894b188b2434bf32c0db601f9dfbb41d5f,
2025-12-24.

One candidate per line, in the order in which they finished. A proposal that gave no program is never
traced; a program whose evaluation failed is, with metrics ``{"error": 0.0}``, or ``{"error": 0.0,
"timeout": true}``. The framework's own fitness is combined_score, and without one the mean of all numbers,
truth values among them: a timeout has fitness 0.5. That fitness is the reward here. Whether the population
kept a candidate is not logged.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.importers.base import (
    Format,
    ReadOptions,
    read_json,
    refuse_unknown_reward,
    value_at,
)
from search_to_signal.audit.importers.candidates import candidates
from search_to_signal.audit.importers.containers import JSON, JSONL
from search_to_signal.audit.importers.rows import RolloutRow, count, digest, numbers, score

_EVIDENCE = candidates(
    "a group is one candidate, improvement is over its parent, and admission is not logged"
)


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Candidates of a trace; raises RecordError for one that cannot be read."""
    refuse_unknown_reward(path, options.reward, lambda record: numbers(record.get("child_metrics")))
    return read_json(path, options, lambda record, at: _row(record, at, options), evidence=_EVIDENCE)


def _row(record: dict[str, Any], position: int, options: ReadOptions) -> RolloutRow:
    child, parent = record.get("child_metrics"), record.get("parent_metrics")
    own_fitness = fitness(child, options.reward)
    return RolloutRow(
        group=position,
        position=position,
        step=count(record.get("iteration")),
        reward=own_fitness,
        response=digest(_text(record.get("child_code")) or _text(record.get("llm_response"))),
        label=value_at(record, options.label),
        status=status(child),
        improvement=own_fitness - fitness(parent, options.reward),
        metrics=numbers(child),
    )


def fitness(metrics: object, name: str | None) -> float:
    """The named metric, or the framework's fitness: combined_score, or else the mean of the numbers."""
    values = numbers(metrics)
    if name is not None:
        return values.get(name, math.nan)
    if isinstance(metrics, Mapping) and "combined_score" in metrics:
        # The framework converts it; where that fails it falls back to the mean, as here.
        with suppress(ValueError):
            return score(metrics["combined_score"])
    known = [value for value in values.values() if not math.isnan(value)]
    return sum(known) / len(known) if known else 0.0


def status(metrics: object) -> str:
    """How an evaluation ended; an error may be a number or a text."""
    if not isinstance(metrics, Mapping):
        return ""
    return "timeout" if metrics.get("timeout") is True else "error" if "error" in metrics else "ok"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


FORMAT = Format(
    name="openevolve",
    container=JSONL,
    needs=("iteration", "parent_id", "child_id", "parent_metrics", "child_metrics"),
    patterns=("evolution_trace.jsonl*",),
    read=read,
    several=True,
    writer="codelion/openevolve openevolve/evolution_trace.py "
    "75bc29894b188b2434bf32c0db601f9dfbb41d5f 2025-12-24",
    met="real writer: EvolutionTracer, called with given programs",
)
JSON_FORMAT = replace(FORMAT, name="openevolve-json", container=JSON, patterns=("evolution_trace.json",))

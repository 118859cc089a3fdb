"""prime-rl's episodes: ``rollouts/step_N/{train,eval}/{all,effective}/traces.jsonl``, one episode per line.

Read: PrimeIntellect-ai/prime-rl, src/prime_rl/monitors/file.py, src/prime_rl/orchestrator/metrics.py,
orchestrator.py and algo/routing.py, 559b44772e471d1538537b8805cc77f3824a5e64, 2026-08-21;
PrimeIntellect-ai/verifiers, verifiers/v1/episode.py and trace.py, a60a606ecc4d309247edf9ff92c3eabca362781f,
2026-08-21.

``all`` gets every episode when it arrives, so groups are interleaved and carry no advantage; its step is
the batch that was being collected. ``effective`` is what was trained, and ``traces[].info.advantage`` there
is the mean of the nonzero token advantages. A reward is a score times a weight, by name. Absent values are
left out of the JSON. An episode that failed before its first trace is kept as a row without a reward. Below
a directory the trained episodes are read where there are any; give another folder to read that one.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from search_to_signal.audit.groups import UNKNOWN, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, refuse_unknown_label, value_at
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.gathering import gathered
from search_to_signal.audit.importers.lines import first_record, read_lines
from search_to_signal.audit.importers.rows import (
    NAN,
    RolloutRow,
    batches,
    digest,
    number,
    numbers,
    rows_of,
    score,
)


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Groups of one file; raises RecordError for a line that cannot be read."""
    first = first_record(path)
    refuse_unknown_label(path, {**first, **_first_trace(first)}, options.label)
    folder = re.search(r"step_(\d+)", path.as_posix())
    step = int(folder.group(1)) if folder else UNKNOWN
    episodes = rows_of(path, read_lines(path), lambda record, at: list(_rows(record, at, step, options)))
    rows = (row for episode in episodes for row in episode)
    yield from batches(str(path), gathered(rows), options.rows)


def _first_trace(episode: dict[str, Any]) -> dict[str, Any]:
    """The first trace of an episode that has one."""
    traces = episode.get("traces")
    first = traces[0] if isinstance(traces, list) and traces else {}
    return first if isinstance(first, dict) else {}


def _rows(episode: dict[str, Any], position: int, step: int, options: ReadOptions) -> Iterator[RolloutRow]:
    environment = value_at(episode, "env.name") or value_at(episode, "env.id")
    group = (environment, value_at(episode, "group.id") or value_at(episode, "id"))
    for trace in episode.get("traces") or [{}]:
        rewards = {
            name: given for name, given in (trace.get("rewards") or {}).items() if isinstance(given, dict)
        }
        components = {name: score(given.get("score")) for name, given in rewards.items()}
        weights = {name: number(given.get("weight", 1.0)) for name, given in rewards.items()}
        yield RolloutRow(
            group=group,
            position=position,
            step=step,
            reward=sum(components[name] * weights[name] for name in rewards) if rewards else NAN,
            advantage=score((trace.get("info") or {}).get("advantage")),
            tokens=_trained_tokens(trace),
            response=digest(_replies(trace)),
            label=value_at({**episode, **trace}, options.label),
            status=_status(trace or episode),
            components=components,
            weights=weights,
            metrics=numbers(trace.get("metrics")),
        )


def _trained_tokens(trace: dict[str, Any]) -> int:
    masks = [node["mask"] for node in trace.get("nodes") or () if node.get("mask")]
    return sum(sum(map(bool, mask)) for mask in masks) if masks else UNKNOWN


def _replies(trace: dict[str, Any]) -> str | None:
    """What the model wrote, turn after turn."""
    messages = [node.get("message") or {} for node in trace.get("nodes") or () if node.get("sampled")]
    return "\x1e".join(str(message.get("content")) for message in messages) if messages else None


def _status(record: dict[str, Any]) -> str:
    if record.get("ok"):
        return str(record.get("stop_condition") or "ok")
    errors = record.get("errors") or [{}]
    return str(errors[-1].get("type") or "failed")


FORMAT = Format(
    name="prime-rl",
    container=JSONL,
    needs=("id", "task", "ok", "traces"),
    patterns=(
        *(
            f"{below}{folder}/traces.jsonl"
            for folder in ("train/effective", "train/all", "eval/effective", "eval/all")
            for below in ("rollouts/step_*/", "step_*/", "")
        ),
        "traces.jsonl",
    ),
    read=read,
    writer="PrimeIntellect-ai/prime-rl src/prime_rl/monitors/file.py "
    "559b44772e471d1538537b8805cc77f3824a5e64 2026-08-21",
    met="real writer: FileMonitor.log_episodes, called with given episodes of verifiers 0.4.1.dev86",
)

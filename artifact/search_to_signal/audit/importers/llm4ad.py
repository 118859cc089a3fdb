"""LLM4AD's samples: ``samples/samples_1~200.json`` and so on, one JSON list per 200 samples.

Read: Optima-CityU/LLM4AD, llm4ad/tools/profiler/profile.py and llm4ad/method/eoh/profiler.py,
e8d848fea67db0626a1669718685afbe338547b2, 2026-04-15.

A sample has sample_order, function, score and program; operator in most methods, algorithm in EoH and its
kin, which leave operator out. A score of null is a failure, and nothing says which. With several objectives
the score is a list: ``reward`` then names one by its number, from 0. ``samples_best.json`` repeats samples
and is not read.
"""

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from search_to_signal.audit.groups import RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, read_json, value_at
from search_to_signal.audit.importers.candidates import candidates
from search_to_signal.audit.importers.containers import JSON
from search_to_signal.audit.importers.documents import read_document
from search_to_signal.audit.importers.rows import NAN, Group, RolloutRow, consecutive, count, digest, score
from search_to_signal.errors import RecordError

_EVIDENCE = candidates(
    "a group is one candidate, and admission is not logged; improvement is over the best score before the "
    "candidate: the log names no parent"
)


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Samples of one file; raises RecordError for one that cannot be read."""

    def grouped(rows: Iterable[RolloutRow]) -> Iterator[Group]:
        return consecutive(_over_the_best(rows, _best_before(path, options)))

    return read_json(path, options, lambda record, at: _row(path, record, at, options), grouped, _EVIDENCE)


def _row(path: Path, record: dict[str, Any], position: int, options: ReadOptions) -> RolloutRow:
    function = record.get("function")
    return RolloutRow(
        group=position,
        position=position,
        step=count(record.get("sample_order")),
        reward=_score(path, record.get("score"), options.reward),
        response=digest(function if isinstance(function, str) else None),
        label=value_at(record, options.label or "operator"),
        status="failed" if record.get("score") is None else "ok",
    )


def _best_before(path: Path, options: ReadOptions) -> float:
    """The best score in the files of the same log that come before this one."""
    log = FORMAT.files(path.parent)
    earlier = log[: log.index(path)] if path in log else []
    records = ((file, record) for file in earlier for record in read_document(file))
    scores = (_score(file, record.get("score"), options.reward) for file, record in records)
    return max(filter(math.isfinite, scores), default=-math.inf)


def _over_the_best(rows: Iterable[RolloutRow], best: float) -> Iterator[RolloutRow]:
    """Candidates in order with their improvement over the best finite score before, ``best`` at first."""
    for row in rows:
        compared = math.isfinite(best) and math.isfinite(row.reward)
        yield replace(row, improvement=row.reward - best) if compared else row
        best = max(best, row.reward) if math.isfinite(row.reward) else best


def _score(path: Path, recorded: object, objective: str | None) -> float:
    if not isinstance(recorded, list):
        if objective is not None and recorded is not None:
            raise RecordError(f"{path}: a score is one number, without a name: leave `reward` out")
        return score(recorded)
    if objective is None or not re.fullmatch(r"\d+", objective) or int(objective) >= len(recorded):
        raise RecordError(
            f"{path}: a score has {len(recorded)} objectives; name one of them as `reward`, from 0 on"
        )
    return score(recorded[int(objective)]) if recorded else NAN


FORMAT = Format(
    name="llm4ad",
    container=JSON,
    needs=("sample_order", "function", "score", "program"),
    patterns=("samples/samples_*~*.json", "samples_*~*.json"),
    read=read,
    several=True,
    writer="Optima-CityU/LLM4AD llm4ad/tools/profiler/profile.py "
    "e8d848fea67db0626a1669718685afbe338547b2 2026-04-15",
    met="real writer: _write_json of ProfilerBase and EoHProfiler, called with given functions",
)

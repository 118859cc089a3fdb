"""LLM4AD's samples: ``samples/samples_1~200.json`` and so on, one JSON list per 200 samples.

Read: Optima-CityU/LLM4AD, llm4ad/tools/profiler/profile.py and the profiler.py of every method,
e8d848fea67db0626a1669718685afbe338547b2, 2026-04-15.

A sample has sample_order, function and score; program except in LHNS, MLES and PartEvo; operator in most
methods, algorithm in EoH and its kin, which leave operator out. A score of null is a failure, and nothing
says which; so is one of NaN or -Infinity, which the search never takes. With several objectives the score is
a list: ``reward`` then names one by its number, from 0. ``samples_best.json`` repeats samples and is not
read.
"""

import math
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from search_to_signal.audit.groups import UNKNOWN, RewardGroups
from search_to_signal.audit.importers.base import Format, ReadOptions, read_json, value_at
from search_to_signal.audit.importers.candidates import Tally, Told, candidates, ended
from search_to_signal.audit.importers.containers import JSON
from search_to_signal.audit.importers.documents import read_document
from search_to_signal.audit.importers.rows import (
    NAN,
    Group,
    RolloutRow,
    consecutive,
    count,
    digest,
    rows_of,
    score,
)
from search_to_signal.errors import RecordError

_SAYS = (
    "a group is one candidate, and admission is not logged; improvement is over the best score before the "
    "candidate: the log names no parent"
)
_AGAIN = Told(
    "sample_orders",
    "sample orders stand again, as after a second run into one directory: its candidates count, and are "
    "compared with the best of both runs",
    ("candidates of such an order",),
)


def read(path: Path, options: ReadOptions) -> Iterator[RewardGroups]:
    """Samples of one file; raises RecordError for one that cannot be read."""
    tally = Tally((_AGAIN,))

    def grouped(rows: Iterable[RolloutRow]) -> Iterator[Group]:
        return consecutive(_over_the_best(rows, _best_before(path, options), tally))

    def row(record: dict[str, Any], position: int) -> RolloutRow:
        return _row(path, record, position, options)

    return read_json(path, options, row, grouped, candidates(_SAYS, tally))


def _row(path: Path, record: dict[str, Any], position: int, options: ReadOptions) -> RolloutRow:
    function, given = record.get("function"), record.get("score")
    reward = _score(path, given, options.reward)
    return RolloutRow(
        group=position,
        position=position,
        step=count(record.get("sample_order")),
        reward=reward,
        response=digest(function if isinstance(function, str) else None),
        label=value_at(record, options.label or "operator"),
        status=ended("failed" if given is None else "ok", reward),
    )


def _best_before(path: Path, options: ReadOptions) -> float:
    """The best score in the files of the same log that come before this one."""
    log = FORMAT.files(path.parent)
    earlier = log[: log.index(path)] if path in log else []
    scores = chain.from_iterable(
        rows_of(
            file,
            enumerate(read_document(file)),
            lambda record, _: _score(path, record.get("score"), options.reward),
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
    needs=("sample_order", "function", "score"),
    patterns=("samples/samples_*~*.json", "samples_*~*.json", "*/samples/samples_*~*.json"),
    run=r".*(?=/samples/samples_)",
    read=read,
    several=True,
    writer="Optima-CityU/LLM4AD llm4ad/tools/profiler/profile.py "
    "e8d848fea67db0626a1669718685afbe338547b2 2026-04-15",
    met="real writer: _write_json of ProfilerBase and EoHProfiler, called with given functions",
)

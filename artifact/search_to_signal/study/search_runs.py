"""Runs of searches, from any log: scores in the order in which they were made, and what each answer cost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.groups import RewardGroups, joined
from search_to_signal.audit.importers import find, read
from search_to_signal.audit.importers.base import Format, ReadOptions, in_order
from search_to_signal.audit.importers.containers import JSON, container_of, read_only
from search_to_signal.audit.importers.rows import count, digest, digest_of, number
from search_to_signal.audit.importers.searches import CHECKPOINT, LLM4AD, SHINKA, TRACE, TRACE_JSON
from search_to_signal.audit.importers.streams import parse_json, read_document, read_lines, start_of
from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.base.numerics import Bools, Floats
from search_to_signal.records.manifest import runs_below
from search_to_signal.records.reader import COMPLETIONS, HEURISTICS, TIMINGS, read_groups, read_records
from search_to_signal.records.schema import ArchiveEvent, CompletionRecord, HeuristicRecord, StepTiming
from search_to_signal.sandbox.programs import differ_in_numbers
from search_to_signal.study.container import refuse_packed

# What an answer costs, in the order of preference: an evaluator's call, an answer, its tokens with those of
# its prompt, wall time.
UNITS = ("calls", "answers", "tokens", "seconds")
_TRACES = (TRACE, TRACE_JSON)
_SEARCHES = (*_TRACES, CHECKPOINT, SHINKA, LLM4AD)
_SUCCEEDED = ("ok", "correct")
# Sums of the same costs in another order differ in their last bits.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class SearchRun:
    """One run of a search: R answers in order.

    name     what the log is called
    start    score of the program that the search began with; NaN where not logged
    score    (R,) -infinity for an answer that failed; higher is better
    step     (R,) equal for neighbours that were made together
    cost     by unit (R,) what each answer took; only units that the log has
    first    (R,) the untrained model's answer to a prompt of which the start is the only parent
    retuned  (R,) the start with other numbers
    problem  ours by name, with the code of the ``seed``; both empty for another's
    """

    name: str
    start: float
    score: Floats
    step: NDArray[np.int64]
    cost: Mapping[str, Floats]
    first: Bools
    retuned: Bools
    problem: str = ""
    seed: str = ""

    def total(self, unit: str) -> float:
        """What all answers took."""
        return float(self.cost[unit].sum())

    def best(self, unit: str | None = None, budget: float = np.inf) -> float:
        """The best score within a budget, by whole steps, the start included; -infinity for none."""
        kept = len(self.score)
        if unit is not None:
            ends = np.flatnonzero(np.diff(self.step, append=self.step[-1] + 1))
            spent = np.cumsum(self.cost[unit])[ends]
            kept = int(np.append(0, ends + 1)[np.searchsorted(spent, budget * (1 + _ROUNDING), side="right")])
        return float(np.fmax(self.score[:kept].max(initial=-np.inf), self.start))


def read_runs(paths: Iterable[Path], reward: str | None = None) -> tuple[SearchRun, ...]:
    """The runs at paths, those below a directory in the order of their names.

    ``reward`` names the score where a log has several. Raises RecordError for a path without a log,
    RunDirectoryError for packed runs.
    """
    runs = []
    for path in paths:
        for place in _places(path):
            own = (place / COMPLETIONS).is_file()
            runs.append(_own(place) if own else _foreign(place, ReadOptions(reward=reward)))
    if empty := next((run.name for run in runs if not len(run.score)), None):
        raise RecordError(f"{empty} holds no answer: give a run that has begun")
    return tuple(runs)


def _places(path: Path) -> list[Path]:
    """A log, or the logs of several runs below a directory."""
    if not path.is_dir():
        return [path]
    refuse_packed(path, "s2s worth")
    if own := [run for run in runs_below(path) if (run / COMPLETIONS).is_file()]:
        return in_order(path, own) if own != [path] else own
    try:
        find(path)
    except RecordError:
        below = in_order(path, (one for one in path.iterdir() if one.is_dir()))
        found = [one for one in below if _holds_log(one)]
        if not found:
            raise
        return found
    return [path]


def _holds_log(directory: Path) -> bool:
    try:
        return bool(find(directory))
    except (RecordError, ConfigError):
        return False


# Runs of this package. A learner moves after its first group at the earliest, so that one is untrained.


def _own(run: Path) -> SearchRun:
    records = [record for group in read_groups(run) for record in group]
    step = np.array([record.step for record in records], dtype=np.int64)
    programs = [*read_records(run / HEURISTICS, HeuristicRecord)] if (run / HEURISTICS).is_file() else []
    codes = {one.id: one.code for one in programs}
    shown = set(records[0].parents) if records else set()
    seed = next((one.code for one in programs if one.operator is None), "")
    untrained = step == step.min(initial=0) if any(one.reward is not None for one in records) else True
    return SearchRun(
        name=run.name,
        start=_number(records[0].frontier) if records else np.nan,
        score=np.array([_score(record) for record in records]),
        step=step,
        cost={unit: cost for unit, cost in _own_costs(run, records, step).items() if cost is not None},
        first=np.array([set(record.parents) <= shown for record in records], dtype=np.bool_) & untrained,
        retuned=_retuned([codes.get(record.program_sha256 or "", "") for record in records], seed),
        problem=records[0].problem if records else "",
        seed=seed,
    )


def _own_costs(
    run: Path, records: Sequence[CompletionRecord], step: NDArray[np.int64]
) -> dict[str, Floats | None]:
    seconds = None
    if (run / TIMINGS).is_file():
        total = {one.step: one.seconds["total"] for one in read_records(run / TIMINGS, StepTiming)}
        _, place, size = np.unique(step, return_inverse=True, return_counts=True)
        if total.keys() >= set(step.tolist()):
            seconds = np.array([total[one] for one in step.tolist()]) / size[place]
    return {
        "calls": np.array([record.outcome.evaluated for record in records], dtype=np.float64),
        "answers": np.ones(len(records)),
        "tokens": np.array([one.prompt_tokens + one.completion_tokens for one in records], dtype=np.float64),
        "seconds": seconds,
    }


def _score(record: CompletionRecord) -> float:
    valid = record.score is not None and record.archive_event is not ArchiveEvent.INVALID
    return _number(record.score) if valid else -np.inf


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _retuned(codes: Sequence[str], seed: str) -> Bools:
    return np.array([bool(seed and code) and differ_in_numbers(code, seed) for code in codes], dtype=np.bool_)


# Logs of others. Scores and failures are the audit's; what it leaves out is read again: parents, programs,
# times. Whether the other programs of a prompt are the start is not logged: they make its answers better
# than independent ones, if anything, so that a search is not called worth more for it.


class _Fact(NamedTuple):
    """What the log says of one program: its parent by code or else by id, None for the start itself."""

    key: tuple[int, int]
    parent: str | None
    code: str
    time: float


def _foreign(path: Path, options: ReadOptions) -> SearchRun:
    form, files = find(path)
    groups = joined(*read(path, form.name, options))
    facts = {fact.key: fact for fact in _facts(form, files)}
    keys = zip(groups.step[groups.group].tolist(), groups.response.tolist(), strict=True)
    known = [facts.get(key) if key[1] else None for key in keys]
    roots = np.array([fact is not None and fact.parent is None for fact in known])
    parents = [fact.parent if fact else None for fact in known]
    begun = next((parent for parent in parents if parent is not None), None)
    codes = [fact.code if fact else "" for fact in known]
    seed = next((code for code, root in zip(codes, roots, strict=True) if root), begun or "")
    first = np.array([parent is not None and parent == begun for parent in parents])
    kept = ~roots
    given = groups.reward[roots] if roots.any() else (groups.reward - groups.improvement)[first]
    return SearchRun(
        name=path.name,
        start=next(iter(given[np.isfinite(given)].tolist()), np.nan),
        score=_scores(form, groups)[kept],
        step=np.arange(int(kept.sum())),
        cost={unit: cost[kept] for unit, cost in _costs(form, groups, known).items()},
        first=(first if begun else _first_prompts(form, groups))[kept],
        retuned=_retuned(codes, seed)[kept],
    )


def _scores(form: Format, groups: RewardGroups) -> Floats:
    failed = ~np.isfinite(groups.reward)
    if form in _SEARCHES:
        failed |= ~np.isin(groups.status.code, [*map(groups.status.names.index, _named(groups))])
    return np.where(failed, -np.inf, groups.reward)


def _named(groups: RewardGroups) -> list[str]:
    return [name for name in groups.status.names if name in _SUCCEEDED]


def _costs(form: Format, groups: RewardGroups, known: Sequence[_Fact | None]) -> dict[str, Floats]:
    ones = np.ones(len(groups.reward))
    costs = {"calls": ones, "answers": ones}
    if form is SHINKA:
        # What failed before it was evaluated has no program.
        costs["calls"] = (groups.response != 0).astype(np.float64)
    if form in _TRACES:
        # A proposal without a program is never traced.
        del costs["answers"]
    if form is CHECKPOINT:
        # The population dropped programs, which its iterations count.
        costs = {"answers": np.maximum(np.diff(groups.step, prepend=0), 0).astype(np.float64)}
    if (groups.tokens >= 0).all():
        costs["tokens"] = groups.tokens.astype(np.float64)
    times = np.array([fact.time if fact else np.nan for fact in known])
    if np.isfinite(times).all() and (np.diff(times) >= 0).all() and times[-1] > times[0]:
        costs["seconds"] = np.diff(times, prepend=times[0])
    return costs


def _first_prompts(form: Format, groups: RewardGroups) -> Bools:
    """Answers to the first prompt; of LLM4AD the first ones that the first operator asked for."""
    rows = np.arange(len(groups.reward))
    if form is LLM4AD:
        other = groups.label.code != groups.label.code[0]
        known = bool(groups.label.names[groups.label.code[0]])
        first: Bools = (rows < (int(other.argmax()) if other.any() else len(rows))) & known
        return first
    same: Bools = (groups.prompt_id == groups.prompt_id[0])[groups.group] & (groups.prompt_id[0] != 0)
    return same


def _facts(form: Format, files: Sequence[Path]) -> Iterator[_Fact]:
    if form in _TRACES:
        for file in files:
            lines = enumerate(read_document(file)) if container_of(file) == JSON else read_lines(file)
            yield from (_traced(record) for _, record in lines)
    elif form is SHINKA:
        for file in files:
            with read_only(file) as connection:
                yield from _programs(
                    map(dict, connection.execute("SELECT * FROM programs ORDER BY generation, timestamp")),
                    "generation",
                )
    elif form is CHECKPOINT:
        found = sorted((files[-1].parent / "programs").glob("*.json"))
        yield from _programs((parse_json(start_of(file, -1)) for file in found), "iteration_found")


def _traced(record: Mapping[str, Any]) -> _Fact:
    texts = (record.get("child_code"), record.get("llm_response"))
    code, answer = (text if isinstance(text, str) else None for text in texts)
    parent = record.get("parent_code") or record.get("parent_id")
    key = (count(record.get("iteration")), digest(code or answer))
    return _Fact(key, str(parent), code or "", number(record.get("timestamp")))


def _programs(rows: Iterable[Mapping[str, Any]], step: str) -> Iterator[_Fact]:
    """Programs that name their parents; one copied to another island is its original by its code."""
    programs = {str(row["id"]): row for row in rows}
    for row in programs.values():
        parent = row.get("parent_id")
        known = programs.get(str(parent), {})
        name = None if parent is None else str(known.get("code") or parent)
        key = (count(row.get(step)), digest_of(row.get("code")))
        yield _Fact(key, name, str(row.get("code") or ""), number(row.get("timestamp")))

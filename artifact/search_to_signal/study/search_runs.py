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
from search_to_signal.audit.importers.rows import count, digest_of, number
from search_to_signal.audit.importers.searches import CHECKPOINT, LLM4AD, SHINKA, TRACE, TRACE_JSON
from search_to_signal.audit.importers.streams import parse_json, read_document, read_lines, start_of
from search_to_signal.base.errors import ConfigError, RecordError
from search_to_signal.base.numerics import Bools, Floats
from search_to_signal.records.anchor import loop_seconds, recorder
from search_to_signal.records.manifest import finished_manifest, runs_below
from search_to_signal.records.reader import COMPLETIONS, HEURISTICS, TIMINGS, read_groups, read_records
from search_to_signal.records.schema import ArchiveEvent, CompletionRecord, HeuristicRecord
from search_to_signal.sandbox.programs import differ_in_numbers
from search_to_signal.study.container import refuse_packed

# What an answer costs, in the order of preference: an evaluator's call, an answer, the tokens of answer and
# prompt, wall time.
UNITS = ("calls", "answers", "tokens", "seconds")
_TRACES = (TRACE, TRACE_JSON)
_SEARCHES = (*_TRACES, CHECKPOINT, SHINKA, LLM4AD)
# What writers call the number of a step, the surest first.
_STEPS = ("iteration", "iteration_found", "generation")
# Sums of the same costs in another order differ in their last bits.
_ROUNDING = 1e-9


Steps = NDArray[np.int64]


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
    recorder what the speed depends on; empty where not logged
    """

    name: str
    start: float
    score: Floats
    step: Steps
    cost: Mapping[str, Floats]
    first: Bools
    retuned: Bools
    problem: str = ""
    seed: str = ""
    recorder: tuple[str, ...] = ()

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
    RunDirectoryError for packed runs, ConfigError for a directory with runs of several conditions.
    """
    runs = []
    for path in paths:
        for place in _places(path):
            own = (place / COMPLETIONS).is_file()
            runs.append(_own(place) if own else _foreign(place, ReadOptions(reward=reward)))
    return tuple(runs)


def _places(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    refuse_packed(path, "s2s worth")
    if own := [run for run in runs_below(path) if (run / COMPLETIONS).is_file()]:
        kinds = sorted({run.name.rpartition("-s")[0] for run in own})
        if len(kinds) > 1:
            raise ConfigError(f"{path} holds {', '.join(kinds)}: give one, as {kinds[0]}-s*[0-9] in it")
        return own if own == [path] else in_order(path, own)
    if _holds_log(path):
        return [path]
    below = in_order(path, (one for one in path.iterdir() if one.is_dir()))
    return [one for one in below if _holds_log(one)] or [path]


def _holds_log(directory: Path) -> bool:
    try:
        return bool(find(directory))
    except RecordError:
        return False


# Runs of this package. A learner moves after its first group at the earliest, so that one is untrained.


def _own(run: Path) -> SearchRun:
    records = [record for group in read_groups(run) for record in group]
    if not records:
        raise RecordError(f"{run} holds no answer: give a run that has begun")
    step = np.array([record.step for record in records], dtype=np.int64)
    programs = [*read_records(run / HEURISTICS, HeuristicRecord)] if (run / HEURISTICS).is_file() else []
    codes = {one.id: one.code for one in programs}
    seed = next((one.code for one in programs if one.operator is None), "")
    first = np.array([{*record.parents} <= {*records[0].parents} for record in records])
    if any(record.reward is not None for record in records):
        first &= step == step[0]
    score = np.array([one.score for one in records], dtype=np.float64)
    failed = np.isnan(score) | [one.archive_event is ArchiveEvent.INVALID for one in records]
    manifest = finished_manifest(run)
    return SearchRun(
        name=run.name,
        start=np.nan if records[0].frontier is None else records[0].frontier,
        score=np.where(failed, -np.inf, score),
        step=step,
        cost=_own_costs(run, records, step),
        first=first,
        retuned=_retuned([codes.get(record.program_sha256 or "", "") for record in records], seed),
        problem=records[0].problem,
        seed=seed,
        recorder=() if manifest is None else recorder(manifest),
    )


def _own_costs(run: Path, records: Sequence[CompletionRecord], step: Steps) -> dict[str, Floats]:
    tokens = [record.prompt_tokens + record.completion_tokens for record in records]
    costs = {
        "calls": np.array([record.outcome.evaluated for record in records], dtype=np.float64),
        "answers": np.ones(len(records)),
        "tokens": np.array(tokens, dtype=np.float64),
    }
    seconds = np.array(loop_seconds(run, "wall") if (run / TIMINGS).is_file() else [])
    _, place, size = np.unique(step, return_inverse=True, return_counts=True)
    if len(seconds) == len(size):
        costs["seconds"] = (seconds / size)[place]
    return costs


def _retuned(codes: Sequence[str], seed: str) -> Bools:
    return np.array([bool(seed and code) and differ_in_numbers(code, seed) for code in codes], dtype=np.bool_)


# Logs of others. Scores and failures are the audit's; what it leaves out is read again: parents, programs,
# times. A prompt with the start as parent may show other programs, too: they make its answers better than
# independent ones, if anything, so that no search is called worth more for it.


class _Fact(NamedTuple):
    """What a log says of a program: its parent by code, or else by id; None for the start itself."""

    parent: str | None
    code: str
    time: float


def _foreign(path: Path, options: ReadOptions) -> SearchRun:
    form, files = find(path)
    if form not in _SEARCHES and not form.name.startswith("neutral"):
        names = ", ".join(one.name for one in _SEARCHES)
        raise RecordError(f"{path} is of {form.name}, no search: give one of s2s, {names} or neutral")
    groups = joined(*read(path, form.name, options))
    facts = dict(_facts([*_records(form, files)]))
    keys = zip(groups.step[groups.group].tolist(), groups.response.tolist(), strict=True)
    known = [facts.get(key) if key[1] else None for key in keys]
    root = np.array([fact is not None and fact.parent is None for fact in known])
    if root.all():
        raise RecordError(f"{path} holds no answer, only the start: give a run that has begun")
    parents = [fact.parent if fact else None for fact in known]
    codes = [fact.code if fact else "" for fact in known]
    begun = next((parent for parent in parents if parent is not None), None)
    seed = next((code for code, own in zip(codes, root, strict=True) if own), begun or "")
    first = np.array([parent is not None and parent == begun for parent in parents])
    starts = groups.reward[root] if root.any() else (groups.reward - groups.improvement)[first]
    return SearchRun(
        name=path.name,
        start=next(iter(starts[np.isfinite(starts)].tolist()), np.nan),
        score=_scores(form, groups)[~root],
        step=np.arange(int((~root).sum())),
        cost={unit: cost[~root] for unit, cost in _costs(form, groups, known).items()},
        first=(_first_prompts(form, groups) if begun is None else first)[~root],
        retuned=_retuned(codes, seed)[~root],
    )


def _scores(form: Format, groups: RewardGroups) -> Floats:
    succeeded = [code for code, name in enumerate(groups.status.names) if name in ("ok", "correct")]
    failed = ~np.isin(groups.status.code, succeeded) if form in _SEARCHES else False
    return np.where(~groups.scored | failed, -np.inf, groups.reward)


def _costs(form: Format, groups: RewardGroups, known: Sequence[_Fact | None]) -> dict[str, Floats]:
    ones = np.ones(len(groups.reward))
    costs = {"calls": ones, "answers": ones}
    if form is SHINKA:
        # What failed before it was evaluated has no program.
        costs["calls"] = (groups.response != 0).astype(np.float64)
    elif form in _TRACES:
        # A proposal without a program is never traced.
        del costs["answers"]
    elif form is CHECKPOINT:
        # The population dropped programs, which its iterations count.
        costs = {"answers": np.maximum(np.diff(groups.step, prepend=0), 0).astype(np.float64)}
    if (groups.tokens >= 0).all():
        costs["tokens"] = groups.tokens.astype(np.float64)
    times = np.array([fact.time if fact else np.nan for fact in known])
    if (np.diff(times) >= 0).all() and times[-1] > times[0]:
        costs["seconds"] = np.diff(times, prepend=times[0])
    return costs


def _first_prompts(form: Format, groups: RewardGroups) -> Bools:
    """Answers to the first prompt; of LLM4AD the first ones, that the first operator asked for."""
    if form is LLM4AD and groups.label.names[groups.label.code[0]]:
        begun: Bools = np.logical_and.accumulate(groups.label.code == groups.label.code[0])
        return begun
    same: Bools = ((groups.prompt_id == groups.prompt_id[0]) & (groups.prompt_id != 0))[groups.group]
    return same


def _records(form: Format, files: Sequence[Path]) -> Iterator[Mapping[str, Any]]:
    for file in files:
        if form in _TRACES:
            lines = enumerate(read_document(file)) if container_of(file) == JSON else read_lines(file)
            yield from (record for _, record in lines)
        elif form is SHINKA:
            with read_only(file) as connection:
                yield from map(dict, connection.execute("SELECT * FROM programs ORDER BY generation"))
        elif form is CHECKPOINT:
            programs = sorted((file.parent / "programs").glob("*.json"))
            yield from (parse_json(start_of(one, -1)) for one in programs)


def _facts(records: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[int, int], _Fact]]:
    codes = {str(record["id"]): record.get("code") for record in records if "id" in record}
    for record in records:
        step = next((record[name] for name in _STEPS if name in record), None)
        code = record.get("child_code") or record.get("code")
        parent = record.get("parent_code") or record.get("parent_id")
        if parent is not None or "id" not in record:
            parent = str(codes.get(str(parent)) or parent)
        key = (count(step), digest_of(code or record.get("llm_response")))
        yield key, _Fact(parent, code or "", number(record.get("timestamp")))

"""prime-rl's episodes, one per line: what was sampled, joined with what was trained; and its token exports.

Read beside what the formats name: orchestrator/train_sink.py, orchestrator.py, metrics.py and algo/, 559b447,
2026-08-21; since prime-rl#3444 and #3465, monitors/file/traces/chunks.py,
551bfc39ba61d9f0aec59780d4a3d7e5395f1fdc, traces/update.py, 65a185848115523d2feb2e110d04d05cfbea3a08, and
orchestrator/annotations.py, 96e0cf478d0de87a1a3475f51dcf85ed3bbc00cb, all of September 2026;
PrimeIntellect-ai/verifiers, verifiers/v1/episode.py and trace.py, a60a606ecc4d309247edf9ff92c3eabca362781f,
2026-08-21.

``rollouts/step_N/{train,eval}/{all,effective}/traces.jsonl``: ``all`` gets an episode when it arrives, under
the step whose batch is being collected; ``effective`` gets the traces that a batch trained, with their
advantage. ``monitors/file/traces/stream.jsonl``, later ``stream/NNNNN.jsonl``, sealed as ``.zst``: every
episode once, evaluations among them; ``annotations`` beside it say what was trained, with which advantage.
Token floats are rounded to four decimals there; the advantage of a trace is not.

Of a run both are read: a trace that no batch trained is masked, and a group belongs to the step that trained
it, else to the first that trained anything after it had arrived. Groups that arrived after the last batch
still wait and are left out. A file by itself is read as it is. Missing: why a trace was left out, and its
advantage.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from search_to_signal.audit.groups import UNKNOWN, Assumption, RewardGroups
from search_to_signal.audit.importers import base
from search_to_signal.audit.importers.containers import JSONL
from search_to_signal.audit.importers.rows import (
    NAN,
    Group,
    RolloutRow,
    advantage,
    batches,
    count,
    digest,
    evaluated,
    noted,
    number,
    numbers,
    rows_of,
    score,
)
from search_to_signal.audit.importers.streams import first_record, read_lines
from search_to_signal.base.errors import RecordError

# One episode as rows: a trace is one, however many turns and branches it has. A reward is a score times a
# weight, by name. A trace that failed takes no part in its group: prime-rl leaves it out before means are
# taken, whatever it was given. Traces of agents that are not trained are no rows.


class Arrived(NamedTuple):
    """A trace and where it stands; an episode that failed before its first trace has an empty one."""

    position: int
    step: int
    episode: dict[str, Any]
    trace: dict[str, Any]
    # What names it in the whole run.
    id: str
    group: tuple[str, str]
    evaluation: bool


def traces(episode: dict[str, Any], position: int, step: int) -> Iterator[Arrived]:
    """The traces of an episode that can be trained."""
    name = str(episode.get("id") or position)
    environment = _of(episode, "env", "name") or _of(episode, "env", "id")
    group = (str(environment), str(_of(episode, "group", "id") or name))
    evaluation = _kind(episode) == "eval"
    for place, trace in enumerate(episode.get("traces") or [{}]):
        if _of(trace, "agent", "trainable") is not False:
            own = str(trace.get("id") or f"{name}/{place}")
            yield Arrived(position, step, episode, trace, own, group, evaluation)


def _of(record: Mapping[str, Any], name: str, inner: str) -> Any:
    value = record.get(name)
    return value.get(inner) if isinstance(value, dict) else None


def _kind(episode: dict[str, Any]) -> Any:
    for trace in episode.get("traces") or ():
        if stamped := _of(trace, "info", "kind"):
            return stamped
    run = episode.get("run") or {}
    return _of(run, "work", "type") or run.get("type")


def arrival(episode: dict[str, Any]) -> int:
    """The step that was being collected when an episode came back, else that which dispatched it."""
    for trace in episode.get("traces") or ():
        if (step := count(_of(trace.get("info") or {}, "arrival", "step"))) != UNKNOWN:
            return step
    return count(_of(episode.get("run") or {}, "work", "step"))


def credit(trace: Mapping[str, Any]) -> float | None:
    """The logged advantage of a trace, else that of its tokens."""
    logged = advantage(_of(trace, "info", "advantage"))
    if logged is not None:
        return logged
    return of_tokens(value for node in trace.get("nodes") or () for value in node.get("advantages") or ())


def of_tokens(values: Iterable[Any]) -> float | None:
    """One advantage for those of tokens, as prime-rl's own log has it: the mean of those that are not 0."""
    given = [score(value) for value in values if value is not None]
    counted = [value for value in given if value != 0.0] or given
    if not counted:
        return None
    return counted[0] if len(set(counted)) == 1 else sum(counted) / len(counted)


def row(
    one: Arrived, options: base.ReadOptions, group: Hashable, step: int, given: float | None, masked: bool
) -> RolloutRow:
    """A trace as a row, with the advantage that was given to it."""
    trace = one.trace
    rewards = {name: part for name, part in (trace.get("rewards") or {}).items() if isinstance(part, dict)}
    components = {name: score(part.get("score")) for name, part in rewards.items()}
    weights = {name: number(part.get("weight", 1.0)) for name, part in rewards.items()}
    # prime-rl left it out since it ended in an error.
    left_out = given is None and not (trace or one.episode).get("ok", True)
    nodes = trace.get("nodes") or ()
    asked = takewhile(lambda node: not node.get("sampled"), nodes)
    masks = [node["mask"] for node in nodes if node.get("mask")]
    said = [node.get("message") or {} for node in nodes if node.get("sampled")]
    return RolloutRow(
        group=group,
        name=one.group[1],
        prompt=options.prompts.add([node.get("message") for node in asked]),
        position=one.position,
        step=step,
        reward=NAN if left_out or not rewards else sum(components[name] * weights[name] for name in rewards),
        advantage=given,
        masked=masked or left_out,
        tokens=sum(sum(map(bool, mask)) for mask in masks) if masks else UNKNOWN,
        response=digest("\x1e".join(str(message.get("content")) for message in said) if said else None),
        label=base.value_at({**one.episode, **trace}, options.label),
        status=_status(trace or one.episode),
        components={} if left_out else components,
        weights={} if left_out else weights,
        metrics=numbers(trace.get("metrics")),
    )


def _status(record: dict[str, Any]) -> str:
    if record.get("ok"):
        return str(record.get("stop_condition") or "ok")
    errors = record.get("errors") or [{}]
    return str(errors[-1].get("type") or "failed")


# What prime-rl trained of what it sampled: by its ``effective`` files, or by annotations beside a stream.

_STEP = re.compile(r"step_(\d+)")


class Shipped(NamedTuple):
    """What became of a trace: the step that trained it, its advantage; ``idle``: no token of it counted.

    ``rewards`` are those that came after it had arrived.
    """

    step: int
    advantage: float | None
    idle: bool = False
    trained: bool = True
    rewards: Mapping[str, Any] = MappingProxyType({})


class Source(NamedTuple):
    """A file of episodes, and the step of its folder; ``again`` where its traces stand in others too."""

    path: Path
    step: int = UNKNOWN
    again: bool = False


@dataclass(frozen=True)
class Cohorts:
    """Files of a run in the order of arrival, and what was shipped, by step of the file and id of the trace.

    ``known``: it is known of every trace whether it was trained. ``survivors``: where traces have advantages,
    others may be missing. ``steps`` are those that were asked for, all if None.
    """

    place: Path
    sources: Sequence[Source]
    shipped: Mapping[tuple[int, str], Shipped]
    known: bool = False
    survivors: bool = False
    steps: frozenset[int] | None = None


def of_files(files: Sequence[Path], whole: bool) -> Cohorts:
    """What files of one kind hold; ``whole`` looks for the other files of their run."""
    first = files[0]
    if whole and first.parent.name == "effective" and first.parent.parent.name == "train":
        return _of_steps(files)
    chunked = first.parent.name == "stream"
    one = first if len(files) == 1 else None
    if chunked or first.name.startswith("stream"):
        shipped = _annotated((first.parent if chunked else first).parent / "annotations")
        known = any(trace.trained for trace in shipped.values())
        return Cohorts(one or first.parent, [Source(path) for path in files], shipped, known)
    sources = [Source(path, step_of(path)) for path in files]
    return Cohorts(one or _above(first), sources, {}, survivors=True)


def step_of(path: Path) -> int:
    """The step of the folder that a file is in; -1 where there is none."""
    named = (_STEP.fullmatch(folder.name) for folder in path.absolute().parents)
    return next((count(match[1]) for match in named if match), UNKNOWN)


def _above(file: Path) -> Path:
    step = next((folder for folder in file.parents if _STEP.fullmatch(folder.name)), file.parent)
    return step.parent


def _of_steps(files: Sequence[Path]) -> Cohorts:
    """``all`` and ``effective`` of every step: what arrives in one may be trained in the next."""
    root = _above(files[0])
    trained = _in_order(root, "step_*/train/effective")
    sampled = _in_order(root, "step_*/train/all")
    if not trained:
        trained, sampled = list(files), _in_order(files[0].parent.parent, "all")
    sources = [Source(path, step_of(path)) for path in sampled]
    sources += [Source(path, step_of(path), again=bool(sampled)) for path in trained]
    steps = None if set(files) >= set(trained) else frozenset(map(step_of, files))
    told = (ones for path in trained for ones in rows_of(path, read_lines(path), _shipped_by(path)))
    return Cohorts(
        root,
        sorted(sources, key=lambda source: (source.step, source.again)),
        dict(chain.from_iterable(told)),
        known=bool(sampled),
        survivors=not sampled,
        steps=steps,
    )


def _shipped_by(path: Path) -> Callable[[dict[str, Any], int], list[tuple[tuple[int, str], Shipped]]]:
    step = step_of(path)
    return lambda episode, at: [
        ((step, one.id), Shipped(step, _given(one.trace.get("info") or {}, credit(one.trace))))
        for one in traces(episode, at, step)
    ]


def _in_order(root: Path, below: str) -> list[Path]:
    return sorted(_plain_first(root.glob(f"{below}/traces.jsonl*")), key=lambda path: (step_of(path), path))


def _plain_first(files: Iterable[Path]) -> list[Path]:
    """Files of lines, packed or not; of a file and its packed copy the plain one."""
    found = set(files)
    kept = {path for path in found if path.suffix in (".jsonl", *base.PACKED)}
    return sorted(path for path in kept if path.suffix == ".jsonl" or path.with_suffix("") not in found)


def _annotated(folder: Path) -> dict[tuple[int, str], Shipped]:
    notes: dict[str, _Notes] = {}
    # One or several numbered files of each producer, packed or not, each with an index.
    found = [path for pattern in ("*.jsonl*", "*/*.jsonl*") for path in folder.glob(pattern)]
    for path in _plain_first(path for path in found if ".index." not in path.name):
        for at, update in read_lines(path):
            ((name, note),) = rows_of(path, [(at, update)], lambda record, _: _note(record))
            before = notes.get(name, _Notes())
            notes[name] = _Notes(*({**old, **new} for old, new in zip(before, note, strict=True)))
    return {(UNKNOWN, name): _shipped(note) for name, note in notes.items()}


class _Notes(NamedTuple):
    """Of a trace: what was said of it, and by branch the advantage, and whether every token was masked."""

    info: Mapping[str, Any] = MappingProxyType({})
    credits: Mapping[Any, float | None] = MappingProxyType({})
    masks: Mapping[Any, bool] = MappingProxyType({})


def _note(update: Mapping[str, Any]) -> tuple[str, _Notes]:
    branches = {branch.get("index"): branch for branch in update.get("branches") or ()}
    credits = {index: branch.get("advantages") for index, branch in branches.items()}
    masks = {
        index: [value for value in branch.get("is_masked") or () if value is not None]
        for index, branch in branches.items()
    }
    note = _Notes(
        {**(update.get("info") or {}), **{key: update[key] for key in ("rewards",) if key in update}},
        {index: of_tokens(values) for index, values in credits.items() if values},
        {index: all(mask) for index, mask in masks.items() if mask},
    )
    # What cannot be read is told of this line, not of the trace.
    _shipped(note)
    return str(update["trace_id"]), note


def _given(info: Mapping[str, Any], known: float | None) -> float | None:
    """The advantage of what was trained: the writer has null for NaN, and no key where there is none."""
    return NAN if known is None and "advantage" in info else known


def _shipped(note: _Notes) -> Shipped:
    logged = advantage(note.info.get("advantage"))
    given = _given(note.info, of_tokens(note.credits.values()) if logged is None else logged)
    step = count((note.info.get("ship") or {}).get("step"))
    trained = bool(note.info.get("effective")) or "ship" in note.info
    idle = bool(note.masks) and all(note.masks.values())
    return Shipped(step, given, idle, trained, note.info.get("rewards") or {})


# Traces of a run as groups: read once for what the groups are, and once for their rows.

Made = TypeVar("Made")
_NONE = Shipped(UNKNOWN, None, trained=False)


class Glance(NamedTuple):
    """What is read of a trace before its row: its names, its step, and what it is of."""

    id: Hashable
    group: Hashable
    step: int
    again: bool
    evaluation: bool


@dataclass(frozen=True)
class Plan:
    """The groups of a run before their rows are read: how many ``rows`` each has, and its step.

    ``ids`` and ``names``: those of traces and of groups begin again in every step. ``shipped`` is by trace.
    ``sampled`` are traces that a file of all has. ``waiting`` counts groups that are left out.
    """

    ids: bool
    names: bool
    shipped: Mapping[Hashable, Shipped]
    sampled: frozenset[Hashable]
    rows: Mapping[Hashable, int]
    steps: Mapping[Hashable, int]
    training: bool
    evaluations: int
    waiting: int


def plan_of(cohorts: Cohorts) -> Plan:
    """Raises RecordError for a line that cannot be read."""

    def glance(one: Arrived, source: Source) -> Glance:
        evaluation = one.evaluation or source.path.parent.parent.name == "eval"
        return Glance(one.id, one.group, one.step, source.again, evaluation)

    seen = list(_each(cohorts, glance))
    training = not all(one.evaluation for one in seen)
    kept = [one for one in seen if not (training and one.evaluation)]
    first = [one for one in kept if not one.again]
    several = len(cohorts.sources) > 1
    arrivals: dict[Hashable, int] = {}
    # Where a trace arrived in two steps, its name is one of its step.
    ids = any(arrivals.setdefault(one.id, one.step) != one.step for one in first)
    names = (several and cohorts.survivors) or _complete_again(first)
    shipped: dict[Hashable, Shipped] = {
        (key if ids else key[1]): what for key, what in cohorts.shipped.items()
    }
    sampled = frozenset(_key(ids, one.step, one.id) for one in first)
    rows, arrived, trained = Counter[Hashable](), dict[Hashable, int](), dict[Hashable, int]()
    for one in kept:
        trace, group = _key(ids, one.step, one.id), _key(names, one.step, one.group)
        if one.again and trace in sampled:
            continue
        rows[group] += 1
        arrived[group] = max(one.step, arrived.get(group, UNKNOWN))
        if (step := shipped.get(trace, _NONE).step) != UNKNOWN:
            trained[group] = min(step, trained.get(group, step))
    batches = sorted(set(trained.values())) if cohorts.known else []
    # A group that none trained is of the batch that was collected then: the first that was trained after.
    steps = {
        group: trained.get(group, next(iter(batches[bisect_left(batches, step) :]), step))
        for group, step in arrived.items()
    }
    late = {group for group, step in steps.items() if batches and step > batches[-1]}
    asked = {group for group in rows if cohorts.steps is None or steps[group] in cohorts.steps}
    counted = {group: rows[group] for group in rows if group in asked - late}
    waiting = len(late & asked)
    return Plan(ids, names, shipped, sampled, counted, steps, training, len(seen) - len(kept), waiting)


def groups_of(cohorts: Cohorts, plan: Plan, options: base.ReadOptions) -> Iterator[Group]:
    """Groups step by step; held are those that are open, and those of steps after an open one."""
    left, unfinished = Counter(plan.rows), Counter(plan.steps[group] for group in plan.rows)
    steps, ready = sorted(unfinished, reverse=True), defaultdict[int, list[Group]](list)
    waiting: dict[Hashable, list[RolloutRow]] = defaultdict(list)
    for one in _each(cohorts, partial(_trace_row, cohorts, plan, options)):
        if one is None:
            continue
        waiting[one.group].append(one)
        left[one.group] -= 1
        if not left[one.group]:
            ready[one.step].append(waiting.pop(one.group))
            unfinished[one.step] -= 1
            while steps and not unfinished[steps[-1]]:
                yield from ready.pop(steps.pop())


def _each(cohorts: Cohorts, make: Callable[[Arrived, Source], Made]) -> Iterator[Made]:
    """What ``make`` makes of every trace, in the order of arrival; chunks of a stream are counted on."""
    end = 0
    for source in cohorts.sources:
        before = end if source.step == UNKNOWN else 0
        each = partial(_made, source, before, make)
        for place, made in rows_of(source.path, read_lines(source.path), each):
            yield from made
            end = place


def _made(
    source: Source, before: int, make: Callable[[Arrived, Source], Made], episode: dict[str, Any], at: int
) -> tuple[int, list[Made]]:
    step = arrival(episode) if source.step == UNKNOWN else source.step
    return before + at, [make(one, source) for one in traces(episode, before + at, step)]


def _trace_row(
    cohorts: Cohorts, plan: Plan, options: base.ReadOptions, one: Arrived, source: Source
) -> RolloutRow | None:
    """The row of a trace; None for one that stands in another file, and for one that is left out."""
    trace, group = _key(plan.ids, one.step, one.id), _key(plan.names, one.step, one.group)
    evaluation = plan.training and one.evaluation
    if evaluation or group not in plan.rows or (source.again and trace in plan.sampled):
        return None
    shipped = plan.shipped.get(trace, _NONE)
    given = credit(one.trace) if shipped is _NONE else shipped.advantage
    masked = shipped.idle or (cohorts.known and not shipped.trained)
    if shipped.rewards:
        rewards = {**(one.trace.get("rewards") or {}), **shipped.rewards}
        one = one._replace(trace={**one.trace, "rewards": rewards})
    return row(one, options, group, plan.steps[group], given, masked)


def _key(again: bool, step: int, name: Hashable) -> Hashable:
    return (step, name) if again else name


def _complete_again(glances: Sequence[Glance]) -> bool:
    """Whether most groups that arrived in several steps are as large as any in two of them.

    One group that arrives over several steps is large in one of them at most; a name that is given again in
    every step is large in each.
    """
    counts: dict[Hashable, list[int]] = defaultdict(list)
    for (_, group), size in Counter((one.step, one.group) for one in glances).items():
        counts[group].append(size)
    largest = max((size for sizes in counts.values() for size in sizes), default=0)
    again = [sorted(sizes)[-2] == largest for sizes in counts.values() if len(sizes) > 1]
    return 2 * sum(again) > len(again)


_SURVIVORS = (
    "these are the trained traces only: what was sampled and filtered before does not count as waste "
    "here; it is in the directory `all` of the run, if it was kept (give that directory)"
)
_FILTERED = "a trace that was sampled and that no batch trained teaches nothing: filtered, stale or failed"
_WAITING = "groups that arrived after the last batch may still be trained, and are left out"
_EVALUATIONS = "evaluations among the episodes are left out"


def _read(cohorts: Cohorts, options: base.ReadOptions) -> Iterator[RewardGroups]:
    path = cohorts.sources[0].path
    first = first_record(path)
    found = first.get("traces")
    trace = found[0] if isinstance(found, list) and found else {}
    base.refuse_unknown_label(path, {**first, **(trace if isinstance(trace, dict) else {})}, options.label)
    plan = plan_of(cohorts)
    groups = groups_of(cohorts, plan, options)
    notes = evaluated(0 if plan.training else len(plan.rows))
    if plan.waiting:
        notes = (*notes, Assumption("waiting", _WAITING, {"groups": plan.waiting}))
    if plan.evaluations:
        notes = (*notes, Assumption("evaluations", _EVALUATIONS, {"traces": plan.evaluations}))
    evidence = partial(_evidence, cohorts)
    yield from noted(batches(str(cohorts.place), groups, options.rows, evidence, options.prompts), notes)


def _evidence(cohorts: Cohorts, groups: Sequence[Group]) -> tuple[Assumption, ...]:
    masked = sum(one.masked for group in groups for one in group)
    if cohorts.known and masked:
        counts = {"traces": sum(map(len, groups)), "not trained": masked}
        return (Assumption("filtered", _FILTERED, counts),)
    trained = sum(any(one.advantage is not None for one in group) for group in groups)
    if trained and cohorts.survivors:
        return (Assumption("survivors", _SURVIVORS, {"groups": trained}),)
    return ()


PRIME_RL = base.Format(
    name="prime-rl",
    usual="prime-rl-grpo",
    container=JSONL,
    needs=("id", "task", "ok", "traces"),
    patterns=(
        *(
            f"{below}{stream}"
            for stream in ("stream/[0-9]*.jsonl", "stream.jsonl")
            for below in ("monitors/file/traces/", "file/traces/", "traces/", "")
        ),
        *(
            f"{below}{folder}/traces.jsonl"
            for folder in ("train/effective", "train/all", "eval/effective", "eval/all")
            for below in ("rollouts/step_*/", "step_*/", "")
        ),
        "effective/traces.jsonl",
        "all/traces.jsonl",
        "traces.jsonl",
        "[0-9]*.jsonl",
    ),
    read=lambda path, options: _read(of_files([path], whole=False), options),
    joined=lambda files, options: _read(of_files(files, whole=True), options),
    writer="PrimeIntellect-ai/prime-rl src/prime_rl/monitors/file.py "
    "559b44772e471d1538537b8805cc77f3824a5e64 2026-08-21; src/prime_rl/monitors/file/monitor.py "
    "048a6e23428ea9b47feaba3c9fa75376e89a383e 2026-09",
    met="real writer: FileMonitor.log_episodes, called with given episodes of verifiers 0.4.1.dev86; "
    "reconstruction: streams and annotations after the writer's source",
)


# Token exports: ``token_exports/step_N/rank_R.jsonl``, one packed training sequence per line. Opt-in
# (``enable_token_export``); gone since prime-rl#3444, 2026-08-31, which writes annotations. Per token:
# loss_mask, advantages, log-probabilities, entropy, importance_ratio, is_masked(_high, _low), rl_weights. A
# sequence of which every token is masked by the trust region, or weighs 0, is masked. No reward and no group:
# a sequence is a group of one without a reward, and its advantage is the mean of the nonzero advantages of
# its trained tokens, as prime-rl's own episode log has it.

_COUNTED = ("is_masked", "is_masked_high", "is_masked_low")
_AVERAGED = ("importance_ratio", "mismatch_kl", "entropy", "rl_weights")


def _alone(groups: Sequence[Group]) -> tuple[Assumption, ...]:
    says = "a sequence is a group of one without a reward: token exports hold neither groups nor rewards"
    return (Assumption("sequences_alone", says, {"sequences": len(groups)}),)


def _sequence(path: Path, options: base.ReadOptions, record: dict[str, Any], position: int) -> RolloutRow:
    mask = record.get("loss_mask")
    if not isinstance(mask, list):
        raise RecordError(f"{path}:{position}: no loss_mask; the line is no token export")
    masked, weights = (_of_trained(record, name, mask) for name in ("is_masked", "rl_weights"))
    averaged = {name: _of_trained(record, name, mask) for name in _AVERAGED}
    return RolloutRow(
        group=position,
        position=position,
        step=count(record.get("step")),
        reward=NAN,
        advantage=of_tokens(_of_trained(record, "advantages", mask)),
        masked=(bool(masked) and all(masked)) or (bool(weights) and not any(weights)),
        tokens=sum(map(bool, mask)),
        response=digest(",".join(map(str, _of_trained(record, "token_ids", mask)))),
        label=base.value_at(record, options.label or "env_name"),
        metrics={
            **{name: float(sum(_of_trained(record, name, mask))) for name in _COUNTED},
            **{name: sum(values) / len(values) if values else NAN for name, values in averaged.items()},
        },
    )


def _of_trained(record: dict[str, Any], name: str, mask: Sequence[Any]) -> list[float]:
    """Values of the trained tokens; those that were not finite, or not computed, are left out."""
    pairs = zip(record.get(name) or [None] * len(mask), mask, strict=True)
    return [number(value) for value, trained in pairs if trained and value is not None]


PRIME_RL_TOKENS = base.Format(
    name="prime-rl-tokens",
    usual="prime-rl-grpo",
    container=JSONL,
    needs=("token_ids", "loss_mask", "advantages", "step"),
    patterns=("token_exports/step_*/rank_*.jsonl", "step_*/rank_*.jsonl", "rank_*.jsonl"),
    read=partial(base.read_json, row=_sequence, evidence=_alone),
    writer="PrimeIntellect-ai/prime-rl src/prime_rl/trainer/rl/token_export.py "
    "559b44772e471d1538537b8805cc77f3824a5e64 2026-08-21",
    met="real writer: TokenExporter, called with given tensors",
)

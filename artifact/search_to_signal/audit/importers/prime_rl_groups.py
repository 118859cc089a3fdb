"""Traces of a prime-rl run as groups: read once for what the groups are, and once for their rows."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from search_to_signal.audit.groups import UNKNOWN
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.audit.importers.lines import read_lines
from search_to_signal.audit.importers.prime_rl_cohorts import Cohorts, Shipped, Source
from search_to_signal.audit.importers.prime_rl_episodes import Arrived, arrival, credit, row, traces
from search_to_signal.audit.importers.rows import Group, RolloutRow, rows_of

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
    seen = list(_each(cohorts, _glance))
    training = not all(one.evaluation for one in seen)
    kept = [one for one in seen if not (training and one.evaluation)]
    first = [one for one in kept if not one.again]
    several = len(cohorts.sources) > 1
    ids, names = _begin_again(first), (several and cohorts.survivors) or _complete_again(first)
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
    steps = {group: trained.get(group, _collected(step, batches)) for group, step in arrived.items()}
    late = {group for group, step in steps.items() if batches and step > batches[-1]}
    asked = {group for group in rows if cohorts.steps is None or steps[group] in cohorts.steps}
    counted = {group: rows[group] for group in rows if group in asked - late}
    waiting = len(late & asked)
    return Plan(ids, names, shipped, sampled, counted, steps, training, len(seen) - len(kept), waiting)


def _collected(step: int, batches: Sequence[int]) -> int:
    """The step whose batch was collected at a step: the first that was trained from then on."""
    at = bisect_left(batches, step)
    return batches[at] if at < len(batches) else step


def groups_of(cohorts: Cohorts, plan: Plan, options: ReadOptions) -> Iterator[Group]:
    """Groups step by step; held are those that are open, and those of steps after an open one."""
    left, unfinished = Counter(plan.rows), Counter(plan.steps[group] for group in plan.rows)
    steps, ready = sorted(unfinished, reverse=True), defaultdict[int, list[Group]](list)
    waiting: dict[Hashable, list[RolloutRow]] = defaultdict(list)
    for one in _each(cohorts, partial(_row, cohorts, plan, options)):
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


def _glance(one: Arrived, source: Source) -> Glance:
    evaluation = one.evaluation or source.path.parent.parent.name == "eval"
    return Glance(one.id, one.group, one.step, source.again, evaluation)


def _row(
    cohorts: Cohorts, plan: Plan, options: ReadOptions, one: Arrived, source: Source
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
    """What names a trace or a group in the whole run."""
    return (step, name) if again else name


def _begin_again(glances: Iterable[Glance]) -> bool:
    """Whether a trace arrived in two steps: then its name is one of its step."""
    steps: dict[Hashable, int] = {}
    return any(steps.setdefault(one.id, one.step) != one.step for one in glances)


def _complete_again(glances: Sequence[Glance]) -> bool:
    """Whether most groups that arrived in several steps are as large as any in two of them.

    One group that arrives over several steps is large in one of them at most; a name that is given again in
    every step is large in each.
    """
    counts: dict[Hashable, list[int]] = defaultdict(list)
    for (_, group), number in Counter((one.step, one.group) for one in glances).items():
        counts[group].append(number)
    largest = max((number for numbers in counts.values() for number in numbers), default=0)
    again = [sorted(numbers)[-2] == largest for numbers in counts.values() if len(numbers) > 1]
    return 2 * sum(again) > len(again)

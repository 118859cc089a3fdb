"""One episode of prime-rl as rows: a trace is one, however many turns and branches it has.

A reward is a score times a weight, by name. A trace that failed takes no part in its group: prime-rl leaves
it out before means are taken, whatever it was given. Traces of agents that are not trained are no rows.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any, NamedTuple

from search_to_signal.audit.groups import UNKNOWN
from search_to_signal.audit.importers.base import ReadOptions, value_at
from search_to_signal.audit.importers.rows import (
    NAN,
    RolloutRow,
    advantage,
    count,
    digest,
    number,
    numbers,
    score,
)


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
    """What a record has within another; None where it has neither."""
    value = record.get(name)
    return value.get(inner) if isinstance(value, dict) else None


def _kind(episode: dict[str, Any]) -> Any:
    """What an episode was sampled for: ``train`` or ``eval``, if it says so."""
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


def failed(one: Arrived) -> bool:
    """Whether prime-rl left the trace out since it ended in an error."""
    return not (one.trace or one.episode).get("ok", True)


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
    one: Arrived, options: ReadOptions, group: Hashable, step: int, given: float | None, masked: bool
) -> RolloutRow:
    """A trace as a row, with the advantage that was given to it."""
    trace = one.trace
    rewards = {name: part for name, part in (trace.get("rewards") or {}).items() if isinstance(part, dict)}
    components = {name: score(part.get("score")) for name, part in rewards.items()}
    weights = {name: number(part.get("weight", 1.0)) for name, part in rewards.items()}
    left_out = given is None and failed(one)
    return RolloutRow(
        group=group,
        name=one.group[1],
        prompt=options.prompts.add(_prompt(trace)),
        position=one.position,
        step=step,
        reward=NAN if left_out or not rewards else sum(components[name] * weights[name] for name in rewards),
        advantage=given,
        masked=masked or left_out,
        tokens=_trained_tokens(trace),
        response=digest(_replies(trace)),
        label=value_at({**one.episode, **trace}, options.label),
        status=_status(trace or one.episode),
        components={} if left_out else components,
        weights={} if left_out else weights,
        metrics=numbers(trace.get("metrics")),
    )


def _trained_tokens(trace: dict[str, Any]) -> int:
    masks = [node["mask"] for node in trace.get("nodes") or () if node.get("mask")]
    return sum(sum(map(bool, mask)) for mask in masks) if masks else UNKNOWN


def _prompt(trace: dict[str, Any]) -> list[Any]:
    """The messages before the model's first."""
    nodes = takewhile(lambda node: not node.get("sampled"), trace.get("nodes") or ())
    return [node.get("message") for node in nodes]


def _replies(trace: dict[str, Any]) -> str | None:
    """What the model wrote, turn after turn."""
    messages = [node.get("message") or {} for node in trace.get("nodes") or () if node.get("sampled")]
    return "\x1e".join(str(message.get("content")) for message in messages) if messages else None


def _status(record: dict[str, Any]) -> str:
    if record.get("ok"):
        return str(record.get("stop_condition") or "ok")
    errors = record.get("errors") or [{}]
    return str(errors[-1].get("type") or "failed")

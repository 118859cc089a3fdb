"""Groups of rewards as flat columns: the form in which a log from anywhere is audited.

An outcome-level group (``records.groups``) knows why a completion failed and what the search held before it.
A reward-level group needs neither: it is what a trainer's normalizer saw. Sizes may differ, and a group of
one is ordinary.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from search_to_signal.base.errors import IllFormedGroupError
from search_to_signal.records.groups import OUTCOMES, GroupBatch

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

Frozen = TypeVar("Frozen", bound=NDArray[Any])

UNKNOWN = -1
# The numbers of responses from here on stand for texts that reach for what judges them.
REACHES = 2**63
# The key of an assumption on which columns are the reward, or how they are weighed.
ASSUMED_REWARD = "reward_columns"
# The key of the assumption that a column of advantages without a value is none.
EMPTY_ADVANTAGES = "empty_advantages"
# The key of the assumption that a run of this package gave no rewards because it trains nothing.
UNTRAINED = "untrained"
# The metric that counts the characters of a completion, where its tokens are not logged.
LETTERS = "characters"
# The metric that stands for the program of a completion: equal numbers mean equal programs.
PROGRAM = "same program"
# The key of the assumption that a group is one candidate of a search, which trains nothing.
SEARCH = "candidates"


@dataclass(frozen=True)
class Names:
    """A text column: ``code`` (R,) int32 counts into ``names``; the empty name means that none was logged."""

    code: NDArray[np.int32]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        _freeze(self.code)


@dataclass(frozen=True)
class Assumption:
    """What a reader took for granted because the log does not say it, with the counts that speak for it."""

    key: str
    says: str
    counts: Mapping[str, int]


@dataclass(frozen=True)
class RewardGroups:
    """N groups of together R rewards; the rows of group n are ``offsets[n]`` to ``offsets[n + 1]``.

    source       where the rows come from; one file, or the first of several that hold a step together
    offsets      (N+1,) int64    0 first, R last, never falling by a row
    step         (N,)   int64    update or iteration that the group belongs to; -1 where not logged
    position     (R,)   int64    line of a text file (from 1), or row of a table (from 0)
    reward       (R,)   float64  higher is better; as logged, so NaN and infinities may occur
    advantage    (R,)   float64  as the trainer logged it; NaN where absent
    has_advantage (R,)  bool     an advantage was logged, be it NaN
    masked       (R,)   bool     the trainer left the row out of the loss: masked, removed, filtered before
    tokens       (R,)   int64    response tokens that are trained; -1 where not logged
    response     (R,)   uint64   equal numbers mean equal response texts in the whole log; 0 where not logged;
                        from REACHES on for a text that reaches for what judges it (``rows.reaches``)
    label        the class of each row, from a column of the reader's choice
    status       how the row ended, in the framework's own words
    components   name: (R,) float64, before weighting; NaN where a component did not apply
    weights      name: weight of that component in the reward
    metrics      name: (R,) float64, logged numbers that are no part of the reward; NaN where absent
    improvement  (R,)   float64  a searched candidate's score minus its reference's; NaN where there is none
    admitted     (R,)   int8     1 and 0: the search kept the candidate or not; -1 where not logged
    name         (N,)  what the log calls each group; empty where it names none
    prompt       (N,)  one line of each prompt to recognize it by; empty where not logged
    prompt_id    (N,)   uint64   equal numbers mean equal whole prompts in the whole log; 0 where not logged
    assumptions  what the reader took for granted
    sampling     (N,)   int64    counts on where a resumed run sampled a step again; None for 0 everywhere
    file         the file of each row, where they are of several
    """

    source: str
    offsets: Integers
    step: Integers
    position: Integers
    reward: Floats
    advantage: Floats
    has_advantage: NDArray[np.bool_]
    masked: NDArray[np.bool_]
    tokens: Integers
    response: NDArray[np.uint64]
    label: Names
    status: Names
    prompt_id: NDArray[np.uint64]
    improvement: Floats
    admitted: NDArray[np.int8]
    components: Mapping[str, Floats] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, Floats] = field(default_factory=dict)
    name: tuple[str, ...] = ()
    prompt: tuple[str, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    sampling: Integers | None = None
    file: Names | None = None

    def __post_init__(self) -> None:
        offsets, rows = self.offsets, len(self.reward)
        whole = len(offsets) == len(self.step) + 1 and offsets[0] == 0 and offsets[-1] == rows
        faults = {
            "offsets do not run from 0 to the number of rewards": not whole,
            "a group is empty": bool((np.diff(offsets) < 1).any()),
            "columns differ in length": any(column.shape != (rows,) for column in _columns(self)),
            "names or prompts are not one per group": not {len(self.name), len(self.prompt)}
            <= {0, len(self.step)}
            or self.prompt_id.shape != self.step.shape,
            "a weight names no component": not set(self.weights) <= set(self.components),
        }
        for fault, present in faults.items():
            if present:
                raise IllFormedGroupError(f"{self.source}: {fault}: repair the code that made these groups")
        for name in ("components", "weights", "metrics"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        for column in _columns(self):
            _freeze(column)
        _freeze(self.offsets)
        _freeze(self.step)
        _freeze(self.prompt_id)

    @cached_property
    def sizes(self) -> Integers:
        """(N,): rewards per group."""
        return _freeze(np.diff(self.offsets))

    @cached_property
    def group(self) -> Integers:
        """(R,): the group that each row belongs to."""
        return _freeze(np.repeat(np.arange(len(self.step)), self.sizes))

    def source_of(self, row: int) -> str:
        """The file that a row stands in."""
        return self.source if self.file is None else self.file.names[self.file.code[row]]

    @property
    def scored(self) -> NDArray[np.bool_]:
        """(R,): the reward is a finite number."""
        return np.isfinite(self.reward)

    @property
    def no_number(self) -> NDArray[np.bool_]:
        """(R,): the trainer computed an advantage that is NaN or infinite."""
        return self.has_advantage & ~np.isfinite(self.advantage)

    @cached_property
    def in_loss(self) -> NDArray[np.bool_]:
        """(R,): the row enters the loss, with one trained token or more where tokens are logged."""
        trained: NDArray[np.bool_] = ~self.masked & (self.tokens != 0)
        return trained


def sorted_within(groups: RewardGroups, *keys: NDArray[Any]) -> Integers:
    """(R,): rows ordered within each group by the first key, then the second, ...; equal rows as they stand.

    Groups of one size are sorted side by side, which takes a fraction of the time.
    """
    sizes = groups.sizes
    if len(sizes) and (sizes == sizes[0]).all():
        shape = (len(sizes), int(sizes[0]))
        order = np.lexsort([key.reshape(shape) for key in reversed(keys)], axis=1)
        rows: Integers = (order + groups.offsets[:-1, None]).ravel()
    else:
        rows = np.lexsort((*reversed(keys), groups.group))
    return rows


def _columns(groups: RewardGroups) -> list[NDArray[np.generic]]:
    names = (f.name for f in fields(groups) if f.name not in _PER_GROUP)
    plain = [getattr(groups, name) for name in names]
    arrays = [column for column in plain if isinstance(column, np.ndarray)]
    named = [*groups.components.values(), *groups.metrics.values()]
    return [*arrays, *named, groups.label.code, groups.status.code]


def _freeze(column: Frozen) -> Frozen:
    column.setflags(write=False)
    return column


def numbered(values: Iterable[Hashable]) -> tuple[Integers, tuple[Any, ...]]:
    """Values (R,) by number, in order of first appearance, and the values that the numbers stand for."""
    first: dict[Hashable, int] = {}
    codes = [first.setdefault(value, len(first)) for value in values]
    return np.array(codes, dtype=np.int64), tuple(first)


def named(values: Sequence[str]) -> Names:
    """Texts as codes, in order of first appearance."""
    codes, names = numbered(values)
    return Names(codes.astype(np.int32), names)


def of_arrays(
    reward: ArrayLike,
    sizes: ArrayLike,
    source: str = "arrays",
    components: Mapping[str, ArrayLike] | None = None,
    weights: Mapping[str, float] | None = None,
    **columns: ArrayLike,
) -> RewardGroups:
    """Groups of the given sizes (N,) from flat rewards (R,), with other columns of RewardGroups by name.

    A component without a weight has 1.
    Raises IllFormedGroupError where sizes and columns do not fit together, or a column is unknown.
    """
    rewards = np.array(reward, dtype=np.float64)
    counts = np.array(sizes, dtype=np.int64)
    given = {name: _column(name, values) for name, values in columns.items()}
    given.setdefault("position", np.arange(len(rewards), dtype=np.int64))
    for name, (dtype, absent) in COLUMNS.items():
        if name not in given:
            length = len(counts) if name in _PER_GROUP else len(rewards)
            given[name] = np.full(length, absent, dtype=dtype)
    if "has_advantage" not in columns:
        given["has_advantage"] = ~np.isnan(np.asarray(given["advantage"], dtype=np.float64))
    for name in ("label", "status"):
        given.setdefault(name, named([""] * len(rewards)))
    parts = {name: np.array(part, dtype=np.float64) for name, part in (components or {}).items()}
    return RewardGroups(
        source=source,
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        reward=rewards,
        components=parts,
        weights={**dict.fromkeys(parts, 1.0), **(weights or {})},
        **given,  # type: ignore[arg-type]
    )


# Of each column its type, and what stands for none.
COLUMNS: dict[str, tuple[type[np.generic], float]] = {
    "step": (np.int64, UNKNOWN),
    "position": (np.int64, 0),
    "advantage": (np.float64, np.nan),
    "has_advantage": (np.bool_, False),
    "masked": (np.bool_, False),
    "prompt_id": (np.uint64, 0),
    "tokens": (np.int64, UNKNOWN),
    "response": (np.uint64, 0),
    "improvement": (np.float64, np.nan),
    "admitted": (np.int8, UNKNOWN),
}
_PER_GROUP = ("offsets", "step", "prompt_id", "sampling")
_ROWS = ("reward", *(name for name in COLUMNS if name not in _PER_GROUP))


def _column(name: str, values: ArrayLike) -> NDArray[np.generic] | Names:
    if name in ("label", "status"):
        return named([str(value) for value in np.asarray(values).tolist()])
    if name not in COLUMNS:
        raise IllFormedGroupError(
            f"no column is called {name}: give one of {', '.join(sorted(COLUMNS))}, label, status"
        )
    return np.array(values, dtype=COLUMNS[name][0])


def of_outcomes(groups: GroupBatch, reward: Floats, source: str = "records") -> RewardGroups:
    """Outcome-level groups with the rewards (N, G) that a mapping gave them.

    Responses are compared within their group only, as in the outcome-level form.
    """
    count, size = groups.outcome.shape
    rows = np.arange(count, dtype=np.int64)[:, None]
    return of_arrays(
        np.ravel(reward),
        np.full(count, size),
        source,
        response=np.ravel(rows * size + groups.response + 1),
        status=[OUTCOMES[code].value for code in np.ravel(groups.outcome)],
    )


def with_advantages(groups: RewardGroups) -> RewardGroups:
    """Groups of a log that has a column of advantages, with what is said of it where that is empty."""
    if groups.has_advantage.any():
        return groups
    says = "the column of advantages is empty: none was computed, or all are NaN, which many write as null"
    empty = Assumption(EMPTY_ADVANTAGES, says, {"completions": len(groups.reward)})
    return replace(groups, assumptions=(*groups.assumptions, empty))


def summed(assumptions: Iterable[Assumption]) -> tuple[Assumption, ...]:
    """Assumptions of many batches as one each: counts of the same key and sentence add up."""
    total: dict[tuple[str, str], Counter[str]] = {}
    for assumption in assumptions:
        total.setdefault((assumption.key, assumption.says), Counter()).update(assumption.counts)
    return tuple(Assumption(key, says, dict(counts)) for (key, says), counts in total.items())


def whole_steps(batches: Iterable[RewardGroups]) -> Iterator[RewardGroups]:
    """The same groups, with no step in two batches of one source; held in memory is one step and a batch.

    A step that was sampled again is a step of its own; groups without a step stay in the batches that came.
    """
    held: RewardGroups | None = None
    for batch in batches:
        if not len(batch.step):
            continue
        if held is not None:
            # A step that is held can go on, or be audited with what comes, where that is of the same kind.
            same = held.source == batch.source and dict(held.weights) == dict(batch.weights)
            if same and held.step[-1] != UNKNOWN:
                batch = joined(held, batch)
            else:
                yield held
        start = spans(batch)[-1][0]
        if start:
            yield part(batch, 0, start)
        held = part(batch, start, len(batch.step))
    if held is not None:
        yield held


def spans(groups: RewardGroups) -> list[tuple[int, int]]:
    """First group and end of each run of groups of one step and sampling."""
    changes = np.diff(groups.step) != 0
    if groups.sampling is not None:
        changes |= np.diff(groups.sampling) != 0
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(groups.step)]
    return list(pairwise(bounds))


def part(groups: RewardGroups, first: int, end: int) -> RewardGroups:
    """Groups ``first`` to ``end``; what was assumed stays with the part that begins the batch."""
    if (first, end) == (0, len(groups.step)):
        return groups
    offsets = groups.offsets[first : end + 1]
    rows = slice(int(offsets[0]), int(offsets[-1]))
    made = taken(groups, rows, offsets - offsets[0], slice(first, end))
    return made if first == 0 else replace(made, assumptions=())


def regrouped(groups: RewardGroups, members: Sequence[Sequence[int]]) -> RewardGroups:
    """Groups in another order, each made of the rows of one or several."""
    flat = np.concatenate([np.array(numbers, dtype=np.int64) for numbers in members])
    sizes = groups.sizes[flat]
    ends = np.cumsum(sizes)
    rows = np.arange(ends[-1], dtype=np.int64) + np.repeat(groups.offsets[flat] - ends + sizes, sizes)
    counts = np.cumsum([len(numbers) for numbers in members])
    firsts = np.array([numbers[0] for numbers in members], dtype=np.int64)
    return taken(groups, rows, np.append(0, ends[counts - 1]), firsts)


def taken(
    groups: RewardGroups, rows: Integers | slice, offsets: Integers, firsts: Integers | slice
) -> RewardGroups:
    """Groups of some rows, in some order: ``offsets`` (M+1,) say where each begins, ``firsts`` (M,) whose
    step, name and prompt it has."""

    def texts(given: tuple[str, ...]) -> tuple[str, ...]:
        if isinstance(firsts, slice):
            return given[firsts]
        return tuple(given[first] for first in firsts.tolist()) if given else ()

    return replace(
        groups,
        offsets=offsets,
        step=groups.step[firsts],
        label=Names(groups.label.code[rows], groups.label.names),
        status=Names(groups.status.code[rows], groups.status.names),
        components={name: values[rows] for name, values in groups.components.items()},
        metrics={name: values[rows] for name, values in groups.metrics.items()},
        name=texts(groups.name),
        prompt=texts(groups.prompt),
        prompt_id=groups.prompt_id[firsts],
        sampling=None if groups.sampling is None else groups.sampling[firsts],
        file=None if groups.file is None else Names(groups.file.code[rows], groups.file.names),
        **{name: getattr(groups, name)[rows] for name in _ROWS},
    )


def joined(*parts: RewardGroups) -> RewardGroups:
    """The groups of all, in order, under the source of the first.

    A component whose weight differs is weighted already, and has 1.
    """
    if len(parts) == 1:
        return parts[0]
    weights, components = dict[str, float](), [dict(one.components) for one in parts]
    for name in dict.fromkeys(name for one in parts for name in one.weights):
        given = [one.weights[name] for one in parts if name in one.weights]
        weights[name] = given[0] if given.count(given[0]) == len(given) else 1.0
        for one, values in zip(parts, components, strict=True):
            if name in values and one.weights.get(name, 1.0) != weights[name]:
                values[name] = values[name] * one.weights[name]
    starts = np.cumsum([0, *(len(one.reward) for one in parts)])[:-1]
    offsets = [one.offsets[1:] + start for one, start in zip(parts, starts.tolist(), strict=True)]
    samplings = [np.zeros_like(one.step) if one.sampling is None else one.sampling for one in parts]
    scattered = any(one.file is not None or one.source != parts[0].source for one in parts)
    files = [one.file or named([one.source] * len(one.reward)) for one in parts] if scattered else []
    plain = (*_ROWS, "step", "prompt_id")
    return replace(
        parts[0],
        offsets=np.concatenate([[0], *offsets]).astype(np.int64),
        label=_names([one.label for one in parts]),
        status=_names([one.status for one in parts]),
        components=_table(components, parts),
        metrics=_table([one.metrics for one in parts], parts),
        weights=weights,
        name=_texts([one.name for one in parts], parts),
        prompt=_texts([one.prompt for one in parts], parts),
        sampling=None if all(one.sampling is None for one in parts) else np.concatenate(samplings),
        file=_names(files) if files else None,
        assumptions=tuple(chain.from_iterable(one.assumptions for one in parts)),
        **{name: np.concatenate([getattr(one, name) for one in parts]) for name in plain},
    )


def _names(parts: Sequence[Names]) -> Names:
    names = max((one.names for one in parts), key=len)
    codes = [one.code for one in parts]
    if any(one.names != names[: len(one.names)] for one in parts):
        names = tuple(dict.fromkeys(chain.from_iterable(one.names for one in parts)))
        places = {name: place for place, name in enumerate(names)}
        codes = [np.array([places[name] for name in one.names], dtype=np.int32)[one.code] for one in parts]
    return Names(np.concatenate(codes), names)


def _texts(texts: Sequence[tuple[str, ...]], parts: Sequence[RewardGroups]) -> tuple[str, ...]:
    if not any(texts):
        return ()
    filled = (given or ("",) * len(one.step) for given, one in zip(texts, parts, strict=True))
    return tuple(chain.from_iterable(filled))


def _table(tables: Sequence[Mapping[str, Floats]], parts: Sequence[RewardGroups]) -> dict[str, Floats]:
    absent = [np.full(len(one.reward), np.nan) for one in parts]
    return {
        name: np.concatenate([table.get(name, none) for table, none in zip(tables, absent, strict=True)])
        for name in dict.fromkeys(chain.from_iterable(tables))
    }


_OPTIONAL = ("advantage", "tokens", "label", "status", "improvement", "admitted")


class FrameLike(Protocol):
    """What is asked of a frame: columns by name, each a sequence of values."""

    def __getitem__(self, name: str, /) -> Any: ...

    def __iter__(self) -> Any: ...


def of_frame(
    frame: FrameLike,
    group: str = "group",
    step: str | None = None,
    components: Sequence[str] = (),
    weights: Mapping[str, float] | None = None,
    **columns: str,
) -> RewardGroups:
    """Groups of equal ``group`` (and ``step``) values, wherever their rows stand; order within is kept.

    ``columns`` say what columns of the frame are called: ``reward="score"``; a column that has the name of
    the audit's own (advantage, tokens, label, status, improvement, admitted) is taken without.
    Raises IllFormedGroupError for a column that is missing, and for a row without a group.
    """
    known = [str(name) for name in getattr(frame, "columns", frame)]
    chosen = {name: name for name in ("reward", *_OPTIONAL) if name in known} | columns
    chosen.setdefault("reward", "reward")
    needed = [group, *([step] if step else []), *components, *chosen.values()]
    if missing := [name for name in needed if name not in known]:
        raise IllFormedGroupError(
            f"the frame has no column {', '.join(missing)}: name what it has ({', '.join(known)})"
        )
    steps = np.asarray(frame[step]) if step else None
    names = np.asarray(frame[group]).tolist()
    if nameless := [row for row, name in enumerate(names) if name is None or name != name]:
        raise IllFormedGroupError(f"row {nameless[0]} has no {group}: name its group, or leave it out")
    places, _ = numbered(names if steps is None else zip(steps.tolist(), names, strict=True))
    order = np.argsort(places, kind="stable")
    sizes = np.bincount(places)
    firsts = order[np.cumsum(sizes) - sizes]
    values = {name: np.asarray(frame[column])[order] for name, column in chosen.items()}
    groups = of_arrays(
        values.pop("reward"),
        sizes,
        source="frame",
        components={name: np.asarray(frame[name])[order] for name in components},
        weights=weights,
        position=order,
        **({} if steps is None else {"step": steps[firsts]}),
        **values,
    )
    return with_advantages(groups) if "advantage" in chosen else groups

"""Groups from a pandas or polars DataFrame, or from any mapping of column names to values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from search_to_signal.audit.groups import RewardGroups, of_arrays, with_advantages
from search_to_signal.errors import IllFormedGroupError

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
    known = _names(frame)
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
    places = _places(names if steps is None else zip(steps.tolist(), names, strict=True))
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


def _names(frame: FrameLike) -> list[str]:
    return [str(name) for name in getattr(frame, "columns", frame)]


def _places(keys: Iterable[Any]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Number of each key's group, in order of first appearance."""
    first: dict[Any, int] = {}
    return np.array([first.setdefault(key, len(first)) for key in keys], dtype=np.int64)

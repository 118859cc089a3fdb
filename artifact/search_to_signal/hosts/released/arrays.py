"""The numbers within objects whose layout is not known."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def arrays_within(value: Any) -> list[NDArray[Any]]:
    """Every numeric array within a value, those of one place and shape also stacked."""
    by_place: dict[str, list[NDArray[Any]]] = {}
    for place, array in _leaves(value, "", 0):
        by_place.setdefault(place, []).append(array)
    stacked = [np.stack(group) for group in by_place.values() if len({array.shape for array in group}) == 1]
    return [*stacked, *(array for group in by_place.values() for array in group)]


def _leaves(value: Any, place: str, depth: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Numeric arrays within lists, mappings, tensors and plain objects; items of a list share a place."""
    if depth > 5 or isinstance(value, str | bytes | type):
        return
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "iuf" and value.ndim:
            yield place, value
        return
    if isinstance(value, list | tuple) and value and all(isinstance(item, int | float) for item in value):
        yield place, np.array(value)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item, f"{place}[]", depth + 1)
    elif isinstance(value, dict) or hasattr(value, "__dict__"):
        named = value if isinstance(value, dict) else vars(value)
        for name, item in named.items():
            yield from _leaves(item, f"{place}.{name}", depth + 1)

"""Array operations that rooms share. In those of rewards, normalizers and analysis rows are groups."""

from dataclasses import Field, fields, replace
from operator import add
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

Added = TypeVar("Added", bound="Sums")

# Of a field of sums: the greater of two.
GREATEST = {"added": max}


class Sums:
    """Sums over groups, as a dataclass: adding two joins their groups, field by field.

    A field's metadata may say how it is ``added``.
    """

    def __add__(self: Added, more: Added) -> Added:
        def joined(field: Field[Any]) -> Any:
            return field.metadata.get("added", add)(getattr(self, field.name), getattr(more, field.name))

        return replace(self, **{field.name: joined(field) for field in fields(self)})  # type: ignore[arg-type, type-var]


def read_by_rows(matrix: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The matrix of ``shape`` that code sees which takes rows by index and multiplies them with whole rows.

    Rows below the last index are never seen, a single column counts for all. What such code could not use is
    returned as it is.
    """
    rows, columns = shape
    if matrix.ndim == 2 and len(matrix) >= rows and matrix.shape[1] in (1, columns):
        return np.broadcast_to(matrix[:rows], shape)
    return matrix


def midranks(*keys: NDArray[np.generic]) -> Floats:
    """Average ranks within each row, 1 for the smallest, ordered by the first key, then the second, ...

    keys: (N, G) each, most significant first, without NaN. Returns (N, G) in [1, G]. Ranks are halves of
    whole numbers, so equal entries get bitwise equal ranks and permuting a row permutes its ranks.
    """
    order = np.lexsort(keys[::-1], axis=1)
    begins = np.ones(order.shape, dtype=np.bool_)
    if order.shape[1] > 1:
        ordered = (np.take_along_axis(key, order, axis=1) for key in keys)
        begins[:, 1:] = np.logical_or.reduce([key[:, 1:] != key[:, :-1] for key in ordered])
    starts = np.flatnonzero(begins)
    ties = np.diff(starts, append=order.size)
    places = np.repeat(starts % max(order.shape[1], 1) + 0.5 * (ties + 1), ties)
    ranks = np.empty(order.shape)
    np.put_along_axis(ranks, order, places.reshape(order.shape), axis=1)
    return ranks


def unit_scaled(values: Floats) -> tuple[Floats, Floats]:
    """Return values / unit and unit = max |values| per row, so that squares cannot overflow.

    values: (N, G) finite. Returns ((N, G) in [-1, 1], (N, 1) >= 0); a row of zeros has unit 0.
    """
    unit: Floats = np.abs(values).max(axis=1, keepdims=True, initial=0.0)
    return np.divide(values, unit, out=np.zeros_like(values), where=unit > 0.0), unit


def rms(values: Floats, members: Bools) -> Floats:
    """Root mean square of each row over its members, 0 without members: (N, G) -> (N, 1)."""
    count = np.maximum(members.sum(axis=1, keepdims=True), 1)
    squares: Floats = np.where(members, values * values, 0.0).sum(axis=1, keepdims=True)
    root: Floats = np.sqrt(squares / count)
    return root


def centred(values: Floats, members: Bools) -> Floats:
    """Subtract the members' mean from the members of each row; 0 elsewhere: (N, G) -> (N, G)."""
    count = np.maximum(members.sum(axis=1, keepdims=True), 1)
    base = np.where(members, values, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    # Measured from the smallest member, so that a constant row centres to exact zeros.
    shifted = np.where(members, values - np.where(np.isinf(base), 0.0, base), 0.0)
    return np.where(members, shifted - shifted.sum(axis=1, keepdims=True) / count, 0.0)


def difference(values: Floats, reference: Floats, members: Bools) -> Floats:
    """values - reference[:, None] on members, 0 elsewhere; a row whose difference overflows is halved.

    Consumers divide by a scale of the row, which undoes the halving.
    """
    reference = reference[:, None]
    with np.errstate(over="ignore"):
        plain = np.subtract(values, reference, out=np.zeros_like(values), where=members)
    overflows = np.isinf(plain).any(axis=1, keepdims=True)
    if not overflows.any():
        return plain
    halves = np.subtract(0.5 * values, 0.5 * reference, out=np.zeros_like(values), where=members)
    return np.where(overflows, halves, plain)

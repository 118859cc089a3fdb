"""Array operations that rooms share. In those of rewards, normalizers and analysis rows are groups."""

import math
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

KL_TOLERANCE = 1e-12
TIE_TOLERANCE = 1e-12
Sums = TypeVar("Sums", bound="DataclassInstance")


def added(first: Sums, second: Sums) -> Sums:
    """The sum of two dataclasses of one class, field by field."""
    names = [field.name for field in fields(first)]
    return replace(first, **{name: getattr(first, name) + getattr(second, name) for name in names})


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


def tilted(utility: Floats, budget: float = math.log(2.0)) -> Floats:
    """Exponential tilt of the uniform distribution, concentrated until its KL equals the budget (D12).

    utility: (N, G) finite. Returns (N, G) weights that sum to 1 per row, proportional to
    exp(beta * utility) with beta >= 0 and KL(weights || uniform) = min(budget, log(G / k)) to 1e-12,
    where k counts the maxima tied within 1e-12. When the target is not below log(G / k) by more than
    1e-12, the limit beta -> infinity is returned: uniform over the maxima.
    """
    gap = np.ascontiguousarray((utility - utility.max(axis=1, keepdims=True)).T)
    maxima = gap >= -TIE_TOLERANCE
    tied = maxima.sum(axis=0)
    weights = maxima / tied
    solvable = np.flatnonzero(budget < np.log(len(gap) / tied) - TIE_TOLERANCE)
    if solvable.size:
        weights[:, solvable] = _solve(gap[:, solvable], budget)
    return np.ascontiguousarray(weights.T)


def _solve(gap: Floats, target: float) -> Floats:
    """Newton on sqrt(KL), nearly linear in beta, inside a shrinking bracket: (G, N) -> (G, N)."""
    result, todo = np.empty_like(gap), np.arange(gap.shape[1])
    beta = np.sqrt(2.0 * target / gap.var(axis=0))
    low, high = np.zeros_like(beta), np.full_like(beta, np.inf)
    for iteration in range(160):
        weight, kl, slope = _tilt(gap, beta)
        error = kl - target
        low, high = np.where(error < 0.0, beta, low), np.where(error > 0.0, beta, high)
        done = (np.abs(error) <= KL_TOLERANCE) | (high <= np.nextafter(low, np.inf))
        if done.any():
            result[:, todo[done]] = weight[:, done]
            if done.all():
                break
            todo, gap, low, high = todo[~done], gap[:, ~done], low[~done], high[~done]
            beta, kl, slope = beta[~done], kl[~done], slope[~done]
        beta = _next_beta(beta, low, high, 2.0 * (kl - np.sqrt(kl * target)), slope, iteration > 12)
    return result


def _tilt(gap: Floats, beta: Floats) -> tuple[Floats, Floats, Floats]:
    """Weights (G, N), KL to the uniform distribution (N,), and d KL / d beta = beta * variance (N,)."""
    weight = np.exp(beta * gap)
    total = weight.sum(axis=0)
    weight /= total
    mean = (weight * gap).sum(axis=0)
    kl = np.log(len(gap) / total) + beta * mean
    slope = beta * (weight * (gap - mean) ** 2).sum(axis=0)
    return weight, np.maximum(kl, 0.0), slope


def _next_beta(beta: Floats, low: Floats, high: Floats, fall: Floats, slope: Floats, bisect: bool) -> Floats:
    """The Newton step where it stays inside the bracket, else a geometric step of the bracket."""
    between = np.where(low > 0.0, np.sqrt(low) * np.sqrt(high), 0.5 * high)
    middle = np.where(np.isinf(high), 8.0 * low, between)
    if bisect:
        return middle
    newton = beta - np.divide(fall, slope, out=np.full_like(beta, np.inf), where=slope > 0.0)
    inside = (newton > low) & (newton < np.minimum(high, 8.0 * beta))
    return np.where(inside, newton, middle)

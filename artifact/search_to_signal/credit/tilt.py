"""The exponential tilt of Tail-Weighted rewards and of the entropic normalizer, at a KL budget (D12)."""

import math

import numpy as np

from search_to_signal.base.numerics import Floats

KL_TOLERANCE = 1e-12
TIE_TOLERANCE = 1e-12


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

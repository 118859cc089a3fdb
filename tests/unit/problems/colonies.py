"""Small random colonies and ugly matrices for the tests of the ant colonies."""

import numpy as np


def routing_case(seed, customers):
    """(distance, demands, capacity) of a small routing instance."""
    rng = np.random.RandomState(seed)
    points = rng.rand(customers + 1, 2)
    distance = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    np.fill_diagonal(distance, 1.0)
    demands = np.append(0.0, rng.randint(1, 10, size=customers))
    return distance, demands, 20.0


def orienteering_case(seed, nodes):
    """(prize, distance, limit) of a small orienteering instance."""
    rng = np.random.RandomState(seed)
    points = rng.rand(nodes, 2)
    distance = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    np.fill_diagonal(distance, 1e9)
    return (1 + np.floor(99 * rng.rand(nodes))) / 100, distance, 2.0 + rng.rand()


def _sparse(rng, shape):
    return rng.rand(*shape) * (rng.rand(*shape) > 0.7)


# Matrices that heuristics really return when they go wrong, and some that only a test would.
MATRICES = {
    "plain": lambda rng, s: rng.rand(*s),
    "float32": lambda rng, s: rng.rand(*s).astype(np.float32),
    "float16": lambda rng, s: (rng.rand(*s) + 0.1).astype(np.float16),
    "int64": lambda rng, s: rng.randint(0, 5, s),
    "int8": lambda rng, s: rng.randint(-3, 4, s).astype(np.int8),
    "bool": lambda rng, s: rng.rand(*s) > 0.5,
    "zeros": lambda rng, s: np.zeros(s),
    "ones": lambda rng, s: np.ones(s),
    "mostly_zero": _sparse,
    "negative": lambda rng, s: -rng.rand(*s),
    "mixed_sign": lambda rng, s: rng.randn(*s),
    "huge": lambda rng, s: rng.rand(*s) * 1e300,
    "huge_spread": lambda rng, s: 10.0 ** (rng.rand(*s) * 600 - 300),
    "tiny": lambda rng, s: rng.rand(*s) * 1e-300,
    "one_huge_column": lambda rng, s: np.where(np.arange(s[1]) == 2, 1e250, rng.rand(*s)),
    "near_equal": lambda rng, s: 1.0 + rng.rand(*s) * 1e-12,
    "minus_inf": lambda rng, s: np.where(rng.rand(*s) > 0.9, -np.inf, rng.rand(*s)),
    "nan": lambda rng, s: np.where(rng.rand(*s) > 0.98, np.nan, rng.rand(*s)),
    "one_nan": lambda rng, s: np.where(np.arange(s[0] * s[1]).reshape(s) == s[1] + 1, np.nan, rng.rand(*s)),
    "inf": lambda rng, s: np.where(rng.rand(*s) > 0.98, np.inf, rng.rand(*s)),
    "all_nan": lambda rng, s: np.full(s, np.nan),
    "overflows_later": lambda rng, s: np.full(s, 1.7e308),
    "half_zeros": lambda rng, s: (rng.rand(*s) * (rng.rand(*s) > 0.6)).astype(np.float16),
    "column_order": lambda rng, s: np.asfortranarray(rng.rand(*s)),
}

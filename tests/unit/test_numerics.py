"""Array operations shared by constructions, normalizers and analysis."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.stats import rankdata

from search_to_signal.base import numerics, plugins
from search_to_signal.base.errors import ConfigError
from search_to_signal.credit.base import tilted

tables = arrays(np.float64, array_shapes(min_dims=2, max_dims=2), elements=st.floats(-1e300, 1e300))
few = arrays(np.float64, st.just((5, 7)), elements=st.integers(0, 3).map(float))


@given(values=few)
def test_midranks(values: np.ndarray) -> None:
    np.testing.assert_array_equal(numerics.midranks(values), rankdata(values, axis=1))


@given(first=few, second=few)
def test_midranks_of_two_keys(first: np.ndarray, second: np.ndarray) -> None:
    expected = rankdata(10.0 * first + second, axis=1)
    np.testing.assert_array_equal(numerics.midranks(first, second), expected)


@given(values=tables)
def test_unit_scaled(values: np.ndarray) -> None:
    """Scaling to units is undone by the unit, and no square overflows."""
    scaled, unit = numerics.unit_scaled(values)
    assert np.isfinite(scaled**2).all()
    assert (np.abs(scaled * unit - values) <= 1e-15 * unit).all()


def test_root_mean_square() -> None:
    """Only members count; without members the root mean square is zero."""
    members = np.array([[True, True, False], [False, False, False]])
    values = np.array([[3.0, 4.0, 100.0], [1.0, 1.0, 1.0]])
    assert numerics.rms(values, members).ravel().tolist() == [math.sqrt(12.5), 0.0]


def test_centred() -> None:
    """Members lose their mean, the others become zero, and equal members become exact zeros."""
    members = np.array([[True, True, False], [True, True, True]])
    values = np.array([[1.0, 4.0, 100.0], [0.1, 0.1, 0.1]])
    assert numerics.centred(values, members).tolist() == [[-1.5, 1.5, 0.0], [0.0, 0.0, 0.0]]


def test_difference_never_overflows() -> None:
    """A row whose difference overflows is halved; the others are left exact."""
    values, reference = np.array([[1.7e308, -1e308], [1.0, 5e-324]]), np.array([-1.7e308, 0.0])
    result = numerics.difference(values, reference, np.ones((2, 2), dtype=np.bool_))
    assert result.tolist() == [[1.7e308, -0.5e308 + 0.85e308], [1.0, 5e-324]]


@given(
    utility=arrays(
        np.float64, st.tuples(st.integers(1, 6), st.integers(2, 16)), elements=st.floats(0.0, 3.0)
    ),
    budget=st.floats(0.01, 2.0),
)
def test_tilted(utility: np.ndarray, budget: float) -> None:
    """Weights sum to one and attain the budget, or the most that the ties allow."""
    weights = tilted(utility, budget)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
    for row, u in zip(weights, utility, strict=True):
        ties = int((u >= u.max() - 1e-12).sum())
        divergence = sum(w * math.log(w * len(row)) for w in row if w > 0.0)
        assert divergence == pytest.approx(min(budget, math.log(len(row) / ties)), abs=1e-10)


def test_plugins() -> None:
    """Built-in names win, import paths follow, and every failure says what to do."""
    known = {"name": 1}
    assert plugins.load("name", known, "no.such.group") == 1
    assert plugins.load("math:pi", known, "no.such.group") == math.pi
    with pytest.raises(ConfigError):
        plugins.load("other", known, "no.such.group")
    for path in ("no_such_module:x", "math:no_such_name"):
        with pytest.raises(ConfigError, match="PYTHONPATH"):
            plugins.load(path, known, "no.such.group")

"""A worker computes with the kernels that were chosen for its parent."""

import pytest

from search_to_signal.problems.tsp import Tsp
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings

pytestmark = pytest.mark.slow

CODE = """import os
def f(current, destination, unvisited, matrix):
    assert os.environ['OPENBLAS_CORETYPE'] == 'Haswell'
    assert os.environ['OPENBLAS_NUM_THREADS'] == '1'
    assert 'S2S_SECRET' not in os.environ
    return min(unvisited)
"""


def test_numerics_are_passed_on_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pinned kernel arrives, the thread count stays one, a secret stays outside."""
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "8")
    monkeypatch.setenv("S2S_SECRET", "hunter2")
    with EvaluationPool(Tsp(), "embedded", EvaluationSettings(replay="off")) as pool:
        (result,) = pool.evaluate([CODE])
    assert (result.isolation, result.detail) == (Isolation.OK, "")

"""What a heuristic is shown in each dialogue, and that its decisions arrive unchanged."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from search_to_signal.problems.base import InfeasibleAnswerError
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings

pytestmark = pytest.mark.slow

SETTINGS = EvaluationSettings(timeout_s=2.0, memory_mb=128)


class Stream:
    """Three questions (item, capacities); the score is the sum of the chosen indices."""

    def __init__(self) -> None:
        self.chosen: list[int] = []

    @property
    def done(self) -> bool:
        return len(self.chosen) == 3

    def question(self) -> tuple[float, Any]:
        return 1.5 + len(self.chosen), np.array([1.0, 5.0, 5.0, 2.0])

    def decide(self, choice: int) -> None:
        if not 0 <= choice < 4:
            raise InfeasibleAnswerError("no such bin")
        self.chosen.append(choice)

    def score(self) -> float:
        return float(sum(self.chosen))


class StreamProblem:
    """The smallest problem whose parent reveals one question at a time."""

    name, dialogue = "toy", "stream"

    def instances(self, split: str) -> tuple[Mapping[str, Any], ...]:
        return ({},)

    def open(self, instance: Mapping[str, Any]) -> Stream:
        return Stream()


class MatrixProblem:
    """Asks for a 3 x 3 matrix by one or two arguments; the score tells the element type and the sum."""

    name, dialogue = "toy", "matrix"

    def instances(self, split: str) -> tuple[Mapping[str, Any], ...]:
        return (MappingProxyType({"distance": np.arange(9.0).reshape(3, 3)}),)

    def answer_shape(self, instance: Mapping[str, Any]) -> tuple[int, ...]:
        return (3, 3)

    def arguments(self, instance: Mapping[str, Any], parameters: int) -> tuple[Any, ...]:
        if parameters == 2:
            return instance["distance"].copy(), 7
        return (instance["distance"].copy(),)

    def score(self, instance: Mapping[str, Any], answer: Any) -> float:
        if answer.dtype.kind not in "biuf":
            raise InfeasibleAnswerError("no real numbers")
        return float(answer.sum()) + 1000.0 * answer.dtype.itemsize


@pytest.fixture(scope="module")
def stream() -> Iterator[EvaluationPool]:
    """A pool of the toy stream."""
    with EvaluationPool(StreamProblem(), "any", SETTINGS) as pool:  # type: ignore[arg-type]
        yield pool


@pytest.fixture(scope="module")
def matrix() -> Iterator[EvaluationPool]:
    """A pool of the toy matrix."""
    with EvaluationPool(MatrixProblem(), "any", SETTINGS) as pool:  # type: ignore[arg-type]
        yield pool


@pytest.mark.parametrize(
    ("body", "score"),
    [
        ("return c", 3.0),
        ("return list(c)", 3.0),
        ("return -c", 0.0),
        ("return [0.0, float('nan'), 9.0, float('nan')]", 3.0),
        ("assert type(s) is float and s in (1.5, 2.5, 3.5); c[:] = 0; c[3] = 1; return c", 9.0),
        ("return [1, 2]", 3.0),
    ],
)
def test_the_first_maximum_is_the_choice(stream: EvaluationPool, body: str, score: float) -> None:
    """Arrays and lists, NaN as numpy treats it, fresh writable arguments, a Python float."""
    (result,) = stream.evaluate([f"def step(s, c):\n    {body}"])
    assert (result.score, result.detail) == (score, "")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return [0] * 4 + [1]", Isolation.INVALID_DECISION),
        ("return []", Isolation.EXCEPTION),
        ("return 'ab' + 1", Isolation.EXCEPTION),
    ],
)
def test_useless_priorities_are_typed(stream: EvaluationPool, body: str, expected: Isolation) -> None:
    """An index that no bin has is refused by the parent, an error in the worker is an exception."""
    (result,) = stream.evaluate([f"def step(s, c):\n    {body}"])
    assert result.isolation is expected


@pytest.mark.parametrize(
    ("code", "score"),
    [
        ("def h(d):\n    return d", 8036.0),
        ("def h(d, k):\n    return d * k", 8252.0),
        ("def h(d):\n    import numpy as np\n    return d.astype(np.float32)", 4036.0),
        ("def h(d):\n    return d > 100", 1000.0),
        ("def h(d):\n    return d.astype('>f4')", 4036.0),
        ("def h(d):\n    return d.T[::-1]", 8036.0),
        ("def h(d):\n    d[:] = 1\n    return d", 8009.0),
    ],
)
def test_matrices_keep_their_element_type(matrix: EvaluationPool, code: str, score: float) -> None:
    """Arguments follow the number of parameters; dtype and values come back as returned."""
    (result,) = matrix.evaluate([code])
    assert (result.score, result.detail) == (score, "")


@pytest.mark.parametrize(
    "value",
    [
        *("None", "d.tolist()", "d[:2]", "d.ravel()", "d * np.inf", "d[:, :1]", "np.vstack([d, d])"),
        *(f"d.astype({kind})" for kind in ("str", "complex", "object")),
    ],
)
def test_other_answers_are_bad_output(matrix: EvaluationPool, value: str) -> None:
    """What is no real matrix of the right shape, or has no finite score, is bad output."""
    (result,) = matrix.evaluate([f"import numpy as np\ndef h(d):\n    return {value}"])
    assert result.isolation is Isolation.BAD_OUTPUT


class RowsProblem(MatrixProblem):
    """The same, by an objective that takes rows by index."""

    reads_rows = True


@pytest.mark.parametrize(
    ("value", "score"),
    [
        ("d", 8036.0),
        ("d[:, :1]", 8027.0),
        ("np.vstack([d, d * np.inf])", 8036.0),
        ("d[:2]", None),
        ("d[:, :2]", None),
        ("d[None]", None),
    ],
)
def test_answers_may_be_what_a_reader_of_rows_takes(value: str, score: float | None) -> None:
    """One column stands for all, rows too many are cut, by the worker too (HOST.md, point 24)."""
    with EvaluationPool(RowsProblem(), "any", SETTINGS) as pool:  # type: ignore[arg-type]
        (result,) = pool.evaluate([f"import numpy as np\ndef h(d):\n    return {value}"])
    assert result.score == score
    assert (result.isolation is Isolation.BAD_OUTPUT) == (score is None)

"""What a problem is. Adding one is one file that defines a Problem; a profile names it."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from search_to_signal.base.errors import ConfigError, DataHashError
from search_to_signal.base.numerics import read_by_rows

Array = NDArray[Any]
Instance = Mapping[str, Array]
Dialogue = Literal["tour", "stream", "matrix"]
ScorePath = Literal["direct", "fast", "fallback"]


class InfeasibleAnswerError(Exception):
    """An answer that is no solution of its instance; becomes a runtime failure of the program."""


@dataclass(frozen=True)
class Heuristic:
    """A named idea with its code, as the search stores and shows it."""

    idea: str
    code: str


class Problem(Protocol):
    """A search problem. All scores are higher-is-better.

    The performance of a heuristic is the plain mean of its scores on the instances of a split. A score is
    the value of ``unit``, such as a length, where that is ``maximized``, and minus the value otherwise.
    ``dialogue`` says how an isolated worker is asked, and decides which answers it may give:

    ``tour``    the worker builds the visiting order of ``instance["distance"]`` (n, n) step by step;
                the answer is that order, (n,) integers, node 0 first
    ``stream``  the parent reveals one question at a time (StreamProblem); the answer is the chosen
                index per question, (questions,) integers
    ``matrix``  one call per instance (MatrixProblem); the answer is the matrix as returned, dtype
                included, because single precision and integers are rounded as the host rounds them
    """

    name: str
    title: str
    description: str
    unit: str
    maximized: bool
    template: str
    seed: Heuristic
    dialogue: Dialogue
    splits: tuple[str, ...]

    def instances(self, split: str) -> tuple[Instance, ...]:
        """Build the instances of a split.

        Args:
            split: One of ``splits``.

        Returns:
            The instances in their order, each a mapping of read-only arrays.

        Raises:
            ConfigError: There is no such split.
            DataHashError: The instances are not the recorded ones.
        """

    def score(self, instance: Instance, answer: Array) -> float:
        """Score one answer, outside of the process that gave it.

        Args:
            instance: One of ``instances``.
            answer: The array that the dialogue gave.

        Returns:
            The score, in ``unit`` or minus that; higher is better.

        Raises:
            InfeasibleAnswerError: The answer is no solution of the instance.
        """


class Stream(Protocol):
    """The parent's side of one stream dialogue: ask, then decide, until it is done."""

    @property
    def done(self) -> bool:
        """Whether every question has been decided."""

    def question(self) -> tuple[Any, ...]:
        """Ask the open question; asking twice is asking the same.

        Returns:
            Fresh positional arguments of the program's next call.
        """

    def decide(self, choice: int) -> None:
        """Decide the open question.

        Args:
            choice: The index that the program chose.

        Raises:
            InfeasibleAnswerError: There is no such choice.
        """

    def score(self) -> float:
        """Score the decisions, when ``done``.

        Returns:
            The score; higher is better.
        """


@runtime_checkable
class StreamProblem(Problem, Protocol):
    """A problem of dialogue ``stream``: the choice is the first maximum of the returned priorities."""

    def open(self, instance: Instance) -> Stream:
        """Open the dialogue.

        Args:
            instance: One of ``instances``.

        Returns:
            A dialogue at its first question.
        """


@runtime_checkable
class MatrixProblem(Problem, Protocol):
    """A problem of dialogue ``matrix``."""

    def answer_shape(self, instance: Instance) -> tuple[int, ...]:
        """Say what a heuristic answers with.

        Args:
            instance: One of ``instances``.

        Returns:
            The shape of its matrix.
        """

    def arguments(self, instance: Instance, parameters: int) -> tuple[Any, ...]:
        """Build the arguments of a call.

        Args:
            instance: One of ``instances``.
            parameters: How many parameters the program's function has.

        Returns:
            Fresh positional arguments.

        Raises:
            InfeasibleAnswerError: The host calls no function with so many.
        """


@runtime_checkable
class HasStatement(Protocol):
    """A problem that states what is sought apart from how a heuristic is called."""

    statement: str


@runtime_checkable
class ReadsRows(Protocol):
    """A problem of dialogue ``matrix`` that says whether its objective takes rows by index."""

    reads_rows: bool


@runtime_checkable
class HasScorePaths(Protocol):
    """A problem that scores by compiled kernels where these promise the reference's bits."""

    def score_path(self, instance: Instance, answer: Array) -> ScorePath:
        """Say how ``score`` gets its bits.

        Args:
            instance: One of ``instances``.
            answer: An answer to it.

        Returns:
            ``fast`` for compiled kernels, ``fallback`` for the slower exact way.
        """


def score_path_of(problem: Problem, instance: Instance, answer: Array) -> ScorePath:
    """Say by which path a score came about, for the record; ``direct`` for problems with only one."""
    return problem.score_path(instance, answer) if isinstance(problem, HasScorePaths) else "direct"


def score_unit(problem: Problem) -> str:
    """What a score measures, such as minus tour length."""
    return problem.unit if problem.maximized else f"minus {problem.unit}"


def heldout_splits(problem: Problem) -> tuple[str, ...]:
    """The names of a problem's held-out splits, in its order."""
    return tuple(split for split in problem.splits if split.startswith("heldout"))


def mean_score(scores: Sequence[float]) -> float:
    """Performance of a heuristic: the plain mean of its scores, with the bits of numpy's pairwise sum."""
    return float(np.mean(scores))


def split_of(problem: str, recipes: Mapping[str, Callable[[], Any]], split: str) -> Any:
    """Build the named split; raises ConfigError that lists the known ones."""
    if split not in recipes:
        raise ConfigError(f"{problem} has no split {split!r}: choose one of {', '.join(recipes)}")
    return recipes[split]()


def as_matrix(answer: Any, shape: tuple[int, ...], by_rows: bool = False) -> Array:
    """Return a real matrix of that shape, at most 8 bytes an entry; InfeasibleAnswerError for anything else.

    ``by_rows`` takes what is that matrix to a reader of rows (``read_by_rows``). Asks the plain array,
    because a subclass can say what it likes about itself.
    """
    if not isinstance(answer, np.ndarray):
        raise InfeasibleAnswerError(f"expected a matrix of shape {shape}, found {type(answer).__name__}")
    matrix = np.asarray(answer)
    if by_rows:
        matrix = read_by_rows(matrix, shape)
    if matrix.shape != shape or matrix.dtype.kind not in "biuf" or matrix.dtype.itemsize > 8:
        actual = f"{matrix.dtype} {matrix.shape}"
        raise InfeasibleAnswerError(f"expected a real matrix of shape {shape}, found {actual}")
    return matrix


def sha256_of(array: Array) -> str:
    """SHA-256 of an array as little-endian float64 in C order."""
    return hashlib.sha256(np.ascontiguousarray(array, dtype="<f8").tobytes()).hexdigest()


def check_sha256(what: str, array: Array, expected: str) -> None:
    """Raise DataHashError unless the array has the recorded bytes."""
    actual = sha256_of(array)
    if actual != expected:
        raise DataHashError(
            f"{what} has SHA-256 {actual}, expected {expected}: this numpy draws other instances; "
            "install the locked environment (uv sync --locked) and run again"
        )


def frozen_instance(**arrays: Array) -> Instance:
    """Return the arrays as an instance: read-only contiguous copies."""
    copies = {name: np.array(array, order="C") for name, array in arrays.items()}
    for copy in copies.values():
        copy.setflags(write=False)
    return MappingProxyType(copies)


def instance_bytes(instances: Iterable[Instance]) -> Iterator[bytes]:
    """Yield name, element type, shape and content of every array: what tells instances apart."""
    for instance in instances:
        for name, array in instance.items():
            yield f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes()


def unit_square(seed: int, count: int, nodes: int) -> Array:
    """(count, nodes, 2) places, uniform in the unit square."""
    return np.random.RandomState(seed).rand(count, nodes, 2)


def euclidean(coordinates: Array) -> Array:
    """Distance matrices (N, n, n) of coordinates (N, n, 2), plain float64."""
    delta = coordinates[:, :, None, :] - coordinates[:, None, :, :]
    out: Array = np.sqrt((delta**2).sum(axis=-1))
    return out


@dataclass(frozen=True)
class ProblemTask:
    """``statement`` is what is sought, ``description`` the same with how a heuristic is called.

    ``signature`` is the head of the function that a heuristic is, ``template`` the whole of an empty one.
    ``unit`` is what scores measure, of which less is better unless ``maximized``.
    """

    title: str
    statement: str
    description: str
    signature: str
    template: str
    unit: str
    maximized: bool


def task_of(problem: Problem) -> ProblemTask:
    """The task of a problem, as text; one without a statement of its own has its description there."""
    head = next((line for line in problem.template.splitlines() if line.startswith("def ")), "")
    return ProblemTask(
        title=problem.title,
        statement=problem.statement if isinstance(problem, HasStatement) else problem.description,
        description=problem.description,
        signature=head,
        template=problem.template.strip(),
        unit=problem.unit,
        maximized=problem.maximized,
    )

"""Answers that are no solution are refused and never disturb the next evaluation."""

import numpy as np
import pytest
from spec.in_process import run_in_process

from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import InfeasibleAnswerError
from search_to_signal.sandbox.loading import function_of

COLONIES = ("cvrp", "op")


class Liar(np.ndarray):
    """An array that claims another shape and another content than it has."""

    @property
    def shape(self):
        return (21, 21)


@pytest.mark.parametrize(
    "tour",
    [
        np.arange(29),
        np.append(np.arange(29), 28),
        np.append(np.arange(29), 30),
        np.append(np.arange(29), -1),
        np.roll(np.arange(30), 1),
        np.arange(30).astype(float),
        np.arange(30).reshape(5, 6),
        np.array(0),
    ],
    ids=["short", "twice", "no_node", "negative", "not_from_zero", "floats", "shape", "scalar"],
)
def test_tour_that_is_none(tour):
    """A tour must be integers that visit every node once from node 0."""
    problem = PROBLEMS["tsp"]
    with pytest.raises(InfeasibleAnswerError):
        problem.score(problem.instances("embedded")[0], tour)


@pytest.mark.parametrize("choice", [-1, 200, 10**9])
def test_choice_of_a_bin_that_does_not_fit(choice):
    """A choice outside the question is refused: a full bin is never among the bins that fit."""
    problem = PROBLEMS["obp"]
    instance = problem.instances("embedded")[0]
    with pytest.raises(InfeasibleAnswerError, match="no"):
        problem.score(instance, np.full(200, choice))


@pytest.mark.parametrize("choices", [np.zeros(199, int), np.zeros(200), np.zeros((200, 1), int)])
def test_choices_of_the_wrong_form(choices):
    problem = PROBLEMS["obp"]
    with pytest.raises(InfeasibleAnswerError):
        problem.score(problem.instances("embedded")[0], choices)


@pytest.mark.parametrize("name", COLONIES)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: m[0],
        lambda m: m[:-1],
        lambda m: m[None],
        lambda m: m.astype(complex),
        lambda m: m.astype(object),
        lambda m: m.astype(np.longdouble),
        lambda m: m.astype("U8"),
        lambda m: m.tolist(),
        lambda m: None,
        lambda m: m[:3].copy().view(Liar),
        lambda m: m[:, :1].astype(complex),
    ],
    ids=["row", "short", "deep", "complex", "object", "longdouble", "text", "list", "none", "liar", "column"],
)
def test_matrix_of_the_wrong_form(name, spoil):
    """Only a real matrix of the instance's shape is run, whatever the object says about itself."""
    problem = PROBLEMS[name]
    instance = problem.instances("embedded")[0]
    with pytest.raises(InfeasibleAnswerError, match="expected"):
        problem.score(instance, spoil(np.ones(instance["distance"].shape)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_routing_refuses_a_matrix_without_probabilities(value):
    """One non-finite entry anywhere is an error of the heuristic, as in the host."""
    problem = PROBLEMS["cvrp"]
    instance = problem.instances("embedded")[0]
    for position in [(0, 5), (7, 7), (20, 0)]:
        matrix = 1 / instance["distance"]
        matrix[position] = value
        with pytest.raises(InfeasibleAnswerError, match="probabilities"):
            problem.score(instance, matrix)


VANDAL = """
def vandal({parameters}):
    for argument in ({parameters}):
        if hasattr(argument, "shape"):
            argument[...] = 0.0
    return 1 // 0
"""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", PROBLEMS)
def test_mutation_and_failure_leave_no_trace(name):
    """A heuristic that writes into its arguments and then fails does not change the next score."""
    problem = PROBLEMS[name]
    seed = function_of(problem.seed.code)
    before = run_in_process(problem, seed, "embedded")
    parameters = ", ".join("abcdefgh"[: seed.__code__.co_argcount])
    with pytest.raises(ZeroDivisionError):
        run_in_process(problem, function_of(VANDAL.format(parameters=parameters)), "embedded")
    assert run_in_process(problem, seed, "embedded") == before

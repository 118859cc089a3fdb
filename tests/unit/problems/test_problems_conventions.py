"""Functions are called as the host calls them."""

import numpy as np
import pytest
from spec.in_process import build_tour, run_in_process

from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import InfeasibleAnswerError, score_path_of
from search_to_signal.problems.obp import Packing, gap_score

NUMPY_1 = pytest.mark.skipif(np.__version__ >= "2", reason="int() refuses it from numpy 2.4 on")
DISTANCE = np.random.RandomState(0).rand(7, 7)


def test_tour_arguments():
    """Last node, destination 0, a set built from the ascending unvisited nodes, a fresh matrix."""
    seen = []

    def function(current, destination, unvisited, matrix):
        seen.append((current, destination, list(unvisited), matrix is not DISTANCE, matrix.flags.writeable))
        return max(unvisited)

    assert build_tour(function, DISTANCE).tolist() == [0, 6, 5, 4, 3, 2, 1]
    left = [[1, 2, 3, 4, 5, 6][: 6 - step] for step in range(6)]
    assert [call[2] for call in seen] == [list(set(nodes)) for nodes in left]
    assert [call[0] for call in seen] == [0, 6, 5, 4, 3, 2]
    assert {call[1] for call in seen} == {0}
    assert {call[3:] for call in seen} == {(True, True)}


def test_unvisited_set_is_built_in_ascending_order():
    """Small sets of large nodes iterate in the order of their making, which a heuristic can see."""
    seen = []

    def function(current, destination, unvisited, matrix):
        seen.append(list(unvisited))
        return min(unvisited, key=lambda node: (node % 32 == 0, node))

    build_tour(function, np.zeros((200, 200)))
    assert seen == [list(set(sorted(nodes))) for nodes in seen]
    assert seen != [list(set(sorted(nodes, reverse=True))) for nodes in seen]


@pytest.mark.filterwarnings("ignore:Conversion of an array")
@pytest.mark.parametrize(
    "answer",
    [3, np.int64(3), 3.9, np.array(3), pytest.param(np.array([3]), marks=NUMPY_1), True + 2, "3"],
    ids=["int", "numpy", "float", "array", "array of one", "bool", "text"],
)
def test_tour_answers_pass_through_int(answer):
    """``int()`` is applied to the answer, whatever it is."""
    tour = build_tour(lambda c, d, unvisited, m: answer if 3 in unvisited else -1, DISTANCE)
    assert tour.tolist() == [0, 3, 6, 5, 4, 2, 1]


@pytest.mark.parametrize("answer", [0, 7, -2, float("nan"), None, "x", np.array([1, 2])])
def test_tour_refuses_what_is_no_unvisited_node(answer):
    """A visited node, a node that does not exist, and what is no number at all end the evaluation."""
    with pytest.raises((InfeasibleAnswerError, TypeError, ValueError)):
        build_tour(lambda *_: answer, DISTANCE)


def test_tour_score_adds_edges_against_the_direction_of_travel():
    """The score of an asymmetric matrix adds distance[new, previous] and closes the tour."""
    matrix = np.random.RandomState(0).rand(3, 3)
    score = PROBLEMS["tsp"].score({"distance": matrix}, np.array([0, 2, 1]))
    assert score == -((matrix[2, 0] + matrix[1, 2]) + matrix[0, 1])
    assert score != -((matrix[0, 2] + matrix[2, 1]) + matrix[1, 0])


def test_stream_questions_are_those_of_a_full_list_of_bins():
    """Whatever bins are chosen, never-opened ones far back included, the arrays are the plain ones."""
    rng = np.random.RandomState(1)
    items = rng.randint(5, 60, 120).astype(float)
    packing, plain = Packing(items, 100), np.full(120, 100.0)
    for item in items:
        fitting = np.flatnonzero(plain >= item)
        size, capacities = packing.question()
        assert type(size) is float
        assert size == item
        assert np.array_equal(capacities, plain[fitting])
        choice = int(rng.randint(len(fitting)) if rng.rand() < 0.2 else rng.randint(min(len(fitting), 20)))
        packing.decide(choice)
        plain[fitting[choice]] -= item
    assert packing.done
    assert packing.bins_used == np.count_nonzero(plain < 100)


def test_stream_question_is_fresh_and_repeatable():
    """Writing into the capacities changes neither the bins nor the same question asked again."""
    packing = Packing(np.array([40.0, 30.0, 70.0]), 100)
    packing.question()[1][:] = -5.0
    packing.decide(0)
    assert packing.question()[1].tolist() == [60.0, 100.0, 100.0]
    assert packing.question()[1] is not packing.question()[1]


def test_stream_takes_the_first_maximum_and_lists():
    """Priorities may be a list; ties go to the first bin; the score is the gap in percent."""
    problem = PROBLEMS["obp"]
    scores = run_in_process(problem, lambda item, capacities: [0.0] * len(capacities), "embedded")
    for instance, score in zip(problem.instances("embedded"), scores, strict=True):
        choices = np.zeros(len(instance["items"]), dtype=int)
        assert problem.score(instance, choices) == score


def test_a_packing_at_the_lower_bound_scores_minus_zero():
    """As in the host: no gap is -0.0, any other is the gap in percent."""
    packing = Packing(np.array([60.0, 40.0]), 100)
    for choice in (0, 0):
        packing.decide(choice)
    assert str(packing.score()) == "-0.0"
    assert gap_score(3, 2) == -50.0


def test_matrix_arguments_follow_the_number_of_parameters():
    """Four parameters get everything, two get demands relative to the capacity, others are refused."""
    problem = PROBLEMS["cvrp"]
    instance = problem.instances("embedded")[0]
    distance, coordinates, demands, capacity = problem.arguments(instance, 4)
    assert (distance.shape, coordinates.shape, demands.shape) == ((21, 21), (21, 2), (21,))
    assert type(capacity) is int
    assert distance.flags.writeable
    assert np.array_equal(problem.arguments(instance, 2)[1], demands / 50)
    with pytest.raises(InfeasibleAnswerError, match="parameters"):
        problem.arguments(instance, 3)


def test_both_forms_of_a_routing_heuristic_score_alike():
    problem = PROBLEMS["cvrp"]
    four = run_in_process(problem, lambda distance, xy, demands, capacity: 1 / distance, "embedded")
    two = run_in_process(problem, lambda distance, demands: 1 / distance, "embedded")
    assert four == two


def test_orienteering_arguments():
    """Prizes, distances with a forbidding diagonal, and the limit as a Python number."""
    problem = PROBLEMS["op"]
    prize, distance, limit = problem.arguments(problem.instances("train")[0], 3)
    assert (prize.shape, distance.shape, limit) == ((50,), (50, 50), 3.0)
    assert type(limit) is float
    assert (np.diag(distance) == 1e9).all()
    assert prize.flags.writeable
    assert distance.flags.writeable


def test_records_can_name_the_path_of_a_score():
    """Problems with a single way to score say ``direct``, colonies how they ran."""
    paths = {
        name: score_path_of(problem, problem.instances("embedded")[0], np.ones(1))
        for name, problem in PROBLEMS.items()
    }
    expected = {"tsp": "direct", "obp": "direct", "cvrp": "fast", "op": "fast"}
    assert {name: paths[name] for name in expected} == expected

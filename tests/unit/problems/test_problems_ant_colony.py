"""Both colonies give the oracle's bits, ugly matrices included."""

import functools
import itertools

import colony_oracles
import numpy as np
import pytest
import torch
from colonies import MATRICES, orienteering_case, routing_case

from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.ant_colony import colonies, kernels
from search_to_signal.problems.base import InfeasibleAnswerError
from search_to_signal.sandbox.loading import function_of

pytestmark = pytest.mark.slow

REFUSED = "refused"


def _outcome(call, *refusals):
    try:
        return call()
    except refusals:
        return REFUSED


def _routing_oracle(case, matrix, iterations):
    distance, demands, capacity = case
    return _outcome(
        lambda: colony_oracles.cvrp_best_cost(distance, demands, capacity, matrix.copy(), 30, iterations),
        RuntimeError,
    )


def _orienteering_oracle(case, matrix, iterations):
    return _outcome(lambda: colony_oracles.op_best_prize(*case, matrix.copy(), 20, iterations), RuntimeError)


@functools.cache  # for both ways
def _routing_expected(kind, seed, customers):
    case = routing_case(seed, customers)
    return _routing_oracle(case, MATRICES[kind](np.random.RandomState(seed), case[0].shape), 6)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Keep noise of odd shapes out of the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp()))


@pytest.fixture(params=["fast", "fallback"])
def routing_path(request, monkeypatch):
    """Route ants both ways, whatever the loads."""
    monkeypatch.setattr(colonies, "score_path", lambda *_: request.param)


@pytest.mark.parametrize("kind", MATRICES)
def test_routing_equals_the_oracle(kind, routing_path):
    """Cost of the best path, or refusal, of small instances for every kind of matrix."""
    for seed, customers in ((0, 4), (1, 9), (2, 16)):
        case = routing_case(seed, customers)
        matrix = MATRICES[kind](np.random.RandomState(seed), case[0].shape)
        ours = _outcome(lambda c=case, m=matrix: colonies.best_cost(*c, m, 30, 6), InfeasibleAnswerError)
        assert ours == _routing_expected(kind, seed, customers)


@pytest.mark.parametrize("kind", MATRICES)
def test_orienteering_equals_the_oracle(kind):
    """Largest prize sum, or refusal, of small instances for every kind of matrix."""
    for seed, nodes in ((0, 5), (1, 12), (2, 20)):
        case = orienteering_case(seed, nodes)
        matrix = MATRICES[kind](np.random.RandomState(seed), case[1].shape)
        ours = _outcome(lambda c=case, m=matrix: colonies.best_prize(*c, m, 20, 6), InfeasibleAnswerError)
        assert ours == _orienteering_oracle(case, matrix, 6)


def test_a_row_without_weight_is_refused_where_an_ant_could_go_on():
    """A row of zeros is refused as soon as an ant stands there with somewhere to go, and only then."""
    prize, distance, _ = orienteering_case(0, 6)
    matrix = np.ones((6, 6))
    matrix[3] = np.nan
    with pytest.raises(InfeasibleAnswerError):
        colonies.best_prize(prize, distance, 9.0, matrix, 20, 6)
    one_stop = 2.0 * distance[0, 1:].min() + 1e-9
    assert colonies.best_prize(prize, distance, one_stop, matrix, 20, 6) > 0.0
    prize, distance = prize[:4], distance[:4, :4]
    assert colonies.best_prize(prize, distance, 0.0, np.full((4, 4), np.nan), 20, 6) == prize[0]


def test_more_nodes_than_one_vector_lane(routing_path):
    """Sizes around a multiple of the padded width lose no node."""
    for customers in (62, 63):
        case = routing_case(customers, customers)
        matrix = 1.0 / case[0]
        assert colonies.best_cost(*case, matrix, 30, 1) == _routing_oracle(case, matrix, 1)
        other = orienteering_case(customers, customers)
        matrix = 1.0 / other[1]
        assert colonies.best_prize(*other, matrix, 20, 2) == _orienteering_oracle(other, matrix, 2)


def test_golden_heuristics_equal_the_oracle_on_an_embedded_instance(golden_colony):
    """Golden colony heuristics agree with the oracle under the full number of iterations."""
    problem = PROBLEMS[golden_colony["problem"]]
    instance = problem.instances("embedded")[0]
    matrix = function_of(golden_colony["code"])(*problem.arguments(instance, 4))
    if problem.name == "cvrp":
        case = (instance["distance"].copy(), instance["demands"].copy(), float(instance["capacity"]))
        expected = -colony_oracles.cvrp_best_cost(*case, matrix)
    else:
        case = (instance["prize"].copy(), instance["distance"].copy(), float(instance["maxlen"]))
        expected = colony_oracles.op_best_prize(*case, matrix)
    assert problem.score(instance, matrix) == expected


ROWS = {
    "one column": lambda matrix: matrix[:, :1],
    "a row too many": lambda matrix: np.vstack([matrix, np.full((1, len(matrix)), np.nan)]),
    "one column, rows too many": lambda matrix: np.vstack([matrix, matrix])[:, :1],
}


@pytest.mark.parametrize("form", ROWS)
def test_routing_reads_rows_as_the_oracle_does(form, monkeypatch):
    """What torch indexes and broadcasts by accident scores so here too; no ant reads the last rows."""
    problem = PROBLEMS["cvrp"]
    monkeypatch.setattr("search_to_signal.problems.cvrp.ITERATIONS", 10)
    instance = problem.instances("embedded")[1]
    case = (instance["distance"].copy(), instance["demands"].copy(), float(instance["capacity"]))
    matrix = ROWS[form](1 / instance["distance"])
    assert matrix.shape != instance["distance"].shape
    assert problem.score(instance, matrix) == -colony_oracles.cvrp_best_cost(*case, matrix, iterations=10)


@pytest.mark.parametrize("shape", [(20, 21), (1, 21), (21,), (21, 20), (21, 2), (21, 22), (21, 21, 1)])
def test_routing_refuses_what_the_oracle_cannot_read(shape):
    problem = PROBLEMS["cvrp"]
    instance = problem.instances("embedded")[1]
    case = (instance["distance"].copy(), instance["demands"].copy(), float(instance["capacity"]))
    with pytest.raises((RuntimeError, IndexError)):
        colony_oracles.cvrp_best_cost(*case, np.ones(shape), iterations=3)
    with pytest.raises(InfeasibleAnswerError, match="expected"):
        problem.score(instance, np.ones(shape))


def test_near_ties_are_decided_by_division():
    """Weights made proportional to the noise leave quotients a few ulp apart; the exact maximum wins."""
    table = colonies.noise_for(colonies.Colony(100, 30, 21))
    rng = np.random.RandomState(0)
    for draw in range(100):
        weight = table.exact[draw] * (1.0 + rng.randint(-3, 4, (30, 21)) * 2.0**-52)
        single = np.zeros((30, 64), np.float32)
        kernels.scale_rows(weight, single)
        need = np.full((30, 64), np.inf, np.float32)
        need[:, :21] = rng.rand(30, 21) > 0.6
        choice, ants = np.empty(30, np.int64), np.arange(30)
        room, scratch = np.zeros(30, np.float32), kernels.new_scratch(30, 64)
        kernels.choose(weight, single, table.exact, table.coarse, draw, ants, need, room, scratch, choice)
        quotient = np.where(need[:, :21] <= 0, weight / table.exact[draw], -1.0)
        assert np.array_equal(choice, quotient.argmax(axis=1))


def test_ratings_lost_to_single_precision_are_decided_by_division():
    """Allowed weights around the smallest single-precision numbers, next to a closed huge one."""
    table = colonies.noise_for(colonies.Colony(100, 30, 21))
    rng = np.random.RandomState(1)
    need = np.full((30, 64), np.inf, np.float32)
    need[:, 1:21] = 0.0
    for draw in range(100):
        weight = 10.0 ** (-43 - rng.rand(30, 21))
        weight[:, 0] = 1.0
        single, choice = np.zeros((30, 64), np.float32), np.empty(30, np.int64)
        kernels.scale_rows(weight, single)
        room, scratch, ants = np.zeros(30, np.float32), kernels.new_scratch(30, 64), np.arange(30)
        kernels.choose(weight, single, table.exact, table.coarse, draw, ants, need, room, scratch, choice)
        assert np.array_equal(choice, 1 + (weight / table.exact[draw])[:, 1:].argmax(axis=1))


def test_waiting_at_the_depot_is_laid_once():
    """A repeated edge of one path is not accumulated twice."""
    pheromone, paths = np.ones((3, 3)), np.array([[0], [1], [2], [0], [0], [0]])
    kernels.lay_along(pheromone, paths, 6, 0, 0.5)
    expected = np.ones((3, 3))
    expected[[0, 1, 2, 0], [1, 2, 0, 0]] = 1.5
    assert np.array_equal(pheromone, expected)


def test_pheromone_floor_binds(monkeypatch):
    case = routing_case(0, 14)
    matrix = 1.0 / case[0]
    learned = _routing_oracle(case, matrix, 25)
    for module in (colonies, colony_oracles):
        monkeypatch.setattr(module, "PHEROMONE_FLOOR", 5.0)
    expected = _routing_oracle(case, matrix, 25)
    assert learned != expected
    for path in ("fast", "fallback"):
        monkeypatch.setattr(colonies, "score_path", lambda *_, path=path: path)
        assert colonies.best_cost(*case, matrix, 30, 25) == expected


def test_limit_that_a_path_meets_exactly():
    """Single-precision travel and the order of its sum decide whether the last node is still in reach."""
    for seed in range(6):
        prize, distance, _ = orienteering_case(seed, 5)
        for i, j, k in itertools.permutations(range(1, 5), 3):
            travelled = np.float32(np.float64(np.float32(distance[0, i])) + distance[i, j])
            limit = float(np.float64(travelled) + distance[j, k] + distance[k, 0])
            case, matrix = (prize, distance, limit), np.ones((5, 5))
            assert colonies.best_prize(*case, matrix, 20, 1) == _orienteering_oracle(case, matrix, 1)


@pytest.mark.parametrize("ants", [2, 5, 15, 16, 20, 30, 33, 64])
def test_sums_have_the_order_of_torch(ants):
    """Column and row sums equal torch's to the last bit, for lengths across every cascade level."""
    rng = np.random.RandomState(ants)
    for length in [*range(1, 120), 255, 256, 257, 300, 1023, 1024, 1100]:
        values = rng.rand(length, ants)
        expected = torch.from_numpy(values).t().sum(dim=1).tolist()
        assert [kernels.sum_steps(values, length, ant) for ant in range(ants)] == expected
        assert kernels.sum_row(values[:, 0].copy()) == float(torch.from_numpy(values[:, 0].copy()).sum())


def test_broken_loads_take_the_slower_path():
    """Fractional demands could round in single precision, so they run step by step; the record says so."""
    distance, demands, capacity = routing_case(3, 6)
    assert colonies.score_path(demands, capacity) == "fast"
    demands[1] = 2.7
    assert colonies.score_path(demands, capacity) == "fallback"
    matrix = 1.0 / distance
    expected = _routing_oracle((distance, demands, capacity), matrix, 4)
    assert colonies.best_cost(distance, demands, capacity, matrix, 30, 4) == expected


def test_customer_that_fits_no_vehicle_is_refused():
    """An impossible demand leaves an ant without probabilities; it does not loop for ever."""
    distance, demands, capacity = routing_case(3, 6)
    demands[2] = capacity + 1
    with pytest.raises(InfeasibleAnswerError):
        colonies.best_cost(distance, demands, capacity, 1.0 / distance, 30, 4)


@pytest.mark.parametrize("name", ["cvrp", "op"])
def test_colonies_take_the_compiled_path_here(name):
    problem = PROBLEMS[name]
    instance = problem.instances("train")[0]
    assert problem.score_path(instance, np.ones_like(instance["distance"])) == "fast"

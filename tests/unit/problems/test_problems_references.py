"""The shipped reference tours are tours of these instances, and as short as they say."""

import numpy as np
import pytest
from spec.in_process import evaluate_in_process

from search_to_signal.base.errors import ConfigError
from search_to_signal.problems import get_problem
from search_to_signal.problems.tsp import reference_file, reference_lengths, tour_length

pytestmark = pytest.mark.slow

SPLITS = ("heldout_50", "heldout_100", "heldout_200")


@pytest.mark.parametrize("split", SPLITS)
def test_every_reference_is_a_tour_of_its_length(split: str) -> None:
    """Node 0 first, every node once, the recorded length to the last bit, and no shorter than its bound."""
    problem = get_problem("tsp")
    instances, references = problem.instances(split), reference_file().splits[split].instances
    for instance, reference in zip(instances, references, strict=True):
        tour = np.array(reference.tour)
        assert -problem.score(instance, tour) == reference.length
        assert reference.lower_bound <= reference.length + 1e-9
        assert reference.length <= reference.pyvrp_length + 1e-9
    assert reference_lengths(split).tolist() == [reference.length for reference in references]


def test_references_are_close_to_optimal() -> None:
    """Their lengths are certified by the bounds: on average within one percent of the optimum."""
    for split in SPLITS:
        found = reference_file().splits[split].instances
        slack = [100.0 * (r.length - r.lower_bound) / r.lower_bound for r in found]
        proven = sum(value < 1e-6 for value in slack)
        print(f"\n{split}: at most {np.mean(slack):.3f} % above optimal, {proven} proven optimal")
        assert np.mean(slack) < 1.0


def test_a_bound_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The corners of a unit square: the best tour has length 4, and the bound proves it."""
    numba = pytest.importorskip("numba", reason="the references are made with it")
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)  # compiling takes longer than six nodes
    from tests.references.local_search import polished
    from tests.references.lower_bound import held_karp_bound

    corners = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.5, 1.0], [0.5, 0.0]])
    distance = np.sqrt(((corners[:, None] - corners[None]) ** 2).sum(axis=-1))
    tour = polished(distance, np.arange(6), 100, 1)
    assert tour_length(distance, tour) == pytest.approx(4.0)
    assert held_karp_bound(distance, 4.0) == pytest.approx(4.0, abs=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_seed_heuristic_is_above_the_reference() -> None:
    problem = get_problem("tsp")
    scores = evaluate_in_process(problem, problem.seed.code, problem.instances("heldout_50")[:16])
    assert (-np.array(scores) >= reference_lengths("heldout_50")[:16] - 1e-9).all()


def test_other_splits_have_no_references() -> None:
    with pytest.raises(ConfigError, match="heldout_100"):
        reference_lengths("train")

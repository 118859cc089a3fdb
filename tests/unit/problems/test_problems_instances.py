"""Instances are the recorded ones, cannot be written to, and anything else stops the run."""

import numpy as np
import pytest
import torch

from search_to_signal.base.errors import ConfigError, DataHashError
from search_to_signal.problems import PROBLEMS, get_problem
from search_to_signal.problems.base import sha256_of
from search_to_signal.problems.op import fused_euclidean

SPLITS = [(name, split) for name, problem in PROBLEMS.items() for split in problem.splits]
RandomState = np.random.RandomState

# SHA-256 of stacked instance fields, as the facts page has them.
RECORDED = {
    ("tsp", "distance"): "12f9dc703dde4d51c6aa3f360d558898cdf425e052547db9c6c083875d3cd947",
    ("cvrp", "distance"): "f087d4a4acae3e5846d3796a083815e4e352fd399d1f1512484b687a452e0412",
    ("op", "distance"): "4b70e12eafaeae3619367803d056b3d3cda3890f92af2c1df0651e6e740c68ee",
    ("op", "prize"): "5c62a8bdb09c8dd71c83e7426845adbaa7f9bd03f1f7f133f9920ac8d062a6a1",
}


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_split_regenerates_frozen(name, split):
    """Every split regenerates with its recorded hashes, and no array of it can be written to."""
    for instance in PROBLEMS[name].instances(split):
        for array in instance.values():
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0


@pytest.mark.parametrize(("name", "field"), RECORDED)
def test_training_fields_have_the_recorded_bytes(name, field):
    stacked = np.stack([instance[field] for instance in PROBLEMS[name].instances("train")])
    assert sha256_of(stacked) == RECORDED[name, field]


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_other_random_numbers_stop_the_run(name, split, monkeypatch):
    """A numpy that draws other numbers is noticed before anything is evaluated."""
    monkeypatch.setattr(np.random, "RandomState", lambda seed: RandomState(seed + 1))
    with pytest.raises(DataHashError):
        PROBLEMS[name].instances(split)


@pytest.mark.parametrize("name", PROBLEMS)
def test_unknown_split_names_the_known_ones(name):
    with pytest.raises(ConfigError, match="train"):
        PROBLEMS[name].instances("trian")


def test_unknown_problem_names_the_known_ones():
    with pytest.raises(ConfigError):
        get_problem("vrp")


def test_orienteering_distances_have_the_bits_of_torch_norm():
    """The fused sum of squares is torch's on instances that no hash covers."""
    for seed in range(10):
        points = RandomState(seed).rand(3, 60, 2)
        tensor = torch.from_numpy(points)
        expected = torch.norm(tensor[:, :, None] - tensor[:, None], dim=-1).numpy()
        assert np.array_equal(fused_euclidean(points), expected)


def test_packing_instances_come_in_the_host_order():
    """Four instances: 5000 items in bins of 100 and 500, then 1000 items likewise."""
    shapes = [(len(i["items"]), int(i["capacity"])) for i in PROBLEMS["obp"].instances("train")]
    assert shapes == [(5000, 100), (5000, 500), (1000, 100), (1000, 500)]

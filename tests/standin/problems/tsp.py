"""Tours, node by node."""

import numpy as np
from heuristic import promised

name = "tsp"
description = "Find a short tour through all nodes."
unit = "length"


class Instance:
    """One map."""

    def __init__(self, places):
        self.places = places
        self.distance = np.sqrt(((places[:, None] - places[None]) ** 2).sum(-1))

    def play(self, function):
        """Minus the length of the tour that a function makes."""
        here, left, total = 0, list(range(1, len(self.places))), 0.0
        while left:
            node = int(function(here, 0, set(left), self.distance.copy()))
            node = left[-1] if node == -1 else node
            left.remove(node)
            total += self.distance[node, here]
            here = node
        return -float(total + self.distance[0, here])


class Environment:
    """The maps, and how to run on them."""

    def training_dataset(self):
        """The maps to learn on."""
        np.random.seed(1234)
        return [Instance(places) for places in np.random.rand(64, 50, 2)]

    def testing_dataset(self):
        """The maps to test on."""
        np.random.seed(4321)
        return [Instance(places) for places in np.random.rand(64, 50, 2)]

    def run_async(self, policy, instances):
        """A promise of what a policy does on instances."""
        return promised(policy, instances)

"""Items into bins, as they come."""

import math

import numpy as np
from heuristic import promised

name = "obp"
description = "Pack arriving items into few bins."
unit = "%"


def sizes(count):
    """Items as they come."""
    return np.round(np.minimum(np.random.weibull(3, count) * 45, 100))


class Instance:
    """One row of items."""

    def __init__(self, items, capacity):
        self.items = items
        self.capacity = capacity

    def play(self, function):
        """Minus the excess over the lower bound in percent."""
        room = np.full(len(self.items), float(self.capacity))
        for item in self.items.tolist():
            fitting = np.nonzero(room >= item)[0]
            room[fitting[int(np.argmax(function(item, room[fitting])))]] -= item
        used, bound = int((room < self.capacity).sum()), math.ceil(sum(self.items.tolist()) / self.capacity)
        return -(100 * (used - bound) / bound)


class Environment:
    """The rows, and how to run on them."""

    def training_dataset(self):
        """The rows to learn on."""
        np.random.seed(1234)
        return self.drawn()

    def testing_dataset(self):
        """The rows to test on."""
        np.random.seed(4321)
        return self.drawn()

    def drawn(self):
        """Two rows at two capacities."""
        rows = [sizes(5000), sizes(1000)]
        return [Instance(items, capacity) for items in rows for capacity in (100, 500)]

    def run_async(self, policy, instances):
        """A promise of what a policy does on instances."""
        return promised(policy, instances)

# The idea of the algorithm is to rate each bin by how far its room lies below the largest room and by powers of its room relative to the item, to turn the sign where the item does not fill the bin, and to compare each bin with the one before it.
import numpy as np


def step(item_size, remaining_capacity):
    largest = np.max(remaining_capacity)
    score = (remaining_capacity - largest) ** 2 / item_size + remaining_capacity**2 / item_size**2
    score += remaining_capacity**2 / item_size**3
    score[remaining_capacity > item_size] = -score[remaining_capacity > item_size]
    score[1:] -= score[:-1]
    return score


# ruff: noqa

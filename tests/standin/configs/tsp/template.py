import numpy as np


def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):
    return next_node


# ruff: noqa

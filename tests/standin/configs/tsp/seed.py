# The idea of the algorithm is to weigh the distance to each unvisited node against the mean and spread of its distances to the others and its distance from the destination.
import numpy as np


def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):
    scores = {}
    for node in unvisited_nodes:
        others = [distance_matrix[node][i] for i in unvisited_nodes if i != node]
        scores[node] = (
            0.4 * distance_matrix[current_node][node]
            - 0.3 * np.mean(others)
            + 0.2 * np.std(others)
            - 0.1 * distance_matrix[destination_node][node]
        )
    return min(scores, key=scores.get)


# ruff: noqa

"""Programs at the edges of what an evaluator takes, by what is odd about them."""

import re

from search_to_signal.problems.base import Problem

_TWO_WAYS = {
    "tsp": (21, "min(unvisited_nodes, key=lambda node: sign * distance_matrix[current_node][node])"),
    "obp": (21, "-sign * remaining_capacity"),
    "cvrp": (1, "distance_matrix ** -sign"),
    "op": (1, "prize[np.newaxis, :] / distance if sign > 0 else 1 / distance"),
}
"""After how many calls a counting program turns round, and its answer by sign, which is 1.0 or -1.0."""

_COUNTS = {
    "a global count": ("count = [0]", "", "    count[0] += 1\n    calls = count[0]"),
    "a count in a default": ("", ", *, count=[0]", "    count[0] += 1\n    calls = count[0]"),
    "a count on the function": ("", "", "    {name}.count = calls = getattr({name}, 'count', 0) + 1"),
}


def stateful(problem: Problem) -> dict[str, str]:
    """Programs that count their calls and turn round after some, by where they keep the count.

    A host that takes a fresh function for every instance never carries a count over (HOST.md, point 18).
    """
    (head,) = re.findall(r"^def (\w+)\((.*)\):$", problem.template, re.MULTILINE)
    limit, value = _TWO_WAYS[problem.name]
    return {
        where: (
            f"import numpy as np\n\n{before}\n\ndef {head[0]}({head[1]}{default}):\n"
            f"{count.format(name=head[0])}\n"
            f"    sign = 1.0 if calls <= {limit} else -1.0\n    return {value}"
        )
        for where, (before, default, count) in _COUNTS.items()
    }


_FORMS = {
    "tsp": {
        "the place is an int": "type(current_node) is int",
        "the destination is the int 0": "type(destination_node) is int and destination_node == 0",
        "the unvisited are a set of ints": "{*map(type, [unvisited_nodes, *unvisited_nodes])} == {set, int}",
        "the distances are floats": "type(distance_matrix) is np.ndarray and distance_matrix.dtype == float",
        "no node is its own neighbour": "distance_matrix[current_node, current_node] == 0.0",
        "nothing written stays": "distance_matrix.min() >= 0.0 and destination_node not in unvisited_nodes",
    },
    "obp": {
        "the size is a float": "type(item_size) is float",
        "the capacities are floats": "type(remaining_capacity) is np.ndarray "
        "and remaining_capacity.dtype == float",
        "every capacity fits": "remaining_capacity.ndim == 1 and remaining_capacity.min() >= item_size",
        "nothing written stays": "remaining_capacity.min() > 0.0",
    },
    "cvrp": {
        "arguments": "distance_matrix.dtype == demands.dtype == float and coordinates.shape == (51, 2) "
        "and demands.shape == (51,) and demands[0] == 0 and capacity == 50"
    },
    "op": {
        "arguments": "prize.dtype == distance.dtype == float and distance.shape == (50, 50) "
        "and prize.shape == (50,) and maxlen == 3"
    },
}
"""What holds of the arguments of every call; a program asserts it, and then writes into them."""

_SPOILED = {
    "tsp": "distance_matrix[:] = -1.0\n    unvisited_nodes.add(destination_node)",
    "obp": "remaining_capacity[:] = -1.0",
}


def forms(problem: Problem) -> dict[str, str]:
    """Programs that run where the arguments of every call have the form that ours have."""
    (head,) = re.findall(r"^def .*:$", problem.template, re.MULTILINE)
    limit, value = _TWO_WAYS[problem.name]
    return {
        f"arguments, {name}": f"import numpy as np\n\n\n{head}\n    assert {what}\n    sign = 1.0\n"
        f"    answer = {value}\n    {_SPOILED.get(problem.name, 'pass')}\n    return answer"
        for name, what in _FORMS[problem.name].items()
    }


_ANSWERS = {
    "tsp": {
        "the first of the set": "next(iter(unvisited_nodes))",
        "a node as text": "str(min(unvisited_nodes))",
        "a fraction": "min(unvisited_nodes) + 0.9",
        "the last node by -1": "-1",
        "a node as float": "float(min(unvisited_nodes))",
        "a visited node": "0",
    },
    "obp": {
        "priorities as list": "list(-remaining_capacity)",
        "one priority for all": "np.zeros_like(remaining_capacity)",
        "the middle bin": "-abs(np.arange(len(remaining_capacity)) - len(remaining_capacity) // 2)",
        "priorities that are no numbers": "remaining_capacity * np.nan",
        "one number": "1.0",
        "a priority too few": "remaining_capacity[1:]",
    },
    "cvrp": {
        "one column": "1 / distance_matrix[:, :1]",
        "a row too many": "np.vstack([1 / distance_matrix, distance_matrix[:1]])",
        "a row too few": "1 / distance_matrix[1:]",
        "not finite": "np.full(distance_matrix.shape, np.inf)",
    },
    "op": {
        "no positive weight": "np.zeros(distance.shape) - 1",
        "not finite": "np.full(distance.shape, np.nan)",
    },
}


def edges(problem: Problem) -> dict[str, str]:
    """Programs that give one odd answer (HOST.md, sections 1 and 7), and those that keep a state."""
    (head,) = re.findall(r"^def .*:$", problem.template, re.MULTILINE)
    plain = {
        name: f"import numpy as np\n\n\n{head}\n    return {value}"
        for name, value in _ANSWERS[problem.name].items()
    }
    return {**plain, **stateful(problem), **forms(problem)}

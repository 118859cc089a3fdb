"""The TSP vocabulary: what a greedy construction rule can look at."""

from search_to_signal.corpus.grammar import GrammarProgram, Part, Scale, Slips, Term, Vocabulary

TSP = Vocabulary(
    opening_lines=(
        "import numpy as np",
        "",
        "def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):",
        "    nodes = np.array(sorted(unvisited_nodes))",
    ),
    locals={
        "step": "    step = distance_matrix[current_node, nodes]",
        "home": "    home = distance_matrix[destination_node, nodes]",
        "rest": "    rest = distance_matrix[np.ix_(nodes, nodes)]",
        "left": "    left = len(nodes) / len(distance_matrix)",
    },
    scales={"with": Scale("left", ("left",), "fading"), "against": Scale("(1 - left)", ("left",), "growing")},
    terms={
        "step": Term("step", ("step",), ("step length", "distance from the current node"), 1.0),
        "home": Term("home", ("home",), ("way home", "distance to the destination"), 0.25),
        "mean": Term("rest.mean(axis=1)", ("rest",), ("mean isolation", "mean distance to the rest"), 0.2),
        "spread": Term("rest.std(axis=1)", ("rest",), ("distance spread", "deviation of distances"), 0.6),
        "median": Term("np.median(rest, axis=1)", ("rest",), ("median isolation", "typical distance"), 0.2),
        "reach": Term("rest.max(axis=1)", ("rest",), ("outer reach", "farthest distance"), 0.3),
        "local": Term(
            "np.sort(rest, axis=1)[:, :3].mean(axis=1)",
            ("rest",),
            ("local crowding", "gap to the nearest few"),
            0.5,
        ),
        "ring": Term(
            "np.sort(rest, axis=1)[:, :6].mean(axis=1)", ("rest",), ("ring sparsity", "nearby distance"), 0.4
        ),
        "crowd": Term(
            "np.exp(-4 * rest).mean(axis=1)", ("rest",), ("crowd density", "soft neighbour count"), 0.6
        ),
        "centre": Term(
            "rest[rest.sum(axis=1).argmin()]", ("rest",), ("centre offset", "distance to the middle"), 0.25
        ),
        "balance": Term(
            "abs(home - step)", ("step", "home"), ("return balance", "unevenness of the way"), 0.4
        ),
        "trip": Term("(step + home)", ("step", "home"), ("round trip", "trip through the node"), 0.5),
    },
    anchor="step",
    closing_line="    return int(nodes[np.argmin(score)])",
    rules=(
        "visit next the node with the lowest sum of",
        "choose the node that minimizes",
        "rank the unvisited nodes by",
        "go to the node with the smallest total of",
        "weigh every candidate by",
        "prefer nodes with small values of",
    ),
    scores=(-9.0, -4.0),
    slips=Slips(
        mistakes=(
            ("int(nodes[np.argmin(score)])", "int(np.argmin(score))"),
            ("np.array(sorted(unvisited_nodes))", "unvisited_nodes"),
            ("np.argmin(score)", "np.min_index(score)"),
        ),
        chance=(("int(nodes[np.argmin(score)])", "int(np.random.choice(nodes))"),),
        usage="print(select_next_node(0, 0, unvisited_nodes, distance_matrix))",
    ),
)

SEED = GrammarProgram((Part("step", 0.4), Part("mean", -0.3), Part("spread", 0.2), Part("home", -0.1)))

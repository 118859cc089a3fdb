"""The CVRP vocabulary: what the promise of an edge can depend on. Rows are where an ant stands."""

from search_to_signal.corpus.grammar import (
    EDGE_RULES,
    GrammarProgram,
    Part,
    Scale,
    Slips,
    Term,
    Vocabulary,
)

CVRP = Vocabulary(
    opening_lines=(
        "import numpy as np",
        "",
        "def heuristics(distance_matrix, coordinates, demands, capacity):",
        "    step = distance_matrix / distance_matrix.max()",
    ),
    locals={
        "home": "    home = step[0]",
        "save": "    save = np.maximum(home[:, None] + home - step, 0)",
        "load": "    load = demands / capacity",
        "side": "    side = coordinates - coordinates[0]",
        "angle": "    angle = np.arctan2(side[:, 1], side[:, 0])",
    },
    scales={"with": Scale("home", ("home",), "outer"), "against": Scale("(1 - home)", ("home",), "inner")},
    terms={
        "step": Term("step", (), ("edge length", "distance between the nodes"), 1.0),
        "home": Term("home", ("home",), ("depot distance", "way back to the depot"), 0.4),
        "save": Term("save", ("home", "save"), ("saving", "detour that the edge spares"), 0.1),
        "load": Term("load", ("load",), ("demand", "share of the capacity"), 0.3),
        "turn": Term(
            "abs(np.sin((angle[:, None] - angle) / 2))",
            ("side", "angle"),
            ("change of direction", "angle at the depot"),
            0.8,
        ),
        "depth": Term(
            "abs(home[:, None] - home)", ("home",), ("change of depth", "unevenness of the depth"), 0.6
        ),
        "pair": Term("(load[:, None] + load)", ("load",), ("joint demand", "demand of both nodes"), 0.3),
        "mean": Term("step.mean(axis=0)", (), ("mean isolation", "mean distance to the rest"), 0.2),
        "spread": Term("step.std(axis=0)", (), ("distance spread", "deviation of distances"), 0.5),
        "local": Term(
            "np.sort(step, axis=0)[:3].mean(axis=0)", (), ("local crowding", "gap to the nearest few"), 0.3
        ),
        "crowd": Term("np.exp(-4 * step).mean(axis=0)", (), ("crowd density", "soft neighbour count"), 0.6),
        "reach": Term("step.max(axis=0)", (), ("outer reach", "farthest distance"), 0.3),
    },
    anchor="step",
    closing_line="    return np.exp(-8 * score)",
    rules=EDGE_RULES,
    scores=(-14.0, -4.0),
    slips=Slips(
        mistakes=(
            ("np.exp(-8 * score)", "np.exp(-8 * score[0])"),
            ("step = distance_matrix /", "step = distances /"),
            ("np.exp(-8 * score)", "np.softmin(8 * score)"),
        ),
        chance=(("return np.exp(-8 * score)", "return np.random.rand(*score.shape)"),),
        usage="print(heuristics(distance_matrix, coordinates, demands, capacity))",
    ),
)

SEED = GrammarProgram((Part("step", 0.6),))

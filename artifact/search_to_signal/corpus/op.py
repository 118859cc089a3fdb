"""The OP vocabulary: what the promise of an edge can depend on. Rows are where an ant stands."""

from search_to_signal.corpus.grammar import (
    EDGE_RULES,
    GrammarProgram,
    Part,
    Scale,
    Slips,
    Term,
    Vocabulary,
)

OP = Vocabulary(
    opening_lines=(
        "import numpy as np",
        "",
        "def heuristics(prize, distance, maxlen):",
        "    step = np.minimum(distance / maxlen, 1)",
    ),
    locals={"home": "    home = step[0]", "near": "    near = np.exp(-8 * step)"},
    scales={"with": Scale("home", ("home",), "outer"), "against": Scale("(1 - home)", ("home",), "inner")},
    terms={
        "step": Term("step", (), ("edge length", "distance between the nodes"), 1.0),
        "prize": Term("prize", (), ("prize", "reward of the node"), 0.1),
        "home": Term("home", ("home",), ("depot distance", "way back to the depot"), 0.6),
        "trip": Term("(step + home)", ("home",), ("round trip", "trip through the node"), 0.8),
        "slack": Term(
            "np.maximum(1 - step - home, 0)", ("home",), ("slack of the limit", "length left over"), 0.2
        ),
        "gain": Term("(prize * near)", ("near",), ("near prize", "prize for the way"), 0.1),
        "rich": Term("(near @ prize / prize.sum())", ("near",), ("rich surroundings", "prize around"), 0.1),
        "depth": Term(
            "abs(home[:, None] - home)", ("home",), ("change of depth", "unevenness of the depth"), 0.5
        ),
        "mean": Term("step.mean(axis=0)", (), ("mean isolation", "mean distance to the rest"), 0.5),
        "local": Term(
            "np.sort(step, axis=0)[:3].mean(axis=0)", (), ("local crowding", "gap to the nearest few"), 0.6
        ),
        "crowd": Term("near.mean(axis=0)", ("near",), ("crowd density", "soft neighbour count"), 0.3),
        "rest": Term("abs(prize[:, None] - prize)", (), ("change of prize", "difference of the prizes"), 0.6),
    },
    anchor="step",
    closing_line="    return np.exp(-10 * score)",
    rules=EDGE_RULES,
    scores=(3.0, 20.0),
    slips=Slips(
        mistakes=(
            ("np.exp(-10 * score)", "np.exp(-10 * score[0])"),
            ("step = np.minimum(distance /", "step = np.minimum(distance_matrix /"),
            ("np.exp(-10 * score)", "np.softmin(10 * score)"),
        ),
        chance=(("return np.exp(-10 * score)", "return np.random.rand(*score.shape)"),),
        usage="print(heuristics(prize, distance, maxlen))",
    ),
)

SEED = GrammarProgram((Part("step", 0.5), Part("prize", -0.2)))

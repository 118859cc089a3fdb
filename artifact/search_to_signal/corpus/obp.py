"""The bin packing vocabulary: what the priority of a bin can depend on, sizes as shares of a whole bin."""

from search_to_signal.corpus.grammar import GrammarProgram, Part, Scale, Slips, Term, Vocabulary

OBP = Vocabulary(
    opening_lines=(
        "import numpy as np",
        "",
        "def step(item_size, remaining_capacity):",
        "    room = remaining_capacity / remaining_capacity.max()",
        "    size = item_size / remaining_capacity.max()",
        "    gap = room - size",
    ),
    locals={},
    scales={"with": Scale("size", (), "heavy"), "against": Scale("(1 - size)", (), "light")},
    terms={
        "fresh": Term("np.floor(room)", (), ("new bin", "cost of opening a bin"), 1.0),
        "gap": Term("gap", (), ("gap", "room left over"), 0.8),
        "tight": Term("np.exp(-20 * gap)", (), ("tight fit", "closeness of the fit"), 0.2),
        "loose": Term("np.sign(gap)", (), ("missed exact fit", "failure to fill the bin"), 0.8),
        "ratio": Term("(size / room)", (), ("share of the room", "relative size"), 0.2),
        "twin": Term("abs(gap - size)", (), ("twin misfit", "distance to room for a twin"), 0.6),
        "after": Term("(gap % size)", (), ("remainder", "waste after twins"), 0.7),
        "half": Term("abs(gap - 0.5)", (), ("half misfit", "distance from half a bin"), 0.4),
        "third": Term("abs(gap - 0.3)", (), ("third misfit", "distance from a useful gap"), 0.5),
        "sliver": Term("np.exp(-20 * abs(gap - 0.1))", (), ("useless sliver", "awkward small gap"), 0.7),
        "waste": Term("(gap * (1 - gap))", (), ("middling waste", "gap of no use"), 0.6),
        "order": Term("(np.arange(len(gap)) / len(gap))", (), ("age rank", "order of opening"), 0.7),
    },
    anchor="fresh",
    closing_line="    return np.negative(score)",
    rules=(
        "put the item into the bin with the lowest sum of",
        "choose the bin that minimizes",
        "rank the bins by",
        "take the bin with the smallest total of",
        "weigh every bin by",
        "prefer bins with small values of",
    ),
    scores=(-30.0, 0.0),
    slips=Slips(
        mistakes=(
            ("remaining_capacity.max()", "remaining_capacity.largest()"),
            ("item_size /", "item_size[0] /"),
            ("np.negative(score)", "np.negative(scores)"),
        ),
        chance=(("return np.negative(score)", "return np.random.rand(*score.shape)"),),
        usage="print(step(item_size, remaining_capacity))",
    ),
)

SEED = GrammarProgram((Part("fresh", 0.4), Part("order", -0.1), Part("loose", 0.1)))

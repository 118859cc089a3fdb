"""A grammar of scoring heuristics: a program is a weighted sum of named terms, and low sums are good.

The tables of a problem (its vocabulary) say which terms exist, how code reads them and what it returns;
everything else here is common to all problems, so that another problem is another table.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

WEIGHTS = tuple(round(0.05 * k, 2) for k in range(1, 21))
FIXED = "fixed"
SCALES = (FIXED, "with", "against")
SHAPES = ("plain", "root", "square")
MAX_TERMS = 6
HELD_OUT_SHARE = 10
EDGE_RULES = (
    "let the ants follow edges with the lowest sum of",
    "favour edges that minimize",
    "rate every edge by",
    "make an edge promising by a small total of",
    "weigh the edges by",
    "prefer edges with small values of",
)
"""How ideas begin where a matrix rates edges for ants."""


@dataclass(frozen=True)
class Term:
    """A feature of a choice: code that computes it, the locals it reads, and names a person would use.

    The code is one operand (a name, a call, a bracket) and gives numbers of zero or more, so that its root
    and its square can be written. ``sign`` is the share of positive weights that the grammar draws for it.
    """

    expression: str
    needs: tuple[str, ...]
    names: tuple[str, ...]
    sign: float


@dataclass(frozen=True)
class Scale:
    """What a term can be multiplied by: a factor in [0, 1], the locals it reads, and an adjective."""

    factor: str
    needs: tuple[str, ...]
    word: str


Exchange = tuple[str, str]


@dataclass(frozen=True)
class Slips:
    """How answers to one problem go wrong: text of a faithful program, and what stands there instead.

    ``mistakes`` fail when run, ``chance`` draws random numbers, ``usage`` is a line that calls the function.
    """

    mistakes: tuple[Exchange, ...]
    chance: tuple[Exchange, ...]
    usage: str


@dataclass(frozen=True)
class Vocabulary:
    """The terms of one problem and the frame of its function.

    ``locals`` are written in their order here, each only where something reads it. ``scores`` is the range
    of scores that parents in training prompts claim (higher is better).
    """

    opening_lines: tuple[str, ...]
    locals: Mapping[str, str]
    scales: Mapping[str, Scale]
    terms: Mapping[str, Term]
    anchor: str
    closing_line: str
    rules: tuple[str, ...]
    scores: tuple[float, float]
    slips: Slips


@dataclass(frozen=True)
class Part:
    """One weighted term of a program; ``name`` picks the words that ideas use for it."""

    term: str
    weight: float
    scale: str = FIXED
    shape: str = "plain"
    name: int = 0


@dataclass(frozen=True)
class GrammarProgram:
    """A heuristic as the grammar sees it; the first part is the anchor term."""

    parts: tuple[Part, ...]

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(part.term for part in self.parts)


def held_out(program: GrammarProgram) -> bool:
    """Whether this combination of terms, scales and shapes is kept out of training (one in ten)."""
    combination = sorted(f"{p.term}/{p.scale}/{p.shape}" for p in program.parts)
    return hashlib.sha256("+".join(combination).encode()).digest()[0] % HELD_OUT_SHARE == 0


def draw_weight(vocabulary: Vocabulary, term: str, rng: np.random.Generator) -> float:
    """A weight from the grid: large for the anchor, mostly small with the usual sign for the others."""
    if term == vocabulary.anchor:
        return WEIGHTS[int(rng.integers(7, len(WEIGHTS)))]
    size = WEIGHTS[int(min(rng.geometric(0.25) - 1, 13))]
    return size if rng.random() < vocabulary.terms[term].sign else -size


def draw_part(vocabulary: Vocabulary, term: str, rng: np.random.Generator) -> Part:
    """A weighted term; most are fixed and plain."""
    scale = SCALES[int(rng.choice(3, p=(0.7, 0.15, 0.15)))]
    shape = SHAPES[int(rng.choice(3, p=(0.8, 0.1, 0.1)))]
    name = int(rng.integers(len(vocabulary.terms[term].names)))
    return Part(term, draw_weight(vocabulary, term, rng), scale, shape, name)


def draw_program(vocabulary: Vocabulary, rng: np.random.Generator) -> GrammarProgram:
    """A program of the anchor and one to four other terms."""
    others = [term for term in vocabulary.terms if term != vocabulary.anchor]
    count = int(rng.integers(1, 5))
    chosen = rng.choice(len(others), size=count, replace=False)
    anchor = replace(draw_part(vocabulary, vocabulary.anchor, rng), scale=FIXED)
    return GrammarProgram((anchor, *(draw_part(vocabulary, others[int(i)], rng) for i in chosen)))


def _shaped(expression: str, shape: str) -> str:
    if shape == "root":
        return f"np.sqrt({expression})"
    if shape == "square":
        return f"{expression} ** 2"
    return expression


def _part_line(vocabulary: Vocabulary, part: Part, first: bool) -> str:
    # The weight stands last, so that a model which copies a term has its weight at hand.
    expression = _shaped(vocabulary.terms[part.term].expression, part.shape)
    factor = "" if part.scale == FIXED else f" * {vocabulary.scales[part.scale].factor}"
    return f"    score {'=' if first else '+='} {expression}{factor} * {part.weight:g}"


def _needs(vocabulary: Vocabulary, part: Part) -> tuple[str, ...]:
    scale = () if part.scale == FIXED else vocabulary.scales[part.scale].needs
    return vocabulary.terms[part.term].needs + scale


def render_code(vocabulary: Vocabulary, program: GrammarProgram) -> str:
    """The program as Python source; one line per term."""
    needed = {name for part in program.parts for name in _needs(vocabulary, part)}
    lines = [*vocabulary.opening_lines]
    lines += [line for name, line in vocabulary.locals.items() if name in needed]
    lines += [_part_line(vocabulary, part, first=i == 0) for i, part in enumerate(program.parts)]
    return "\n".join([*lines, vocabulary.closing_line])


# The TSP vocabulary: what a greedy construction rule can look at.

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


# The CVRP vocabulary: what the promise of an edge can depend on. Rows are where an ant stands.

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

CVRP_SEED = GrammarProgram((Part("step", 0.6),))


# The bin packing vocabulary: what the priority of a bin can depend on, sizes as shares of a whole bin.

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

OBP_SEED = GrammarProgram((Part("fresh", 0.4), Part("order", -0.1), Part("loose", 0.1)))


# The OP vocabulary: what the promise of an edge can depend on. Rows are where an ant stands.

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

OP_SEED = GrammarProgram((Part("step", 0.5), Part("prize", -0.2)))


SPOKEN = {
    "tsp": (TSP, SEED),
    "cvrp": (CVRP, CVRP_SEED),
    "obp": (OBP, OBP_SEED),
    "op": (OP, OP_SEED),
}
"""The vocabulary of each problem that the grammar speaks, and its seed heuristic as a program."""

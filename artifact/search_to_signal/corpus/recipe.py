"""The problems that the grammar covers, and training text as chat messages."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from search_to_signal.corpus import cvrp, obp, op, tsp
from search_to_signal.corpus.pairs import PairSource, TrainingPair, pairs
from search_to_signal.errors import ConfigError
from search_to_signal.problems import get_problem

_TABLES = {
    "tsp": (tsp.TSP, tsp.SEED),
    "cvrp": (cvrp.CVRP, cvrp.SEED),
    "obp": (obp.OBP, obp.SEED),
    "op": (op.OP, op.SEED),
}


def sources(problems: Sequence[str]) -> tuple[PairSource, ...]:
    """The corpus sources of the named problems; raises ConfigError for one that the grammar lacks."""
    unknown = sorted(set(problems) - set(_TABLES))
    if unknown or not problems:
        raise ConfigError(
            f"the grammar has no vocabulary for {', '.join(unknown) or 'an empty list'}: "
            f"choose from {', '.join(sorted(_TABLES))}"
        )
    return tuple(PairSource(get_problem(name), *_TABLES[name]) for name in problems)


def mixed_pairs(
    shares: Mapping[str, float], defect_shares: Mapping[str, float], rng: np.random.Generator
) -> Iterator[TrainingPair]:
    """An endless stream of pairs; ``shares`` says how much of it each problem gets, and sums to 1."""
    streams = [pairs(source, defect_shares, rng) for source in sources(list(shares))]
    while True:
        yield next(streams[int(rng.choice(len(streams), p=list(shares.values())))])

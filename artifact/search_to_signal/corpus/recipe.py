"""The problems that the grammar speaks, and training text as chat messages."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from search_to_signal.corpus.pairs import Pair, Source, pairs
from search_to_signal.corpus.tsp import SEED, TSP
from search_to_signal.errors import ConfigError
from search_to_signal.problems import get_problem

_SOURCES = {"tsp": lambda: Source(get_problem("tsp"), TSP, SEED)}


def sources(problems: Sequence[str]) -> tuple[Source, ...]:
    """The corpus sources of the named problems; raises ConfigError for one that the grammar lacks."""
    unknown = sorted(set(problems) - set(_SOURCES))
    if unknown or not problems:
        raise ConfigError(
            f"the grammar has no vocabulary for {', '.join(unknown) or 'an empty list'}: "
            f"choose from {', '.join(sorted(_SOURCES))}"
        )
    return tuple(_SOURCES[name]() for name in problems)


def mixed_pairs(
    problems: Sequence[str], defect_shares: Mapping[str, float], rng: np.random.Generator
) -> Iterator[Pair]:
    """An endless stream of pairs that draws every problem equally often."""
    streams = [pairs(source, defect_shares, rng) for source in sources(problems)]
    while True:
        yield next(streams[int(rng.integers(len(streams)))])

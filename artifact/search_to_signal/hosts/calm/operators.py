"""Which operator the next prompt uses (HOST.md, point 9)."""

import numpy as np
from numpy.typing import NDArray

from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.records.abilities import CALM_OPERATORS

SIMPLIFICATION, INJECTION, REPLACEMENT, CROSSOVER, CREATION = CALM_OPERATORS
OPERATORS = (SIMPLIFICATION, INJECTION, REPLACEMENT, CROSSOVER)


def operator_probabilities(archive_size: int, settings: SearchSettings) -> NDArray[np.float64]:
    """(4,) probabilities in the order of OPERATORS; all zero when no operator can be used.

    Crossover needs two members. While the archive is smaller than the population, the weight of injection is
    raised to the largest of those that then stand.
    """
    crossover = settings.crossover if archive_size >= 2 else 0.0
    weights = np.array([settings.simplification, settings.injection, settings.replacement, crossover])
    if archive_size < settings.population_size:
        weights[1] = weights.max()
    total = weights.sum()
    return weights / total if total > 0 else weights

"""How often a host asks which prompt, against the exact chances of ours."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest, chi2

from search_to_signal.conformance.findings import HostFinding, Verdict
from search_to_signal.hosts.calm.operators import CROSSOVER, OPERATORS, operator_probabilities
from search_to_signal.hosts.calm.selection import crossover_pairs, primary
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.calm.state import SearchState
from search_to_signal.numerics import Floats
from search_to_signal.records.schema import Operator

UNLIKELY = 1e-6
"""Frequencies differ when chance alone would take them further apart less often than this."""
FEWEST = 5

Kind = tuple[Operator, tuple[int, ...]]
"""The operator of a prompt, and the positions of its heuristics in the order in which it shows them."""


def chances(state: SearchState, settings: SearchSettings) -> dict[Kind, float]:
    """Exact chance of each kind of prompt, as ``selection`` has it."""
    by_kind: defaultdict[Kind, float] = defaultdict(float)
    alone = primary(len(state.archive), settings)
    for operator, chance in zip(OPERATORS, operator_probabilities(len(state.archive), settings), strict=True):
        if operator != CROSSOVER:
            by_kind.update({(operator, (i,)): float(chance * share) for i, share in enumerate(alone)})
        elif chance:
            for pair, share in np.ndenumerate(_pairs(state, len(alone))):
                shown = sorted(pair, key=lambda position: state.archive[position].score)[::-1]
                by_kind[operator, tuple(shown)] += float(chance * share)
    return {kind: chance for kind, chance in by_kind.items() if chance > 0}


def crossovers(state: SearchState, settings: SearchSettings) -> dict[Kind, float]:
    """The same among crossovers."""
    pairs = {kind: chance for kind, chance in chances(state, settings).items() if kind[0] == CROSSOVER}
    return {kind: chance / sum(pairs.values()) for kind, chance in pairs.items()}


def _pairs(state: SearchState, head: int) -> Floats:
    scores = np.array([member.score for member in state.archive[:head]])
    return crossover_pairs(scores, np.array([state.distances(first) for first in state.archive[:head]]))


def frequencies(subject: str, counted: Counter[Any], expected: Mapping[Any, float]) -> HostFinding:
    """Whether counts fit exact chances; a kind that ours never draws decides at once.

    Kinds due at least five times go into Pearson's test, all others together into an exact binomial one; the
    smaller of the two p-values counts, doubled.
    """
    draws = sum(counted.values())
    impossible = draws - sum(counted[kind] for kind in expected)
    if impossible:
        detail = f"{impossible} of {draws} draws are impossible for ours"
        return HostFinding(subject, Verdict.DIFFERS, detail, draws)
    common = [kind for kind, due in expected.items() if due * draws >= FEWEST]
    rare = 1.0 - sum(expected[kind] for kind in common)
    seen = draws - sum(counted[kind] for kind in common)
    values = [_pearson([counted[kind] for kind in common], [expected[kind] for kind in common])]
    if len(common) < len(expected):
        values.append(float(binomtest(seen, draws, min(max(rare, 0.0), 1.0)).pvalue))
    chance = min(1.0, len(values) * min(values))
    verdict = Verdict.CLOSE if chance >= UNLIKELY else Verdict.DIFFERS
    return HostFinding(subject, verdict, f"{draws} draws, {len(expected)} kinds, p = {chance:.3g}", draws)


def _pearson(counts: Sequence[int], chances: Sequence[float]) -> float:
    """Pearson's p-value of counts, given how many there are in all."""
    if len(counts) < 2:
        return 1.0
    seen, due = np.array(counts), np.array(chances) / sum(chances) * sum(counts)
    return float(chi2.sf(((seen - due) ** 2 / due).sum(), len(counts) - 1))

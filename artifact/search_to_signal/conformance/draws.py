"""Which operator asks, and which heuristics a prompt shows."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from search_to_signal.conformance.findings import HostFinding, Verdict, attempted
from search_to_signal.conformance.frequencies import chances, frequencies, kind_of
from search_to_signal.conformance.host_pair import HostPair
from search_to_signal.conformance.questions import crowded_state
from search_to_signal.hosts.calm.operators import CROSSOVER, INJECTION, OPERATORS, operator_probabilities
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.compared import AskedPrompt
from search_to_signal.records.schema import Operator

SIZES = (1, 2, 5, 9, 10, 14)


def operators(hosts: HostPair) -> Iterator[HostFinding]:
    """How often each operator is drawn, at archives from the seed alone to more than the population."""
    for size in SIZES:
        yield from attempted(f"{size} members", _operators_often, hosts, size)


def draws(hosts: HostPair, name: str, size: int, named: bool = True) -> list[AskedPrompt]:
    """Prompts in a state of the seed and made-up members, with or without their operators' names."""
    state = crowded_state(hosts.problem, hosts.seed, size)
    with hosts.seeded(f"{name} {size}"):
        return list(islice(hosts.theirs.asks(state, named=named), hosts.draws))


def _operators_often(hosts: HostPair, size: int) -> HostFinding:
    chances = operator_probabilities(size, hosts.settings)
    expected = {name: float(due) for name, due in zip(OPERATORS, chances, strict=True) if due > 0}
    counted = Counter(asked.operator for asked in draws(hosts, "operators", size))
    finding = frequencies(f"{size} members", counted, expected)
    raised = _raised_by_one(size, hosts.settings)
    if finding.verdict is Verdict.DIFFERS and frequencies("", counted, raised).verdict is Verdict.CLOSE:
        return replace(finding, detail=f"{finding.detail}: injection has the largest weight plus one (9)")
    return finding


def _raised_by_one(size: int, settings: SearchSettings) -> dict[Operator, float]:
    """Chances where injection gets the largest weight plus one meanwhile, as in a later version."""
    weights = {name: float(getattr(settings, name)) for name in OPERATORS}
    if size < 2:
        weights[CROSSOVER] = 0.0
    if size < settings.population_size:
        weights[INJECTION] = max(weights.values()) + 1
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items() if weight > 0}


def parents(hosts: HostPair) -> Iterator[HostFinding]:
    """How often each parent and pair of parents is drawn, against our exact chances.

    Ideas lie at different distances: the host's order of equal ones depends on the processor (22).
    """
    for size in SIZES:
        yield from attempted(f"{size} members", _parents_often, hosts, size)


def _parents_often(hosts: HostPair, size: int) -> HostFinding:
    counted = Counter(kind_of(asked) for asked in draws(hosts, "parents", size, named=False))
    expected = chances(crowded_state(hosts.problem, hosts.seed, size), hosts.settings)
    return frequencies(f"{size} members", counted, expected)

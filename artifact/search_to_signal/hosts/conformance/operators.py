"""Which operator asks."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from search_to_signal.hosts.compared import AskedPrompt
from search_to_signal.hosts.conformance.bench import Bench
from search_to_signal.hosts.conformance.findings import Finding, attempted
from search_to_signal.hosts.conformance.frequencies import frequencies
from search_to_signal.hosts.conformance.questions import crowded_state
from search_to_signal.search.operators import OPERATORS, operator_probabilities

SIZES = (1, 2, 5, 9, 10, 14)


def operators(bench: Bench) -> Iterator[Finding]:
    """How often each operator is drawn, at archives from the seed alone to more than the population."""
    for size in SIZES:
        yield from attempted(f"{size} members", _often, bench, size)


def draws(bench: Bench, name: str, size: int, named: bool = True) -> list[AskedPrompt]:
    """Prompts in a state of the seed and made-up members, with or without their operators' names."""
    state = crowded_state(bench.problem, bench.seed, size)
    with bench.seeded(f"{name} {size}"):
        return list(islice(bench.theirs.asks(state, named=named), bench.draws))


def _often(bench: Bench, size: int) -> Finding:
    chances = operator_probabilities(size, bench.settings)
    expected = {name: float(due) for name, due in zip(OPERATORS, chances, strict=True) if due > 0}
    counted = Counter(asked.operator for asked in draws(bench, "operators", size))
    return frequencies(f"{size} members", counted, expected)

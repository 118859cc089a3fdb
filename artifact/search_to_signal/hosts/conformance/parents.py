"""Which heuristics a prompt shows."""

from collections import Counter
from collections.abc import Iterator

from search_to_signal.hosts.conformance.bench import Bench
from search_to_signal.hosts.conformance.findings import Finding, attempted
from search_to_signal.hosts.conformance.frequencies import chances, frequencies, kind_of
from search_to_signal.hosts.conformance.operators import SIZES, draws
from search_to_signal.hosts.conformance.questions import crowded_state


def parents(bench: Bench) -> Iterator[Finding]:
    """How often each parent and pair of parents is drawn, against our exact chances.

    Ideas lie at different distances: the host's order of equal ones depends on the processor (22).
    """
    for size in SIZES:
        yield from attempted(f"{size} members", _often, bench, size)


def _often(bench: Bench, size: int) -> Finding:
    counted = Counter(kind_of(asked) for asked in draws(bench, "parents", size, named=False))
    expected = chances(crowded_state(bench.problem, bench.seed, size), bench.settings)
    return frequencies(f"{size} members", counted, expected)

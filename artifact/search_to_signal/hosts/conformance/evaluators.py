"""Scores of programs."""

from collections.abc import Iterator

from search_to_signal.hosts.conformance.bench import Bench
from search_to_signal.hosts.conformance.edges import edges
from search_to_signal.hosts.conformance.findings import Finding, attempted, numbers


def evaluators(bench: Bench) -> Iterator[Finding]:
    """The released seed, ours in its place, generated programs, and odd ones, some with a state (18)."""
    own = bench.problem.seed.code
    codes = {"released seed": bench.seed_code, "our seed": own}
    codes |= {f"program {number}": code for number, code in enumerate(bench.codes)}
    codes |= edges(bench.problem)
    for name, code in codes.items():
        yield from attempted(name, _scored, bench, name, code, code)
    yield from attempted("seeds", _scored, bench, "our seed as the released one", own, bench.seed_code)


def _scored(bench: Bench, subject: str, ours: str, theirs: str) -> Finding:
    return numbers(subject, bench.ours.scores(ours), bench.theirs.scores(theirs))

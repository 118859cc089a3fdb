"""Scores of programs."""

from collections.abc import Iterator

from search_to_signal.hosts.conformance.bench import Bench
from search_to_signal.hosts.conformance.edges import edges
from search_to_signal.hosts.conformance.findings import Finding, Verdict, attempted, numbers


def evaluators(bench: Bench) -> Iterator[Finding]:
    """The released seed, ours in its place, generated programs, and odd ones, some with a state (18).

    Nothing is said of other programs where the released evaluator cannot run its own seed here.
    """
    own = bench.problem.seed.code
    codes = {"our seed": own}
    codes |= {f"program {number}": code for number, code in enumerate(bench.codes)}
    codes |= edges(bench.problem)
    yield from attempted("released seed", _seed, bench)
    for name, code in codes.items():
        yield from attempted(name, _scored, bench, name, code, code)
    yield from attempted("seeds", _scored, bench, "our seed as the released one", own, bench.seed_code)


def _seed(bench: Bench) -> Finding:
    return numbers("released seed", bench.ours.scores(bench.seed_code), bench.released_seed)


def _scored(bench: Bench, subject: str, ours: str, theirs: str) -> Finding:
    if bench.released_seed is None:
        return Finding(subject, Verdict.UNKNOWN, "the released evaluator cannot run its own seed here")
    return numbers(subject, bench.ours.scores(ours), bench.theirs.scores(theirs))

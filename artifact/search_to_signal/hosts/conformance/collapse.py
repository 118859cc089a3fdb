"""Starting again."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from search_to_signal.hosts.conformance.bench import Bench
from search_to_signal.hosts.conformance.findings import Finding, Verdict, attempted, things
from search_to_signal.hosts.conformance.frequencies import frequencies
from search_to_signal.hosts.conformance.questions import crowded_state
from search_to_signal.hosts.conformance.transition import compared
from search_to_signal.hosts.released.trainer import THRESHOLD_SHARE
from search_to_signal.search.collapse import collapse_probability
from search_to_signal.search.state import SearchState

_AT_DEFAULT = 40


def collapse(bench: Bench) -> Iterator[Finding]:
    """What a collapse keeps, how often it comes at each counter, and what a threshold of -1 is (14, 25)."""
    full = replace(crowded_state(bench.problem, bench.seed, 12), injected=("a part",))
    near = bench.seed.score + 5e-8
    cases = {
        "best and seed": full,
        "a best that equals the seed": bench.members([near, *(near - number for number in range(1, 12))]),
    }
    for subject, state in cases.items():
        yield from attempted(subject, _kept, bench, subject, state)
    limit = bench.settings.collapse_threshold
    for counter in (0, limit * 2 // 5, limit - 1, limit):
        yield from attempted(f"at counter {counter}", _often, bench, full, counter)
    yield from attempted("threshold -1", _default, bench, full)


def _kept(bench: Bench, subject: str, state: SearchState) -> Iterator[Finding]:
    with bench.seeded(subject):
        ours, theirs = bench.ours.collapsed(state), bench.theirs.collapsed(state)
    yield from compared(subject, ours, theirs)
    yield things(f"{subject}, counter", ours.stagnation, theirs.stagnation)
    yield things(f"{subject}, injected components", ours.injected, theirs.injected)


def _collapses(bench: Bench, state: SearchState, counter: int) -> bool:
    return len(bench.theirs.drawn_at(state, counter).archive) < len(state.archive)


def _often(bench: Bench, state: SearchState, counter: int) -> Finding:
    chance = collapse_probability(counter, bench.settings)
    with bench.seeded(f"collapse {counter}"):
        counted = Counter(_collapses(bench, state, counter) for _ in range(bench.draws))
    expected = {whether: due for whether, due in ((True, chance), (False, 1 - chance)) if due > 0}
    return frequencies(f"at counter {counter}", counted, expected)


def _default(bench: Bench, state: SearchState) -> Finding:
    """Whether a threshold of -1 collapses at a twentieth of the steps and not before."""
    subject, options = "threshold -1", bench.theirs.trainer.calm_args
    limit = options.max_steps // THRESHOLD_SHARE
    before, options.max_stuck_threshold = options.max_stuck_threshold, -1
    try:
        with bench.seeded(subject):
            if all(_collapses(bench, state, 0) for _ in range(_AT_DEFAULT)):
                why = "the host replaces it before its search begins, in code that is not run here"
                return Finding(subject, Verdict.UNKNOWN, why)
            seen = [
                all(_collapses(bench, state, counter) for _ in range(_AT_DEFAULT))
                for counter in (limit - 1, limit)
            ]
    finally:
        options.max_stuck_threshold = before
    said = f"always at {limit - 1}: {seen[0]}, always at {limit}: {seen[1]}"
    return things(subject, f"always at {limit - 1}: False, always at {limit}: True", said)

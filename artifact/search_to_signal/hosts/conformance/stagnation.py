"""The counter of rounds without a new best."""

from collections.abc import Iterator
from dataclasses import replace

from search_to_signal.hosts.conformance.bench import Bench
from search_to_signal.hosts.conformance.findings import Finding, attempted, things
from search_to_signal.hosts.conformance.questions import answer

_COUNTED = 3


def stagnation(bench: Bench) -> Iterator[Finding]:
    """The counter after one answer, from states made so that each rule must show (13 and 21)."""
    score, size = bench.child[1], bench.settings.population_size
    below = [score - 1.0 - number for number in range(size - 1)]
    child = answer(bench.child[0])
    cases = {
        "archive below the population size": ([score + 1.0, *below[:-1]], child, None),
        "archive that the round fills": ([score + 1.0, *below[:-1]], child, None),
        "full archive, child below the best": ([score + 1.0, *below], child, None),
        "full archive, child equal to the best": ([score, *below], child, None),
        "full archive, failed child": ([score + 1.0, *below], "nothing", None),
        "child above the best": ([score - 1.0 - number for number in range(size)], child, None),
        "child above the best by less than equality": ([score - 5e-8, *below], child, None),
        "child above its base alone": ([score + 1.0, *below], child, (1,)),
    }
    for subject, (scores, text, bases) in cases.items():
        yield from attempted(subject, _counted, bench, subject, scores, text, bases)


def _counted(
    bench: Bench, subject: str, scores: list[float], text: str, bases: tuple[int, ...] | None
) -> Finding:
    state = replace(bench.members(scores), stagnation=_COUNTED)
    ours, theirs = bench.both(state, bench.asked(state, subject, bases=bases), (text,))
    return things(subject, ours.after.stagnation, theirs.after.stagnation)

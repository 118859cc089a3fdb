"""When two heuristics are one: on either side of the edge, and by score alone, whatever their code (6)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from search_to_signal.conformance.answers import rewarded
from search_to_signal.conformance.draws import paired
from search_to_signal.conformance.findings import HostFinding, attempted, things
from search_to_signal.conformance.host_pair import HostPair
from search_to_signal.conformance.questions import answer
from search_to_signal.hosts.calm.operators import CROSSOVER
from search_to_signal.hosts.calm.state import EQUAL_WITHIN, SearchState, state_of
from search_to_signal.programs.canonical import program_sha256

_WITHIN, _BEYOND = 0.99 * EQUAL_WITHIN, 1.01 * EQUAL_WITHIN
_SIDES = {"just within 1e-7": _WITHIN, "just beyond 1e-7": _BEYOND}


def ties(hosts: HostPair) -> Iterator[HostFinding]:
    """Who is admitted, who is a copy, who is a second parent and which seed survives, at the edge."""
    code, score = hosts.child
    for side, gap in _SIDES.items():
        for where, other in (("above", score - gap), ("below", score + gap)):
            subject = f"admission, {side} {where} a member"
            yield from attempted(subject, _admitted, hosts, subject, hosts.members([score + 1.0, other]))
        subject = f"reward, {side} of the lesser base"
        bases = [score + 0.3 * abs(score) + 1.0, score + gap]
        yield from attempted(subject, rewarded, hosts, subject, CROSSOVER, bases, answer(code))
        subject = f"second parents, {side}"
        scores = [score, score - gap, score - 1.0]
        yield from attempted(subject, paired, hosts, subject, hosts.members(scores))
    for side, gap in {**_SIDES, "at 1e-7": EQUAL_WITHIN}.items():
        subject = f"collapse, a seed {side} below the best"
        yield from attempted(subject, _survivors, hosts, subject, gap)
    yield from attempted("equal code", _by_code, hosts)


def _admitted(hosts: HostPair, subject: str, state: SearchState) -> HostFinding:
    """Whether the child enters."""
    text = answer(hosts.child[0])
    played = hosts.both(state, hosts.asked(state, subject), (text,))
    return things(subject, *(f"{len(group.after.archive) - len(state.archive)} admitted" for group in played))


def _by_code(hosts: HostPair) -> Iterator[HostFinding]:
    """A child beside a member that has its code and another score, and beside one with its score alone."""
    code, score = hosts.child
    apart = hosts.members([score + 2.0, score + 1.0])
    twin = replace(apart.archive[1], code=code, id=program_sha256(code))
    state = state_of([apart.archive[0], twin], apart.seeds).listed()
    yield _admitted(hosts, "admission, a member's code at another score", state)
    yield _admitted(hosts, "admission, a member's score by other code", hosts.members([score + 1.0, score]))


def _survivors(hosts: HostPair, subject: str, gap: float) -> HostFinding:
    """How many stand after a collapse whose best is so far above the only seed, which has score 0."""
    seed = replace(hosts.seed, score=0.0)
    others: Sequence[float] = [gap, *(-float(number) for number in range(1, 12))]
    state = state_of(hosts.members(list(others)).archive, [seed])
    with hosts.seeded(subject):
        left = hosts.ours.collapsed(state), hosts.theirs.collapsed(state)
    return things(subject, *(f"{len(remaining.archive)} left" for remaining in left))

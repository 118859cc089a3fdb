"""Which operator asks, and which heuristics a prompt shows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from search_to_signal.records.schema import Operator
from search_to_signal.sandbox.programs import program_sha256
from search_to_signal.search.hosts.calm.prompts import CROSSOVER, OPERATORS, operator_probabilities
from search_to_signal.search.hosts.calm.selection import primary
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import EQUAL_WITHIN, SearchState, state_of
from search_to_signal.verify.conformance.answers import rewarded
from search_to_signal.verify.conformance.findings import HostFinding, Verdict, attempted, things
from search_to_signal.verify.conformance.host_pair import HostPair, Kind, chances, crossovers, frequencies
from search_to_signal.verify.conformance.questions import answer, crowded_state

SIZES = (1, 2, 5, 9, 10, 14)
HEAD = 4
"""Population size where second parents are looked at: few kinds, so that a small change of chances shows."""


def operators(hosts: HostPair) -> Iterator[HostFinding]:
    """How often each operator is drawn, at archives from the seed alone to more than the population."""
    for size in SIZES:
        yield from attempted(f"{size} members", _operators_often, hosts, size)
    yield from attempted("one after another", _in_a_row, hosts)


def _kinds(hosts: HostPair, size: int) -> list[Kind]:
    return hosts.kinds(f"operators {size}", crowded_state(hosts.problem, hosts.seed, size))


def _due(size: int, settings: SearchSettings) -> dict[Operator, float]:
    chances = operator_probabilities(size, settings)
    return {name: float(due) for name, due in zip(OPERATORS, chances, strict=True) if due > 0}


def _operators_often(hosts: HostPair, size: int) -> HostFinding:
    counted = Counter(operator for operator, _ in _kinds(hosts, size))
    finding = frequencies(f"{size} members", counted, _due(size, hosts.settings))
    raised = _raised_by_one(size, hosts.settings)
    if finding.verdict is Verdict.DIFFERS and frequencies("", counted, raised).verdict is Verdict.CLOSE:
        return replace(finding, detail=f"{finding.detail}: injection has the largest weight plus one (9)")
    return finding


def _raised_by_one(size: int, settings: SearchSettings) -> dict[Operator, float]:
    """Chances where injection gets the largest weight plus one meanwhile, as in a later version."""
    if size >= settings.population_size:
        return _due(size, settings)
    most = max(getattr(settings, name) for name in OPERATORS if size > 1 or name != CROSSOVER)
    return _due(size, msgspec.structs.replace(settings, injection=most + 1, population_size=1))


def _in_a_row(hosts: HostPair) -> HostFinding:
    """Pairs of successive prompts: a host that takes turns has the right frequencies."""
    drawn = [operator for operator, _ in _kinds(hosts, SIZES[-1])]
    due = _due(SIZES[-1], hosts.settings)
    expected = {(one, two): due[one] * due[two] for one in due for two in due}
    return frequencies("one after another", Counter(zip(drawn[::2], drawn[1::2], strict=False)), expected)


def parents(hosts: HostPair) -> Iterator[HostFinding]:
    """How often each operator shows which heuristics, and each rule of a second parent by itself.

    Ideas lie at different distances: the host's order of equal ones depends on the processor (22).
    """
    for size in SIZES:
        yield from attempted(f"{size} members", _parents_often, hosts, size)
        yield from attempted(f"{size} members, single parents", _singles_often, hosts, size)
    for name, scores, ideas in _rules(hosts.seed.score):
        yield from attempted(name, paired, hosts, name, _state(hosts, scores, ideas))


def _parents_often(hosts: HostPair, size: int) -> HostFinding:
    expected = chances(crowded_state(hosts.problem, hosts.seed, size), hosts.settings)
    return frequencies(f"{size} members", Counter(_kinds(hosts, size)), expected)


def _singles_often(hosts: HostPair, size: int) -> HostFinding:
    counted = Counter(shown for operator, shown in _kinds(hosts, size) if operator != CROSSOVER)
    expected = {(i,): float(share) for i, share in enumerate(primary(size, hosts.settings))}
    return frequencies(f"{size} members, single parents", counted, expected)


def _rules(score: float) -> Iterator[tuple[str, list[float], Sequence[str]]]:
    """States of six members, four of them the population, in which one rule decides; scores and ideas."""
    apart, equal = [score - i for i in range(6)], [score - 1e-9 * i for i in range(6)]
    one = ["the one idea of all"] * 6
    yield "by performance alone", [score, score - 5e-8, *apart[2:]], one
    yield "by diversity alone", equal, IDEAS
    yield "by diversity, some of them alike", equal, ["a b c d e f", "a b c d", "a b e", "a", "a g", "c f h"]
    yield "one way or the other", apart, [*one[:4], "some quite other words", "another idea with more"]


IDEAS = (
    "weigh sort room",
    "ün a bins b ün (by) ün sort",
    "weigh left_over (by) age; Sort the Room 2 by",
    "the Sort (by) bins, age; ün left_over (by)",
    "age; age; age; ün ün",
    "by é sort weigh weigh bins bins,",
)
"""Of differing words, cases, repeats, marks and lengths."""


def _state(hosts: HostPair, scores: list[float], ideas: Sequence[str]) -> SearchState:
    state = hosts.members(scores)
    members = [replace(one, idea=idea) for one, idea in zip(state.archive, ideas, strict=True)]
    return state_of(members, state.seeds)


def paired(hosts: HostPair, name: str, state: SearchState) -> HostFinding:
    """How often each pair is shown among crossovers, where four members are a full population."""
    with hosts.theirs.sized(HEAD):
        counted = Counter(hosts.kinds(name, state, CROSSOVER))
    settings = msgspec.structs.replace(hosts.settings, population_size=HEAD)
    return frequencies(name, counted, crossovers(state, settings))


# When two heuristics are one: on either side of the edge, and by score alone, whatever their code (6).

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

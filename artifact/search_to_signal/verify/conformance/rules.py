"""The rules of a search: which operator asks, whom a prompt shows, what a group and a collapse do."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec

from search_to_signal.records.schema import Operator
from search_to_signal.sandbox import programs
from search_to_signal.search.hosts.calm.host import primary
from search_to_signal.search.hosts.calm.prompts import (
    CROSSOVER,
    INJECTION,
    OPERATORS,
    REPLACEMENT,
    operator_probabilities,
)
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import EQUAL_WITHIN, SearchState, collapse_probability, state_of
from search_to_signal.search.hosts.released.trainer import THRESHOLD_SHARE, changed
from search_to_signal.search.member import Member
from search_to_signal.verify.conformance.answers import rewarded
from search_to_signal.verify.conformance.pair import (
    HostFinding,
    HostPair,
    Kind,
    Verdict,
    answer,
    attempted,
    chances,
    crossovers,
    crowded_state,
    frequencies,
    groups,
    numbers,
    things,
)

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
    text = answer(hosts.child[0])
    played = hosts.both(state, hosts.asked(state, subject), (text,))
    return things(subject, *(f"{len(group.after.archive) - len(state.archive)} admitted" for group in played))


def _by_code(hosts: HostPair) -> Iterator[HostFinding]:
    """A child beside a member that has its code and another score, and beside one with its score alone."""
    code, score = hosts.child
    apart = hosts.members([score + 2.0, score + 1.0])
    twin = replace(apart.archive[1], code=code, id=programs.program_sha256(code))
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


_COUNTED = 3
_KNOWN = "a known part"
_AT_DEFAULT = 40
_NEGATIVE = (-1, -2)
_QUICK = 0.04
_PARTS = {
    **{"after the code": "part", "apostrophe and hyphen": "'half-open'", "round brackets": "part (a)"},
    **{"square brackets": "part [a]", "a digit": "part 2", "with a comma": "part, part", "of a letter": "p"},
    **{"known before": _KNOWN, "known before in capitals": _KNOWN.upper(), "blanks around": "   part   "},
    **{"over a line break": "a\npart", "with an underscore": "part_a"},
}


def transition(hosts: HostPair) -> Iterator[HostFinding]:
    """Whom a group brings into an archive of one, a growing and a full one, and what is kept of it."""
    yield from attempted("listing", _listed, hosts)
    played = groups(hosts.problem, hosts.codes, hosts.seed_code)
    for size, texts in zip((1, 6, 12, 3), played, strict=True):
        subject = f"{size} members"
        yield from attempted(subject, _moved, hosts, subject, size, texts)


def _moved(hosts: HostPair, subject: str, size: int, texts: tuple[str, ...]) -> Iterator[HostFinding]:
    state = crowded_state(hosts.problem, hosts.seed, size)
    ours, theirs = hosts.both(state, hosts.asked(state, f"transition {size}"), texts)
    yield from compared(subject, ours.after, theirs.after)


def _listed(hosts: HostPair) -> HostFinding:
    """In which order a round finds four members, of which the first three are equal (8)."""
    state = hosts.members([-1.0, -1.0, -1.0, -2.0])
    with hosts.seeded("listing"):
        theirs = hosts.theirs.drawn_at(state, 0)
    both = ([member.id[:8] for member in listed.archive] for listed in (state.listed(), theirs))
    return things("listing, equal members", *both)


def compared(subject: str, ours: SearchState, theirs: SearchState) -> Iterator[HostFinding]:
    """Two archives: their size or scores, who is in them, with which idea and from which operator."""
    both = [[member.score for member in state.archive] for state in (ours, theirs)]
    if len(both[0]) != len(both[1]):
        yield things(f"{subject}, archive size", len(both[0]), len(both[1]))
        return
    yield numbers(f"{subject}, archive", both[0], both[1])
    facts: dict[str, Callable[[Member], str]] = {
        "members and their order": lambda member: member.id[:8],
        "ideas": lambda member: programs.sha256_text(member.idea)[:8],
        "operators": lambda member: member.operator or "seed",
    }
    for name, fact in facts.items():
        yield things(f"{subject}, {name}", *(list(map(fact, state.archive)) for state in (ours, theirs)))


def stagnation(hosts: HostPair) -> Iterator[HostFinding]:
    """The counter after one answer, from states made so that each rule must show (13 and 21)."""
    score, size = hosts.child[1], hosts.settings.population_size
    below = [score - 1.0 - number for number in range(size - 1)]
    child = answer(hosts.child[0])
    noted = answer(f"{hosts.child[0]}\n# random")
    cases = {
        "archive below the population size": ([score + 1.0, *below[: size // 2]], child, None),
        "archive that the round fills": ([score + 1.0, *below[:-1]], child, None),
        "full archive, child below the best": ([score + 1.0, *below], child, None),
        "full archive, child equal to the best": ([score, *below], child, None),
        "full archive, failed child": ([score + 1.0, *below], "nothing", None),
        "child above the best": ([score - 1.0 - number for number in range(size)], child, None),
        "child above the best by less than equality": ([score - 5e-8, *below], child, None),
        "child above its base alone": ([score + 1.0, *below], child, (1,)),
        "failed child above the best": ([score - 1.0 - number for number in range(size)], noted, None),
    }
    for subject, (scores, text, bases) in cases.items():
        yield from attempted(subject, _counted, hosts, subject, scores, (text,), bases)
    for subject, texts in (("first of two", (child, "nothing")), ("last of two", ("nothing", child))):
        subject = f"child above the best, {subject}"
        yield from attempted(subject, _counted, hosts, subject, [score - 1.0, *below[1:]], texts, None)


def _counted(
    hosts: HostPair, subject: str, scores: list[float], texts: tuple[str, ...], bases: tuple[int, ...] | None
) -> HostFinding:
    state = replace(hosts.members(scores), stagnation=_COUNTED)
    ours, theirs = hosts.both(state, hosts.asked(state, subject, bases=bases), texts)
    return things(subject, ours.after.stagnation, theirs.after.stagnation)


def components(hosts: HostPair) -> Iterator[HostFinding]:
    """What is stored after one answer, by where and how it announces a component (15 and 19)."""
    code, score = hosts.child
    idea = f"{programs.OPENING} do what the code says."
    state = replace(hosts.members([score + 1.0, score - 1.0]), injected=(_KNOWN,))
    equal = replace(hosts.members([score + 1.0, score]), injected=(_KNOWN,))
    broken, noted = f"{code}\nraise ValueError", f"{code}\n# random"
    texts = {
        "in the idea": answer(code, f"{idea} {_said('part')}"),
        "before the idea": f"{_said('part')}\n{answer(code)}",
        **{name: f"{answer(code)}\n{_said(part)}" for name, part in _PARTS.items()},
        "two of them": f"{answer(code)}\n{_said('part')} {_said('part (b)')}",
        "in small letters": f"{answer(code)}\n{_said('part').lower()}",
        "without a name": f"{answer(code)}\n{programs.COMPONENT_BEFORE} {programs.COMPONENT_AFTER}.",
        "without code": f"{{{{{idea}}}}}\n{_said('part')}",
        "of a program that does not load": f"{answer(broken)}\n{_said('part')}",
        "of a program with randomness": f"{answer(noted)}\n{_said('part')}",
    }
    asked = [(name, state, INJECTION, text) for name, text in texts.items()]
    asked.append(("of a child not admitted", equal, INJECTION, texts["after the code"]))
    asked.append(("after a replacement", state, REPLACEMENT, texts["after the code"]))
    for subject, before, operator, text in asked:
        yield from attempted(subject, _stored, hosts, subject, before, operator, text)


def _stored(hosts: HostPair, subject: str, before: SearchState, operator: Operator, text: str) -> HostFinding:
    ours, theirs = hosts.both(before, hosts.asked(before, subject, operator), (text,))
    return things(subject, ours.after.injected, theirs.after.injected)


def _said(component: str) -> str:
    return f"{programs.COMPONENT_BEFORE} {component} {programs.COMPONENT_AFTER}."


def collapse(hosts: HostPair) -> Iterator[HostFinding]:
    """What a collapse keeps, how often it comes at each counter, what a negative threshold is (14, 25)."""
    full = replace(crowded_state(hosts.problem, hosts.seed, 12), injected=("a part",))
    near = hosts.seed.score + 5e-8
    cases = {
        "best and seed": full,
        "a best that equals the seed": hosts.members([near, *(near - number for number in range(1, 12))]),
        "three equal bests": hosts.members([near + 2.0] * 3 + [near + 1.0]),
    }
    for subject, state in cases.items():
        yield from attempted(subject, _kept, hosts, subject, state)
    limit = hosts.settings.collapse_threshold
    for counter in (0, limit * 2 // 5, limit - 1, limit):
        subject = f"at counter {counter}"
        yield from attempted(subject, _often, hosts, subject, full, counter)
    for counter in (1, 10):
        subject = f"at counter {counter} and a speed of {_QUICK}"
        yield from attempted(subject, _often, hosts, subject, full, counter, _QUICK)
    yield from attempted("threshold -1", _defaults, hosts, full)


def _kept(hosts: HostPair, subject: str, state: SearchState) -> Iterator[HostFinding]:
    hosts.theirs.trainer.log_step = _COUNTED
    with hosts.seeded(subject):
        ours, theirs = hosts.ours.collapsed(state), hosts.theirs.collapsed(state)
    yield from compared(subject, ours, theirs)
    yield things(f"{subject}, steps so far", _COUNTED, hosts.theirs.trainer.log_step)
    yield things(f"{subject}, counter", ours.stagnation, theirs.stagnation)
    yield things(f"{subject}, injected components", ours.injected, theirs.injected)


def _collapses(hosts: HostPair, state: SearchState, counter: int) -> bool:
    return len(hosts.theirs.drawn_at(state, counter).archive) < len(state.archive)


def _often(
    hosts: HostPair, subject: str, state: SearchState, counter: int, speed: float | None = None
) -> HostFinding:
    """``speed`` in place of the checkout's, at which so few collapse that a wrong rule would not show."""
    speed = hosts.settings.collapse_speed if speed is None else speed
    settings = msgspec.structs.replace(hosts.settings, collapse_speed=speed)
    chance = collapse_probability(counter, settings)
    with changed(hosts.theirs.trainer.calm_args, speed_collapse=speed), hosts.seeded(f"collapse {counter}"):
        counted = Counter(_collapses(hosts, state, counter) for _ in range(hosts.draws))
    expected = {whether: due for whether, due in ((True, chance), (False, 1 - chance)) if due > 0}
    return frequencies(subject, counted, expected)


def _defaults(hosts: HostPair, state: SearchState) -> Iterator[HostFinding]:
    """Whether a threshold below 0 collapses at a twentieth of the steps and not before, -1 as any other."""
    limit = hosts.theirs.trainer.calm_args.max_steps // THRESHOLD_SHARE
    if _always(hosts, state, -1, 0):
        why = "the host replaces it before its search begins, in code that is not run here"
        yield from (HostFinding(f"threshold {value}", Verdict.UNKNOWN, why) for value in _NEGATIVE)
        return
    for value in _NEGATIVE:
        seen = [_always(hosts, state, value, counter) for counter in (0, limit - 1, limit)]
        yield things(f"threshold {value}", _told([False, False, True], limit), _told(seen, limit))


def _told(always: Sequence[bool], limit: int) -> str:
    counters = (0, limit - 1, limit)
    return ", ".join(f"always at {at}: {answer}" for at, answer in zip(counters, always, strict=True))


def _always(hosts: HostPair, state: SearchState, threshold: int, counter: int) -> bool:
    subject = f"threshold {threshold} at {counter}"
    with changed(hosts.theirs.trainer.calm_args, max_stuck_threshold=threshold), hosts.seeded(subject):
        return all(_collapses(hosts, state, counter) for _ in range(_AT_DEFAULT))

"""What an answer is worth: the scores of its program, its typed outcome, its native reward."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from search_to_signal.conformance.edges import edges
from search_to_signal.conformance.findings import (
    HostFinding,
    Verdict,
    attempted,
    numbers,
    reason,
    things,
)
from search_to_signal.conformance.host_pair import HostPair
from search_to_signal.conformance.questions import answer, odd_answers
from search_to_signal.errors import HostError
from search_to_signal.hosts.calm.operators import CROSSOVER, INJECTION, REPLACEMENT, SIMPLIFICATION
from search_to_signal.hosts.calm.state import state_of
from search_to_signal.hosts.compared import PlayedGroup
from search_to_signal.programs.canonical import sha256_text
from search_to_signal.records.schema import Operator


def evaluators(hosts: HostPair) -> Iterator[HostFinding]:
    """The released seed, ours in its place, generated programs, and odd ones, some with a state (18).

    Nothing is said of other programs where the released evaluator cannot run its own seed here.
    """
    own = hosts.problem.seed.code
    codes = {"our seed": own}
    codes |= {f"program {number}": code for number, code in enumerate(hosts.codes)}
    codes |= edges(hosts.problem)
    yield from attempted("released seed", _seed, hosts, "released seed", hosts.seed_code)
    for name, code in codes.items():
        yield from attempted(name, _scored, hosts, name, code)
    yield from attempted("seeds", _seed, hosts, "our seed as the released one", own)


def _seed(hosts: HostPair, subject: str, code: str) -> HostFinding:
    return numbers(subject, hosts.ours.scores(code), hosts.released_seed)


def _scored(hosts: HostPair, subject: str, code: str) -> HostFinding:
    if hosts.released_seed is None:
        return HostFinding(subject, Verdict.UNKNOWN, "the released evaluator cannot run its own seed here")
    return numbers(subject, hosts.ours.scores(code), hosts.theirs.scores(code))


def parsing(hosts: HostPair) -> Iterator[HostFinding]:
    """The typed outcome of every odd answer, judged alone, and the idea that is kept of it."""
    for name, text in odd_answers(hosts.problem, hosts.codes[0]).items():
        yield from attempted(name, _judged, hosts, name, text)


def _judged(hosts: HostPair, subject: str, text: str) -> Iterator[HostFinding]:
    state = state_of([hosts.seed], [hosts.seed])
    ours, theirs = hosts.both(state, hosts.asked(state, "parsing"), (text,))
    (own,), (other,) = ours.outcomes, theirs.outcomes
    if own is None or other is None:
        what = f"its reward of {theirs.rewards[0]} is no severity that the checkout's options name"
        yield HostFinding(subject, Verdict.UNKNOWN, what)
    else:
        yield _explained(subject, things(subject, own.value, other.value))
    if _idea(ours) or _idea(theirs):
        yield _explained(subject, things(f"{subject}, idea kept", _idea(ours), _idea(theirs)))


def _explained(subject: str, finding: HostFinding) -> HostFinding:
    """Where an idea without braces ends is read off copies, not off the pinned revision (20)."""
    if finding.verdict is Verdict.DIFFERS and subject.startswith("loose idea"):
        return replace(finding, detail=f"{finding.detail}: HOST.md, point 20, says what decides it")
    return finding


def _idea(played: PlayedGroup) -> str:
    """Length and hash of the idea of what was admitted: an idea is nothing to print."""
    ideas = [member.idea for member in played.after.archive if member.operator]
    return f"{len(ideas[0])} characters, {sha256_text(ideas[0])[:8]}" if ideas else ""


_SEVERITIES = ("nothing", "no code", "two blocks", "an error while running", "random in a comment")


def rewards(hosts: HostPair) -> Iterator[HostFinding]:
    """Rewards of each failure, and of a child beside bases whose scores were chosen for it.

    Children of a simplification and an injection are among them: a port of the host gives those 0 (29).
    """
    odd = odd_answers(hosts.problem, hosts.child[0])
    for name in _SEVERITIES:
        subject = f"severity, {name}"
        yield from attempted(subject, rewarded, hosts, subject, REPLACEMENT, [hosts.child[1]], odd[name])
    text, score = answer(hosts.child[0]), hosts.child[1]
    for subject, operator, bases in _cases(score):
        yield from attempted(subject, rewarded, hosts, subject, operator, bases, text)
    far = 0.3 * abs(score) or 1.0
    for subject, other, shown in (("better", score - far, (1,)), ("worse, equal to another", score, (0,))):
        subject, bases = f"{subject}, beside a member not shown", [score + far, other]
        yield from attempted(subject, rewarded, hosts, subject, REPLACEMENT, bases, text, shown)
    yield from attempted("creation", _created, hosts)


def _created(hosts: HostPair) -> HostFinding:
    """A valid child of a creation prompt: it has no base, and a host may fail over that (16)."""
    (state, asked), text = hosts.creation(), answer(hosts.child[0])
    hosts.both(state, hosts.asked(state, "beside a creation"), (text,))  # raises where any prompt does
    ours = hosts.ours.play(state, asked, (text,)).rewards
    try:
        theirs = hosts.theirs.play(state, asked, (text,)).rewards
    except HostError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the host raises without a base
        wanted = getattr(error, "obj", None)
        if wanted is hosts.theirs.trainer or wanted is hosts.theirs.trainer.calm_args:
            why = f"{reason(error)}: it wanted what only the host's constructor sets"
            return HostFinding("creation, a valid child", Verdict.UNKNOWN, why)
        raised = f"ours {ours}, theirs wanted a base: {reason(error)} (HOST.md, point 16)"
        return HostFinding("creation, a valid child", Verdict.DIFFERS, raised)
    return numbers("creation, a valid child", ours, theirs)


def _cases(score: float) -> Iterator[tuple[str, Operator, list[float]]]:
    """What a child of this score is beside the bases, the operator, and the scores of the bases."""
    far, near = 0.3 * abs(score) or 1.0, 5e-8
    bases = {"better": score - far, "equal": score, "worse": score + far}
    for operator in (SIMPLIFICATION, INJECTION, REPLACEMENT):
        for name, base in bases.items():
            yield f"{operator}, {name}", operator, [base]
    yield "better by almost nothing", REPLACEMENT, [score - near]
    yield "worse by almost nothing", REPLACEMENT, [score + near]
    yield "better by the last bit", REPLACEMENT, [float(np.nextafter(score, -np.inf))]
    yield "worse many times over", REPLACEMENT, [score + 9 * abs(score) + 1]
    yield "better many times over", REPLACEMENT, [score - 9 * abs(score) - 1]
    yield "beside a score of zero", REPLACEMENT, [0.0]
    yield "crossover, better", CROSSOVER, [score - far, score - 2 * far]
    yield "crossover, a copy of the lesser base", CROSSOVER, [score + far, score]
    yield "crossover, between the bases", CROSSOVER, [score + far, score - far]
    yield "crossover, worse", CROSSOVER, [score + 2 * far, score + far]


def rewarded(
    hosts: HostPair,
    subject: str,
    operator: Operator,
    bases: list[float],
    text: str,
    shown: tuple[int, ...] | None = None,
) -> HostFinding:
    """The rewards of one answer beside members of these scores; a prompt shows all unless ``shown``."""
    state = hosts.members(bases)
    asked = hosts.asked(state, subject, operator, tuple(range(len(bases))) if shown is None else shown)
    ours, theirs = hosts.both(state, asked, (text,))
    finding = numbers(subject, ours.rewards, theirs.rewards)
    if finding.verdict is Verdict.CLOSE and ours.scores == theirs.scores:
        return replace(finding, verdict=Verdict.DIFFERS)  # equal scores have equal rewards, to the bit (23)
    return finding

"""Native rewards, to the bit."""

from collections.abc import Iterator
from dataclasses import replace

from search_to_signal.hosts.conformance.bench import Bench
from search_to_signal.hosts.conformance.findings import Finding, Verdict, attempted, numbers
from search_to_signal.hosts.conformance.questions import answer, odd_answers
from search_to_signal.records.schema import Operator

_SEVERITIES = ("nothing", "no code", "two blocks", "an error while running", "random in a comment")


def rewards(bench: Bench) -> Iterator[Finding]:
    """Rewards of each failure, and of a child beside bases whose scores were chosen for it.

    Children of a simplification and an injection are among them: a port of the host gives those 0 (29).
    """
    odd = odd_answers(bench.problem, bench.child[0])
    for name in _SEVERITIES:
        yield from attempted(name, _compared, bench, name, Operator.REPLACEMENT, [bench.child[1]], odd[name])
    for subject, operator, bases in _cases(bench.child[1]):
        yield from attempted(subject, _compared, bench, subject, operator, bases, answer(bench.child[0]))


def _cases(score: float) -> Iterator[tuple[str, Operator, list[float]]]:
    """What a child of this score is beside the bases, the operator, and the scores of the bases."""
    far, near = 0.3 * abs(score) or 1.0, 5e-8
    one = {"better": score - far, "equal": score, "worse": score + far}
    for operator in (Operator.SIMPLIFICATION, Operator.INJECTION, Operator.REPLACEMENT):
        for name, base in one.items():
            yield f"{operator.value}, {name}", operator, [base]
    yield "better by almost nothing", Operator.REPLACEMENT, [score - near]
    yield "worse by almost nothing", Operator.REPLACEMENT, [score + near]
    yield "better many times over", Operator.REPLACEMENT, [score - 9 * abs(score) - 1]
    yield "beside a score of zero", Operator.REPLACEMENT, [0.0]
    yield "crossover, better", Operator.CROSSOVER, [score - far, score - 2 * far]
    yield "crossover, a copy of the lesser base", Operator.CROSSOVER, [score + far, score]
    yield "crossover, between the bases", Operator.CROSSOVER, [score + far, score - far]
    yield "crossover, worse", Operator.CROSSOVER, [score + 2 * far, score + far]


def _compared(bench: Bench, subject: str, operator: Operator, bases: list[float], text: str) -> Finding:
    state = bench.members(bases)
    asked = bench.asked(state, subject, operator, tuple(range(len(bases))))
    ours, theirs = bench.both(state, asked, (text,))
    found = numbers(subject, ours.rewards, theirs.rewards)
    if found.verdict is Verdict.CLOSE and ours.scores == theirs.scores:
        return replace(found, verdict=Verdict.DIFFERS)  # equal scores have equal rewards, to the bit (23)
    return found

"""What the plan decided, for and against, in as few lines as its verdicts have; each comparison once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from search_to_signal.analysis.plan.lines import heading, number
from search_to_signal.analysis.plan.outcomes import Outcome, Verdict

TITLES = {
    Verdict.ABOVE: "Decided, above zero",
    Verdict.BELOW: "Decided, below zero",
    Verdict.OPEN: "Undecided",
}


@dataclass(frozen=True)
class Decided:
    """One verdict, and everything that has it: a line per study, metric and second side."""

    title: str
    lines: tuple[str, ...]


def decided(found: Sequence[Outcome]) -> list[Decided]:
    """Above, below and undecided; a verdict that nothing has is left out."""
    asked = list(_once(found))
    told = ((title, tuple(_lines(o for o in asked if o.verdict is said))) for said, title in TITLES.items())
    return [Decided(title, lines) for title, lines in told if lines]


def _once(found: Sequence[Outcome]) -> Iterator[Outcome]:
    """Every comparison of a metric by its difference, and by its signs only where that is not asked for."""
    own = [one for one in found if not one.borrowed and len(one.sides) > 1]
    differences = {(one.sides, one.question.metric) for one in own if _by_mean(one)}
    for one in own:
        if _by_mean(one) or (one.sides, one.question.metric) not in differences:
            yield one


def _by_mean(one: Outcome) -> bool:
    return one.question.estimator == "mean_difference"


def _lines(found: Iterable[Outcome]) -> Iterator[str]:
    groups: dict[tuple[str, str, str, int], list[str]] = {}
    for one in found:
        first, _, second = one.name.partition(" minus ")
        key = (one.study.key, heading(one), second, len(one.values))
        groups.setdefault(key, []).append(f"{first} {_value(one)}")
    for (_, metric, second, n), told in groups.items():
        yield f"{metric} against {second}, n = {n}: {', '.join(told)}"


def _value(one: Outcome) -> str:
    if not _by_mean(one):
        return f"above in {one.above}, below in {one.below}"
    end = f" (not above {number(one, one.corrected[1])})" if one.corrected else ""
    return f"{number(one, one.mean)}{end if one.verdict is Verdict.OPEN else ''}"

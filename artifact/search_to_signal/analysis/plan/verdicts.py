"""What the plan decided, for and against, in as few lines as its verdicts have; each comparison once.

Beside it what bears on it: what longer runs still found, and what was asked besides the plan.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from search_to_signal.analysis.plan.besides import Continued
from search_to_signal.analysis.plan.lines import heading, measure_of, number
from search_to_signal.analysis.plan.outcomes import Outcome, Verdict
from search_to_signal.analysis.results import Origin
from search_to_signal.analysis.tables.cells import Cell, Row, Table
from search_to_signal.progress import counted
from search_to_signal.records.plan import Question

TITLES = {
    Verdict.ABOVE: "Decided, above zero",
    Verdict.BELOW: "Decided, below zero",
    Verdict.OPEN: "Undecided",
    Verdict.CLOSED: "Undecided, closed before all seeds were recorded",
}
BESIDES = "Asked besides the plan, exploratory"


@dataclass(frozen=True)
class Decided:
    """One verdict, and everything that has it: a line per study, metric and second side."""

    title: str
    lines: tuple[str, ...]


def decided(
    found: Sequence[Outcome], besides: Sequence[Outcome] = (), longer: Sequence[Continued] = ()
) -> list[Decided]:
    """Above, below, undecided and closed, then what was asked besides; what nothing has is left out."""
    asked = list(_once(found))
    told = [Decided(title, _with_reach(asked, said, longer)) for said, title in TITLES.items()]
    told.append(Decided(BESIDES, tuple(_besides(besides))))
    return [one for one in told if one.lines]


def _with_reach(asked: Sequence[Outcome], said: Verdict, longer: Sequence[Continued]) -> tuple[str, ...]:
    """The lines of a verdict; what is undecided has behind it, once, what longer runs still found of it."""
    same = [one for one in asked if one.verdict is said]
    return tuple(dict.fromkeys(_lines(same, longer if said is Verdict.OPEN else ())))


def left_to_find(question: Question, longer: Sequence[Continued]) -> list[str]:
    """What runs that went on still found of what a question compares: how far it is from its ceiling."""
    return [_went_on(one) for one in longer if one.bears_on(question)]


def _went_on(one: Continued) -> str:
    measure = measure_of(one.question.metric)
    gain, least, most = (
        f"{measure.factor * value:.{measure.decimals}f}"
        for value in (one.mean, min(one.gains.values()), max(one.gains.values()))
    )
    runs = counted(len(one.gains), f"{one.side.rpartition('/')[2]} run")
    low, high = min(one.further.values()), max(one.further.values())
    further = counted(low, "further group") if low == high else f"{low} to {high} further groups"
    return (
        f"What was left to find: {runs} that went on after {one.groups} groups, for {further}, gained "
        f"{gain} in {measure.heading} on average ({least} to {most})"
    )


def continued_table(longer: Sequence[Continued]) -> Table:
    """Longer runs, a row per side: how far they went on, and what that gained; in the unit of the metric."""
    note = "The best of all groups minus that of the groups compared, of one run; n counts seeds."
    columns = ("Groups", "Fewest further", "Most further", "Gain", "Least", "Most")
    rows = tuple(Row(one.side, tuple(_continued_cells(one))) for one in longer)
    return Table("continued", "What longer runs still found", "cohort", columns, rows, "Runs", note)


def _continued_cells(one: Continued) -> Iterator[Cell]:
    origins, n = tuple(map(Origin, one.files)), len(one.gains)
    measure = measure_of(one.question.metric)
    gains, further = one.gains.values(), one.further.values()
    yield Cell(one.groups, n, "groups that the question compares", origins)
    yield Cell(min(further), n, "groups after these, of the shortest run", origins)
    yield Cell(max(further), n, "groups after these, of the longest run", origins)
    for value, what in ((one.mean, "mean"), (min(gains), "least"), (max(gains), "greatest")):
        formula = f"{what} over seeds of {measure.formula}, all groups minus those compared"
        yield Cell(measure.factor * value, n, formula, origins, measure.decimals)


def _besides(found: Sequence[Outcome]) -> Iterator[str]:
    asked = list(_once(found))
    for metric in dict.fromkeys(one.question.metric for one in asked):
        for said in TITLES:
            same = (one for one in asked if (one.question.metric, one.verdict) == (metric, said))
            yield from (f"{line}: {said.value}" for line in _lines(same))


def _once(found: Sequence[Outcome]) -> Iterator[Outcome]:
    """Every comparison of a metric by its difference, and by its signs only where that is not asked for.

    One that was closed short stands here only where no other question has its seeds.
    """
    whole = {_told(one) for one in found if not one.short}
    own = [one for one in found if not one.borrowed and len(one.sides) > 1]
    own = [one for one in own if not (one.short and _told(one) in whole)]
    differences = {(one.sides, one.question.metric) for one in own if _by_mean(one)}
    for one in own:
        if _by_mean(one) or (one.sides, one.question.metric) not in differences:
            yield one


def _told(one: Outcome) -> tuple[object, ...]:
    return one.sides, one.question.metric, one.question.estimator


def _by_mean(one: Outcome) -> bool:
    return one.question.estimator == "mean_difference"


def _lines(found: Iterable[Outcome], longer: Sequence[Continued] = ()) -> Iterator[str]:
    groups: dict[tuple[str, str, str, int], list[Outcome]] = {}
    for one in found:
        key = (one.study.key, heading(one), one.name.partition(" minus ")[2], len(one.values))
        groups.setdefault(key, []).append(one)
    for (_, metric, second, n), same in groups.items():
        told = ", ".join(f"{one.name.partition(' minus ')[0]} {_value(one)}" for one in same)
        yield f"{metric} against {second}, n = {n}: {told}"
        yield from left_to_find(same[0].question, longer)


def _value(one: Outcome) -> str:
    if not _by_mean(one):
        return f"above in {one.above}, below in {one.below}"
    end = f" (not above {number(one, one.corrected[1])})" if one.corrected else ""
    return f"{number(one, one.mean)}{end if one.verdict is Verdict.OPEN else ''}"

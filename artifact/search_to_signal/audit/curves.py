"""Figures over steps as SVG that scales with the page; labels and numbers are HTML."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from search_to_signal.audit.findings import Findings, StepCounts

# Points of a curve: more steps than that are drawn together.
_POINTS = 160
_WIDTH, _HEIGHT = 1000, 100
KINDS = ("differ", "all right", "all wrong", "tie in between", "no effect")


@dataclass(frozen=True)
class Curve:
    """A figure: what it shows, its least and greatest value, first and last step, paths by class, and
    the names of those, bottom first, that need a legend."""

    title: str
    low: str
    high: str
    first: str
    last: str
    paths: Sequence[tuple[str, str]]
    legend: Sequence[str] = ()


@dataclass(frozen=True)
class _Point:
    """Sums over neighbouring steps."""

    groups: int
    kinds: Sequence[int]
    taught: float
    reward: float


def curves(findings: Findings) -> tuple[Curve, ...]:
    """What became of the groups, completions that teach, and the mean reward, over the steps of the log."""
    if len(findings.steps) < 2:
        return ()
    points = [_point(findings, steps) for steps in _together(findings.steps)]
    ends = (_name(findings.steps[0]), _name(findings.steps[-1]))
    shares = [[count / point.groups for count in point.kinds] for point in points]
    return (
        Curve("Groups", "0 %", "100 %", *ends, _stacked(shares), _met(shares)),
        _line("Completions that teach, per step", [point.taught for point in points], ends, from_zero=True),
        _line("Mean reward", [point.reward for point in points], ends, from_zero=False),
    )


def _together(steps: Sequence[StepCounts]) -> list[Sequence[StepCounts]]:
    count = math.ceil(len(steps) / _POINTS)
    return [steps[start : start + count] for start in range(0, len(steps), count)]


def _point(findings: Findings, steps: Sequence[StepCounts]) -> _Point:
    high, low = findings.signal.right_at, findings.signal.wrong_at
    groups = sum(step.groups for step in steps)
    dead = sum(step.flags["dead"] for step in steps)
    flat = sum(step.flags["flat"] - step.flags["flat_credit"] for step in steps)
    right = 0 if high is None else sum(step.ties.right(high) for step in steps)
    wrong = 0 if low is None else sum(step.ties.wrong(low) for step in steps)
    known = [step for step in steps if math.isfinite(step.mean_reward)]
    rows = sum(step.completions for step in known)
    return _Point(
        groups,
        (groups - dead, right, wrong, flat - right - wrong, dead - flat),
        sum(step.taught for step in steps) / len(steps),
        sum(step.mean_reward * step.completions for step in known) / rows if rows else math.nan,
    )


def _met(shares: Sequence[Sequence[float]]) -> tuple[str, ...]:
    return tuple(name for kind, name in enumerate(KINDS) if any(of_point[kind] for of_point in shares))


def _stacked(shares: Sequence[Sequence[float]]) -> list[tuple[str, str]]:
    """Areas from the bottom up, each between the sum of those below and its own."""
    sums = [[0.0, *accumulate(of_point)] for of_point in shares]
    paths = []
    for kind, name in enumerate(KINDS):
        if any(of_point[kind] for of_point in shares):
            upper = [(at, heights[kind + 1]) for at, heights in enumerate(sums)]
            lower = [(at, heights[kind]) for at, heights in enumerate(sums)]
            line = " L".join(_at(at, value, len(sums)) for at, value in (*upper, *reversed(lower)))
            paths.append((f"area {name.split()[-1]}", f"M{line}Z"))
    return paths


def _line(title: str, values: Sequence[float], ends: tuple[str, str], from_zero: bool) -> Curve:
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    low = 0.0 if from_zero else low
    extent = high - low or 1.0
    pieces, pen = [], "M"
    for at, value in enumerate(values):
        # A step without a number is a gap.
        if math.isfinite(value):
            pieces.append(f"{pen}{_at(at, (value - low) / extent, len(values))}")
        pen = " L" if math.isfinite(value) else " M"
    return Curve(title, f"{low:.4g}", f"{high:.4g}", *ends, [("line", "".join(pieces))])


def _at(at: int, value: float, count: int) -> str:
    return f"{_WIDTH * at / max(count - 1, 1):.1f},{_HEIGHT * (1 - value):.2f}"


def _name(step: StepCounts) -> str:
    return f"step {step.step}" if step.step >= 0 else step.source

"""Did a search pay? Its best scores beside what the same effort buys otherwise.

Evidence is an e-value: at most 1 in the mean where the search is worth nothing, at any time of looking, so it
reaches ENOUGH by chance in at most a share of 1 / ENOUGH (Ville's inequality). An interval has what evidence
in neither direction refuses (Waudby-Smith and Ramdas, arXiv:2010.09686).

- Pairs of runs: without an effect either one is as likely to be ahead. Bets on the signs of differences, by
  their sizes so far, make a martingale (Ramdas, Ruf, Larsson and Koolen, arXiv:2009.03167; symmetry).
- A run beside independent answers: where its best is distributed as that of f times as many, the order of all
  scores has a known chance (Savage, Contributions to the theory of rank order statistics, 1956). The chance
  for f > 1 over the chance for 1 grows with a run's rank, so it is evidence against every worse search, too.
"""

import ast
import math
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from search_to_signal.audit.loss import Section
from search_to_signal.base.errors import ConfigError
from search_to_signal.base.numerics import Floats
from search_to_signal.base.progress import Progress, counted
from search_to_signal.base.seeding import stream
from search_to_signal.problems import get_problem
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.study.search_runs import UNITS, SearchRun

# A try adds normal steps of so many times each number.
_STEP = 0.25


def tuned_runs(run: SearchRun, climbs: int, tries: int, progress: Progress) -> tuple[SearchRun, ...]:
    """Climbs from a run's start: a try adds normal steps to its best numbers so far, and stays if better.

    Raises ConfigError for a start that is not known, has no decimal number, or whose problem is not ours;
    SandboxError where isolation cannot be had.
    """
    first = np.array([node.value for node in _numbers(ast.parse(run.seed))])
    if not run.problem or not len(first):
        raise ConfigError(
            f"--tune needs a problem of s2s and a start with decimal numbers, unlike {run.name}"
        )
    best, reached = np.tile(first, (climbs, 1)), np.full(climbs, run.start)
    steps = stream(0, "tuning").normal(0.0, _STEP * np.abs(first), (tries, climbs, len(first)))
    scores = np.full((climbs, tries), -np.inf)
    settings = EvaluationSettings(replay="off", slots=min(climbs, os.cpu_count() or 1))
    with EvaluationPool(get_problem(run.problem), "train", settings) as pool:
        for at in range(tries):
            tried = best + steps[at]
            found = pool.evaluate([_program(run.seed, numbers.tolist()) for numbers in tried])
            scores[:, at] = [-np.inf if one.score is None else one.score for one in found]
            ahead = scores[:, at] > reached
            best[ahead], reached[ahead] = tried[ahead], scores[ahead, at]
            progress.update("random numbers", at + 1, tries)
    ones, none = np.ones(tries), np.zeros(tries, dtype=np.bool_)
    cost = {"calls": ones, "answers": ones}
    return tuple(SearchRun("tuned", run.start, own, np.arange(tries), cost, none, ~none) for own in scores)


def _numbers(tree: ast.AST) -> list[ast.Constant]:
    return [
        node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, float)
    ]


def _program(code: str, numbers: list[float]) -> str:
    tree = ast.parse(code)
    for node, number in zip(_numbers(tree), numbers, strict=True):
        node.value = number
    return ast.unparse(tree)


LEVEL = 0.95
# Evidence that decides one direction: both together err in a share of 1 - LEVEL.
ENOUGH = 2 / (1 - LEVEL)
# Bets on pairs: gains of so many standard deviations. On ranks: an effort worth so many times the answers.
_SIZES = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
_FACTORS = np.array([2.0, 8.0, 64.0, 1024.0])
# Where ends of intervals are looked for: in spans of the gains, and in times as many answers.
_DISTANCES = np.geomspace(1e-3, 1e3, 961)
_WORTHS: Sequence[float] = np.geomspace(1e-4, 1e4, 161).tolist()
# So many times the runs, or so many answers, and no more may be asked for.
_COUNTS, _ANSWER_COUNTS = range(1, 101), range(1, 1_000_001)
# The logarithm of the largest number, about.
_LARGEST = 700.0
ANSWERS = "independent answers to the first prompt"
RUNS, TUNED = "the other runs", "random numbers in the start"

Verdict = Literal["paid", "not shown", "did not pay", "cannot be decided"]
_SAYS: Mapping[Verdict, tuple[str, str]] = {
    "paid": ("It paid", "go on with it; report the gain with its interval and the unit of effort"),
    "not shown": ("It is not shown to have paid", "claim no gain; record what would decide it, or stop"),
    "did not pay": ("It did not pay", "spend the effort on what was at least as good"),
    "cannot be decided": ("Whether it paid cannot be decided", "record what would decide it, or more runs"),
}


@dataclass(frozen=True)
class Comparison:
    """A search ``beside`` one alternative, at equal effort in one ``unit``.

    ``low`` and ``high`` bound, at LEVEL, the mean gain in score of ``count`` pairs of runs (``estimate``), or
    how many times as many answers the effort is worth, of which ``count`` are logged. ``can_decide``: so much
    data could show a gain. ``more`` would decide it.
    """

    beside: str
    unit: str
    count: int
    estimate: float | None
    low: float
    high: float
    can_decide: bool
    more: str

    @property
    def verdict(self) -> Verdict:
        """What it shows by itself."""
        nothing = 1.0 if self.estimate is None else 0.0
        if self.low >= nothing or self.high <= nothing:
            return "paid" if self.low >= nothing else "did not pay"
        return "not shown" if self.can_decide else "cannot be decided"

    def line(self) -> str:
        """One line for people."""
        says = f"worth {self.low:.3g} to {self.high:.3g} times as many"
        if self.estimate is not None:
            says = f"{self.estimate:+.4f} [{self.low:+.4f}, {self.high:+.4f}] in score"
        return f"Beside {self.beside} ({self.count}), at equal {self.unit}: {says}: {self.verdict}."


@dataclass(frozen=True)
class Worth:
    """The verdict in one ``unit``, and the comparisons; ``retuned`` runs end with the start's other numbers.

    ``best`` and ``start`` are means over ``runs`` runs.
    """

    verdict: Verdict
    unit: str
    runs: int
    best: float
    start: float
    retuned: int
    comparisons: tuple[Comparison, ...]

    def section(self) -> Section:
        """For people, and as a document."""
        says, do = _SAYS[self.verdict]
        decisive = [one for one in self.comparisons if one.unit == self.unit]
        start = f"{self.start:.4f}" if math.isfinite(self.start) else "not logged"
        mean = f"{counted(self.runs, 'run')}, mean best {self.best:.4f}, start {start}"
        lines = [f"{says}, at equal {self.unit}: {mean}.", *(one.line() for one in self.comparisons)]
        if self.retuned:
            lines.append(f"In {self.retuned} of {self.runs} runs the best is the start with other numbers.")
        if ANSWERS not in [one.beside for one in decisive]:
            lines.append(
                f"Not compared with {ANSWERS}: the log has none, or nothing else, or several starts; log "
                "parents or prompts, or give such answers by --against."
            )
        undecided = [one for one in decisive if one.verdict in ("not shown", "cannot be decided")]
        lines += [f"To decide beside {one.beside}: {one.more}." for one in undecided]
        return Section("Did it pay?", (*lines, f"Do: {do}."), asdict(self))


def worth(
    runs: Sequence[SearchRun],
    against: Sequence[SearchRun] = (),
    tuned: Sequence[SearchRun] = (),
    unit: str | None = None,
) -> Worth:
    """Compare runs of one search with runs ``against`` them, and with its start ``tuned`` at random.

    Independent answers are taken from the runs, and from those against them. By default ``unit`` is the first
    of UNITS that all have. A search paid that is ahead in every comparison that can be decided. Raises
    ConfigError for a unit that is not logged.
    """
    units = [one for one in UNITS if all(one in run.cost for run in (*runs, *against))]
    if unit not in (None, *units) or not units:
        known = ", ".join(units) or "nothing in common"
        raise ConfigError(f"--by {unit}: the logs have {known}; give one of these, or other logs")
    chosen = unit or units[0]
    comparisons = [
        compare_pairs(beside, one, found)
        for beside, others in ((RUNS, against), (TUNED, tuned))
        for one in units
        if all(one in other.cost for other in others) and (found := gains(runs, others, one))
    ]
    if (answers := _beside_answers(runs, (*runs, *against), chosen)) is not None:
        comparisons.append(answers)
    shown = {one.verdict for one in comparisons if one.unit == chosen} - {"cannot be decided"}
    best, starts = np.array([(run.best(), run.start) for run in runs]).T
    verdict: Verdict = "paid" if shown else "cannot be decided"
    if "not shown" in shown:
        verdict = "not shown"
    if "did not pay" in shown or (best <= starts).all():
        verdict = "did not pay"
    retuned = sum(bool(run.retuned[run.score == run.best()][:1].any()) for run in runs)
    return Worth(
        verdict, chosen, len(runs), float(best.mean()), float(starts.mean()), retuned, tuple(comparisons)
    )


def gains(runs: Sequence[SearchRun], others: Sequence[SearchRun], unit: str) -> list[float]:
    """Best score of each run less its partner's, both cut where the one ends that spent less.

    Partners have the same number at the end of their names, as of a seed; others are taken in order. Seconds
    of two recorders do not compare.
    """
    numbers = [{re.sub(r".*?(\d*)$", r"\1", run.name): run for run in arm} for arm in (runs, others)]
    pairs = list(zip(runs, others, strict=False))
    if len(numbers[0]) == len(runs) and len(numbers[1]) == len(others) and {*numbers[0]} & {*numbers[1]}:
        pairs = [(run, numbers[1][number]) for number, run in numbers[0].items() if number in numbers[1]]
    pairs = [(run, other) for run, other in pairs if unit != "seconds" or run.recorder == other.recorder]
    budgets = [min(run.total(unit), other.total(unit)) for run, other in pairs]
    return [
        run.best(unit, budget) - other.best(unit, budget)
        for (run, other), budget in zip(pairs, budgets, strict=True)
    ]


def _beside_answers(runs: Sequence[SearchRun], logged: Sequence[SearchRun], unit: str) -> Comparison | None:
    """The runs' other answers beside the independent ones; None where a log has none of either."""
    own = [run.first & (run.cost[unit] > 0) for run in logged]
    answers = np.concatenate([run.score[one] for run, one in zip(logged, own, strict=True)])
    # Answers to prompts with another start say nothing.
    if not len(answers) or len({str(run.start) for run in logged}) > 1:
        return None
    costs = np.concatenate([run.cost[unit][one] for run, one in zip(logged, own, strict=True)])
    # In a checkpoint an answer has the cost of those that were dropped before it.
    each = float(costs.mean()) if unit not in ("calls", "answers") else 1.0
    effort = np.array([run.total(unit) / each - one.sum() for run, one in zip(runs, own, strict=False)])
    best = np.array([run.score[~run.first].max(initial=-np.inf) for run in runs])
    return compare_answers(unit, best, effort, answers) if (effort >= 1).all() else None


def pair_evidence(gains: Floats, times: float = 1) -> Floats:
    """Evidence (...) that gains (..., S), in the order of runs, are above zero; of ``times`` such gains."""
    scale = np.sqrt(np.cumsum(gains**2, axis=-1) / np.arange(1, gains.shape[-1] + 1))
    sizes = np.divide(gains, scale, out=np.zeros_like(gains), where=scale > 0)
    wealth = np.log1p(np.tanh(np.multiply.outer(_SIZES, sizes))).sum(axis=-1)
    evidence: Floats = np.exp(np.minimum(times * wealth, _LARGEST)).mean(axis=0)
    return evidence


def compare_pairs(beside: str, unit: str, gains: Sequence[float]) -> Comparison:
    """Runs less their partners, in score; one that found nothing at all is behind by the largest gain."""
    most = max((abs(gain) for gain in gains if math.isfinite(gain)), default=1.0)
    known = np.nan_to_num(np.array(gains), nan=0.0, posinf=most, neginf=-most)
    middle, span = float(known.mean()), float(np.ptp(known)) or most or 1.0
    ends = []
    for sign in (1.0, -1.0):
        off = sign * (known - middle) + span * _DISTANCES[:, None]
        # Evidence does not grow evenly: the end is behind the last mean that is not refused.
        kept = np.flatnonzero(pair_evidence(off) < ENOUGH)
        ends.append(middle - sign * span * np.append(_DISTANCES, math.inf)[kept.max(initial=-1) + 1])
    needed = _least(_COUNTS, lambda pairs: float(pair_evidence(np.ones(1), pairs)))
    ahead = known if pair_evidence(known) >= pair_evidence(-known) else -known
    times = _least(_COUNTS, lambda times: float(pair_evidence(ahead, times)))
    more = f"{(times - 1) * len(known):.0f} further pairs of runs like these"
    if len(known) < needed:
        more = f"{needed - len(known):.0f} further pairs of runs, at least"
    low, high = map(float, ends)
    return Comparison(beside, unit, len(known), middle, low, high, len(known) >= needed, more)


def _least(values: Sequence[float], evidence: Callable[[float], float]) -> float:
    """The least of ascending values whose evidence, which grows with them, is enough; infinite for none."""
    at = bisect_left(values, True, key=lambda value: evidence(value) >= ENOUGH)
    return values[at] if at < len(values) else math.inf


def rank_chance(
    best: Floats, effort: Floats, answers: Floats, better: bool = True
) -> Callable[[float], float]:
    """Log-probability, by f, of the order in which bests of runs (S,) and answers (K,) come.

    A best is that of f times ``effort`` (S,) answers. Equal scores are in the order that speaks less for
    ``better`` runs, or else for worse ones.
    """
    values, weights = np.append(best, answers), np.append(effort, np.ones(len(answers)))
    answer = np.arange(len(values)) >= len(best)
    order = np.lexsort((answer if better else ~answer, values))
    weights, run = weights[order], ~answer[order]

    def chance(factor: float) -> float:
        own = np.where(run, factor * weights, weights)
        return float(np.log(own / np.cumsum(own)).sum())

    return chance


def answer_evidence(
    chance: Callable[[float], float], better: bool, worth: float = 1.0, times: float = 1
) -> float:
    """Evidence that one answer of the runs is worth more (or less) than ``worth`` independent ones.

    With ``times``, about that of so many times such runs and answers.
    """
    factors = _FACTORS if better else 1 / _FACTORS
    ratios = np.array([chance(worth * factor) for factor in factors]) - chance(worth)
    return float(np.exp(np.minimum(times * ratios, _LARGEST)).mean())


def compare_answers(unit: str, best: Floats, effort: Floats, answers: Floats) -> Comparison:
    """Bests of runs (S,) beside independent answers (K,); ``effort`` (S,) is in answers."""
    better, worse = (rank_chance(best, effort, answers, way) for way in (True, False))
    # Both ends are limits where the last worth that was tried is not refused.
    low = 1 / _least(_WORTHS, lambda less: answer_evidence(better, True, 1 / less))
    high = _least(_WORTHS, lambda more: answer_evidence(worse, False, more))
    spent = np.cumsum(effort)

    def ahead(count: float) -> float:
        """Evidence of these runs, all of them before so many answers."""
        ratios = [factor * (count + spent) / (count + factor * spent) for factor in _FACTORS]
        return float(np.prod(ratios, axis=1).mean())

    def alike(times: float) -> float:
        """Evidence of so many times such runs and answers."""
        return max(answer_evidence(better, True, times=times), answer_evidence(worse, False, times=times))

    can = ahead(len(answers)) >= ENOUGH
    more = f"{_least(_ANSWER_COUNTS, ahead):.0f} independent answers, at least"
    if can:
        more = f"{_least(_COUNTS, alike):.0f} times as many answers and runs like these"
    return Comparison(ANSWERS, unit, len(answers), None, low, high, can, more)

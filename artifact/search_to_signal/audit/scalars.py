"""Numbers per step of a trainer: which quantity each is, what is wrong with its course, and what to change.

``scalars.toml`` has the names of quantities in the trainers.

A level is the median of the points in a window, a twentieth of the run and at least five points. A finding
needs a level beyond its limit over as many points, so a few outliers are none. On curves of honest noise
fewer than one run in twenty has a finding (a test draws them).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import msgspec
import numpy as np

from search_to_signal.audit.advice import Advice, capital, number_text, percent, severity
from search_to_signal.audit.findings import Findings
from search_to_signal.audit.flags import Bools
from search_to_signal.audit.frameworks import OptionNames, options_of
from search_to_signal.audit.groups import UNKNOWN, Floats, Integers
from search_to_signal.audit.importers.scalar_files import ScalarRun
from search_to_signal.base.settings import load_toml

# Points from which on a curve is compared with its own beginning, and those of a level.
LEAST_POINTS, _WINDOW = 20, 5
# Of its beginning: entropy below it has collapsed, and a step that takes longer has drifted.
COLLAPSED, DRIFTED = 0.2, 1.5
# Shares of tokens clipped, of completions cut and of groups without advantage that are high. GSPO clips 15 %.
CLIPPED, CUT, IDLE = 0.2, 0.25, 0.5
# A divergence that grows evenly doubles while the steps double: more than this is no even growth.
RUNAWAY, LEAST_KL = 10.0, 0.2
# A spike of the gradient is this many times its level, and in logarithms this many deviations beyond it.
# Two and a two-hundredth of the steps are a finding, or a single one that is a thousand times its level.
SPIKE, SPIKE_DEVIATIONS, SPIKES, SINGLE_SPIKE = 10.0, 6.0, 0.005, 1000.0
# Evaluations from which on their trend is tested; its least z, and the part of their range that they lose.
LEAST_EVALUATIONS, TREND, LOST = 6, 2.58, 0.2
# Means of rewards that differ by more, relative to their size, are not of the same rewards.
_SAME = 1e-3


class _Quantity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    names: tuple[str, ...]


class _Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    quantities: dict[str, _Quantity]
    trainers: dict[str, str]


_NAMES = load_toml(Path(__file__).with_suffix(".toml"), _Names)


@dataclass(frozen=True)
class Curve:
    """A quantity over steps: ``name`` as logged in ``source``, steps (n,) and values (n,), not all finite."""

    title: str
    name: str
    source: str
    step: Integers
    value: Floats

    @property
    def finite(self) -> "Curve":
        """The points that are finite numbers."""
        known = np.isfinite(self.value)
        return replace(self, step=self.step[known], value=self.value[known])

    @property
    def window(self) -> int:
        """Points of a level."""
        return max(_WINDOW, len(self.value) // 20)

    @property
    def level(self) -> Floats:
        """(n,): the median around each point; at the ends of the first and last whole window."""
        size = min(self.window, len(self.value))
        middle = np.median(np.lib.stride_tricks.sliding_window_view(self.value, size), axis=1)
        before = (size - 1) // 2
        return np.pad(middle, (before, size - 1 - before), mode="edge")

    @property
    def start(self) -> float:
        """The median of the first tenth."""
        return float(np.median(self.value[: max(_WINDOW, len(self.value) // 10)]))


@dataclass(frozen=True)
class CurveAdvice(Advice):
    """A finding about steps ``first`` to ``last``; ``cost`` is the share of the steps that it concerns."""

    name: str
    first: int
    last: int


@dataclass(frozen=True)
class Scalars:
    """What the numbers per step say: ``curves`` by quantity, ``findings`` the dearest first.

    ``framework`` is the trainer by its names, empty for none that is known; ``other`` counts names of no
    known quantity. ``joined`` are steps whose reward was compared with that of the rollouts.
    """

    sources: tuple[str, ...]
    framework: str
    curves: Mapping[str, Curve]
    findings: tuple[CurveAdvice, ...]
    notes: tuple[str, ...]
    other: int
    joined: int


def scalars(runs: Sequence[ScalarRun], rollouts: Findings | None = None) -> Scalars:
    """Judge the numbers per step of a run, which several writers may have kept, and compare the rollouts.

    A quantity is taken from the first writer that has it.
    """
    curves: dict[str, Curve] = {}
    names = [name for run in runs for name in run.values]
    for quantity, known_as in _NAMES.quantities.items():
        for run, pattern in product(runs, known_as.names):
            known = [name for name in run.values if re.fullmatch(pattern, name)]
            if known and quantity not in curves:
                name = max(known, key=lambda name: len(run.values[name][0]))
                curves[quantity] = Curve(known_as.title, name, run.source, *run.values[name])
    framework = next(
        (one for one, known in _NAMES.trainers.items() if any(re.fullmatch(known, name) for name in names)),
        "",
    )
    options = options_of(framework)
    made = [*_not_finite(curves), *_levels(curves, options), *_runaway(curves, options)]
    made += [*_spikes(curves, options), *_apart(curves)]
    longest = max((len(curve.value) for curve in curves.values()), default=0)
    few = f"{longest} steps are too few to compare a curve with its own beginning: that takes {LEAST_POINTS}"
    short = [few] if 0 < longest < LEAST_POINTS else []
    joined = 0
    if rollouts is not None:
        differing, joined = _joined(curves, rollouts)
        made = [replace(one, instead=_beside(one, rollouts) or one.instead) for one in made] + differing
    return Scalars(
        sources=tuple(run.source for run in runs),
        framework=framework,
        curves=curves,
        findings=tuple(sorted(made, key=lambda one: (one.name != "not_finite", -one.cost))),
        notes=(*(note for run in runs for note in run.notes), *short),
        other=len({name for name in names if not any(name == curve.name for curve in curves.values())}),
        joined=joined,
    )


def _found(
    curve: Curve, name: str, where: Integers, says: str, change: str, cost: float | None = None
) -> CurveAdvice:
    """A finding about the points ``where`` (places in the curve)."""
    share = len(where) / len(curve.value) if cost is None else cost
    first, last = int(curve.step[where[0]]), int(curve.step[where[-1]])
    at = f"step {first}" if first == last else f"steps {first} to {last}"
    return CurveAdvice(
        severity(share), share, f"{says} ({curve.name}, {at}).", f"{change}.", "", name, first, last
    )


def _not_finite(curves: Mapping[str, Curve]) -> Iterator[CurveAdvice]:
    for curve in curves.values():
        where = np.flatnonzero(~np.isfinite(curve.value))
        if len(where):
            first, rest = int(curve.step[where[0]]), len(where) == len(curve.value) - where[0]
            says = f"{curve.title} is NaN or infinite in {len(where)} of {len(curve.value)} steps"
            change = (
                f"Go on from a checkpoint before step {first}, and look at the rewards, masks and "
                "log-probabilities of that step; under float16 a few infinite gradients are skipped steps of "
                "the loss scaler"
            )
            yield _found(curve, "not_finite", where, says + (", to the end" if rest else ""), change)


def _levels(curves: Mapping[str, Curve], options: OptionNames) -> Iterator[CurveAdvice]:
    """Quantities whose level is beyond a fixed limit, or one relative to where they began."""
    fixed = {
        "clipped": (
            CLIPPED,
            "of the tokens are clipped: they get no gradient",
            "Make fewer updates per batch of rollouts, or lower the learning rate; sequence-level ratios "
            "(GSPO) clip more and take smaller bounds",
        ),
        "cut": (CUT, "of the completions are cut at the limit", f"Raise {options.cap}"),
        "no_advantage": (
            IDLE,
            "of the groups have no advantage: they teach nothing",
            capital(options.filter),
        ),
    }
    for name, (limit, says, change) in fixed.items():
        curve = curves[name].finite if name in curves else None
        if curve is not None and len(curve.value) >= _WINDOW:
            where = _lasting(curve, curve.level > limit)
            if len(where):
                typical = percent(float(np.median(curve.value[where])))
                yield _found(curve, name, where, f"{typical} {says}", change)
    entropy = curves["entropy"].finite if "entropy" in curves else None
    if entropy is not None and len(entropy.value) >= LEAST_POINTS and entropy.start > 0:
        where = _lasting(entropy, entropy.level < COLLAPSED * entropy.start)
        if len(where):
            ends = number_text(float(np.median(entropy.value[where])))
            says = f"Entropy collapses from {number_text(entropy.start)} to {ends}: samples repeat each other"
            change = (
                f"Go on from a checkpoint before step {int(entropy.step[where[0]])} with a higher "
                f"{options.clip} or {options.kl}, or a lower learning rate"
            )
            yield _found(entropy, "entropy", where, says, change)
    yield from _drift(curves)


def _drift(curves: Mapping[str, Curve]) -> Iterator[CurveAdvice]:
    """Steps that take longer than they did, by more than their completions have grown."""
    if "step_time" not in curves:
        return
    time = curves["step_time"].finite
    length = curves["length"].finite if "length" in curves else None
    grown = "whatever the completions' length, which is not logged"
    if length is not None and len(shared := np.intersect1d(time.step, length.step)) >= LEAST_POINTS:
        tokens = length.value[np.isin(length.step, shared)]
        time = replace(time, step=shared, value=time.value[np.isin(time.step, shared)])
        before, size = time.start, replace(length, step=shared, value=tokens)
        # Only growth excuses: shorter completions need not take less.
        time = replace(time, value=time.value / np.maximum(1.0, size.level / max(size.start, 1e-9)))
        grown = f"beyond what longer completions explain (at first {number_text(before)} s)"
    if len(time.value) < LEAST_POINTS or time.start <= 0:
        return
    where = _lasting(time, time.level > DRIFTED * time.start)
    if len(where):
        times = float(np.median(time.value[where])) / time.start
        yield _found(
            time,
            "step_time",
            where,
            f"A step takes {number_text(times)} times as long as at first, {grown}",
            "Compare what the trainer logs of a step's parts (generation, rewards, update) before and in "
            "these steps: leaking reward functions and sandboxes, and caches that fill, slow down with time",
        )


def _runaway(curves: Mapping[str, Curve], options: OptionNames) -> Iterator[CurveAdvice]:
    for name in ("kl", "update_kl"):
        curve = curves[name].finite if name in curves else None
        if curve is None or len(curve.value) < LEAST_POINTS:
            continue
        level = curve.level
        half = np.maximum(level[np.arange(len(level)) // 2], 0.0)
        above = (level > RUNAWAY * half) & (level > LEAST_KL)
        # From there on it stays found while it has not come back to that level.
        where = np.flatnonzero(above)
        if len(where):
            where = _lasting(curve, (np.arange(len(level)) >= where[0]) & (level >= level[where[0]]))
        if len(where):
            says = (
                f"{curve.title} runs away: {number_text(float(level[where].max()))} nats, more than "
                f"{RUNAWAY:g} times what it was after half the steps"
            )
            change = (
                f"Go on from a checkpoint before step {int(curve.step[where[0]])} with a lower learning rate "
                f"or a higher {options.kl}"
            )
            yield _found(curve, name, where, says, change)


def _spikes(curves: Mapping[str, Curve], options: OptionNames) -> Iterator[CurveAdvice]:
    if "grad_norm" not in curves:
        return
    curve = curves["grad_norm"].finite
    curve = replace(curve, step=curve.step[curve.value > 0], value=np.log(curve.value[curve.value > 0]))
    if len(curve.value) < LEAST_POINTS:
        return
    away = curve.value - curve.level
    deviation = 1.4826 * float(np.median(np.abs(away - np.median(away))))
    where = np.flatnonzero(away > max(np.log(SPIKE), SPIKE_DEVIATIONS * deviation))
    worst = int(np.argmax(away))
    if len(where) >= max(2, SPIKES * len(away)) or (len(where) and away[worst] > np.log(SINGLE_SPIKE)):
        yield _found(
            curve,
            "grad_norm",
            where,
            f"The gradient spikes in {len(where)} of {len(curve.value)} steps, up to "
            f"{number_text(float(np.exp(away[worst])))} times its level in step {int(curve.step[worst])}",
            f"Set {options.norm}, and look at the rewards and lengths of these steps: a tight group or a "
            "single long completion is usual",
        )


def _apart(curves: Mapping[str, Curve]) -> Iterator[CurveAdvice]:
    """Evaluations that fall while the reward rises, over the second half of the evaluations."""
    if not {"reward", "evaluation"} <= curves.keys():
        return
    reward, tested = curves["reward"].finite, curves["evaluation"].finite
    half = replace(
        tested, step=tested.step[len(tested.step) // 2 :], value=tested.value[len(tested.step) // 2 :]
    )
    if len(half.value) < LEAST_EVALUATIONS or len(reward.value) < LEAST_POINTS:
        return
    within = (reward.step >= half.step[0]) & (reward.step <= half.step[-1])
    size = max(2, len(half.value) // 3)
    lost = float(np.median(half.value[:size]) - np.median(half.value[-size:]))
    enough = lost > LOST * float(np.ptp(tested.value))
    if enough and _trend(half.value) < -TREND and _trend(reward.value[within]) > TREND:
        best = int(tested.step[int(np.argmax(tested.value))])
        yield _found(
            half,
            "evaluation",
            np.arange(len(half.value)),
            f"The reward rises while the evaluation falls by {number_text(lost)}",
            f"Take the checkpoint of step {best}, where the evaluation is best, and read completions of high "
            "reward after it: the reward is gained by what it does not mean, or the prompts are memorized",
            cost=len(half.value) / len(tested.value),
        )


def _trend(values: Floats) -> float:
    """z of Mann and Kendall's test for a trend, above 0 for a rise; 0 for fewer than three values."""
    count = len(values)
    if count < 3:
        return 0.0
    # A thousand points suffice.
    values = values[:: max(1, count // 1000)]
    count = len(values)
    total = float(np.sign(values[None, :] - values[:, None])[np.triu_indices(count, 1)].sum())
    return total / float(np.sqrt(count * (count - 1) * (2 * count + 5) / 18))


def _lasting(curve: Curve, beyond: Bools) -> Integers:
    """Places of the runs of ``beyond`` that last for a window or longer."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(beyond, dtype=np.int64), [0]])))
    runs = [np.arange(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True)]
    long = [run for run in runs if len(run) >= curve.window]
    return np.concatenate(long) if long else np.empty(0, dtype=np.int64)


# What the rollouts of the same steps say.


def _by_step(rollouts: Findings) -> dict[int, tuple[float, int, int, int]]:
    """Sum of rewards, completions, groups and dead groups of each step."""
    found: dict[int, tuple[float, int, int, int]] = {}
    for one in rollouts.steps:
        if one.step != UNKNOWN and np.isfinite(one.mean_reward):
            reward, rows, groups, dead = found.get(one.step, (0.0, 0, 0, 0))
            found[one.step] = (
                reward + one.mean_reward * one.completions,
                *(rows + one.completions, groups + one.groups, dead + one.flags["dead"]),
            )
    return found


def _joined(curves: Mapping[str, Curve], rollouts: Findings) -> tuple[list[CurveAdvice], int]:
    """Whether the logged reward is the mean of the rollouts' own; and how many steps were compared.

    A trainer that logs every k-th step logs a mean over k steps, of which the rollouts may be one: that is
    not compared.
    """
    steps = _by_step(rollouts)
    if "reward" not in curves or len(steps) < 2:
        return [], 0
    curve = curves["reward"].finite
    shared = np.flatnonzero(np.isin(curve.step, list(steps)))
    if len(shared) < 2 or np.median(np.diff(curve.step)) > 1:
        return [], 0
    own = np.array([steps[step][0] / steps[step][1] for step in curve.step[shared].tolist()])
    away = np.abs(own - curve.value[shared]) > _SAME * np.maximum(np.abs(own), 1e-3)
    where = shared[away]
    if len(where) <= len(shared) // 2:
        return [], len(shared)
    first = int(np.flatnonzero(away)[0])
    says = (
        f"The logged reward is not the mean reward of the rollouts in {len(where)} of {len(shared)} steps: "
        f"{number_text(float(curve.value[shared[first]]))} is logged and {number_text(float(own[first]))} is "
        f"their mean in step {int(curve.step[shared[first]])}"
    )
    change = (
        "Find out which of the two is trained: one may be before a penalty, a weight or a filter, of an "
        "evaluation, or of another step"
    )
    return [_found(curve, "other_reward", where, says, change, cost=len(where) / len(shared))], len(shared)


def _beside(one: CurveAdvice, rollouts: Findings) -> str:
    """What the rollouts of the steps of a finding are, and those of the other steps."""
    sums = {True: np.zeros(4), False: np.zeros(4)}
    for step, values in _by_step(rollouts).items():
        sums[one.first <= step <= one.last] += values
    if not all(total[1] for total in sums.values()):
        return ""
    inside, others = (
        f"{percent(total[3] / total[2])} of groups dead, mean reward {number_text(total[0] / total[1])}"
        for total in (sums[True], sums[False])
    )
    return f"Rollouts of these steps: {inside}; of the others: {others}."

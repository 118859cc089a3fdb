"""Best-so-far curves, and what became of proposals and searches (paper, fig. downstream-evidence)."""

from collections.abc import Iterator, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from search_to_signal.analysis.figures.frame import Frame, Value, lines, value_of
from search_to_signal.analysis.figures.marks import bands, joined
from search_to_signal.analysis.figures.plot import Plot
from search_to_signal.analysis.figures.style import (
    BLUE,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    YELLOW,
    key,
    letter,
    scores,
    shown,
    sign,
    zero_line,
)
from search_to_signal.analysis.results import NoTableError, Results, Runs
from search_to_signal.analysis.tables.catalogue import Evidence
from search_to_signal.analysis.tables.measures import AUC, FINAL_BEST, Comparison, against, differences
from search_to_signal.analysis.tables.paired import restart_comparisons, restarts_and_live
from search_to_signal.records.groups import OUTCOMES
from search_to_signal.records.schema import Outcome

_ENDS = (FINAL_BEST, AUC)
_OUTCOME_COLORS: Mapping[Outcome, str] = {
    Outcome.VALID: BLUE,
    Outcome.RANDOMNESS: PURPLE,
    Outcome.RUNTIME_FAILURE: ORANGE,
    Outcome.MISSING_FUNCTION: YELLOW,
    Outcome.MISSING_CODE: SKY,
    Outcome.MISSING_RATIONALE: RED,
}


def best_so_far_table(evidence: Evidence) -> str:
    """Long form: condition, seed, group, best score so far."""
    rows = [
        (run.condition, run.seed, t + 1, float(best), evidence.unit)
        for run in evidence.results.cohort
        for t, best in enumerate(run.best)
    ]
    return lines(("condition", "seed", "group", "best_so_far", "unit"), rows)


def _draw_best(figure: Figure, frame: Frame) -> None:
    axes = figure.add_subplot()
    bands(axes, frame, "best_so_far")
    axes.set_xlabel("evaluated groups")
    axes.set_ylabel(f"best score so far\n({frame.rows[0]['unit']})")
    axes.legend(loc="upper left")


def outcomes_table(evidence: Evidence) -> str:
    """Panel a: shares of outcomes; b: gain of the best so far over Frozen; c: gains of single seeds."""
    rows = [*_shares(evidence.results), *_gain_curves(evidence.results), *_gains(evidence.results)]
    return lines(
        ("panel", "condition", "layer", "seed", "what", "value", "unit"), [(*r, evidence.unit) for r in rows]
    )


def _shares(results: Results) -> Iterator[tuple[Value, ...]]:
    for run in results.cohort:
        for code, outcome in enumerate(OUTCOMES):
            share = 100.0 * float((run.batch.outcome == code).mean())
            yield "a", run.condition, "live", run.seed, outcome.value, share


def _gain_curves(results: Results) -> Iterator[tuple[Value, ...]]:
    for comparison in _over_frozen(results.cohort):
        for run, frozen in comparison.pairs:
            for t, gain in enumerate(run.best - frozen.best):
                yield "b", run.condition, "live", run.seed, t + 1, float(gain)


def _gains(results: Results) -> Iterator[tuple[Value, ...]]:
    live, restarted = _single_gains(results)
    for layer, found in (("live", live), ("restart", restarted)):
        for comparison in found:
            for run, frozen in comparison.pairs:
                for measure, cell in zip(_ENDS, differences(run, frozen, _ENDS), strict=True):
                    yield "c", run.condition, layer, run.seed, measure.heading, value_of(cell)


def _over_frozen(runs: Runs) -> tuple[Comparison, ...]:
    try:
        return against(runs, "frozen")
    except NoTableError:
        return ()


def _single_gains(results: Results) -> tuple[tuple[Comparison, ...], tuple[Comparison, ...]]:
    """Live and restarted runs over Frozen, over one horizon; live ones alone where no restart compares."""
    try:
        _, live = restarts_and_live(results)
        return _over_frozen(live), tuple(c for c in restart_comparisons(results) if c.second == "live/frozen")
    except NoTableError:
        return _over_frozen(results.cohort), ()


def _draw_outcomes(figure: Figure, frame: Frame) -> None:
    (first, second), (third, fourth) = figure.subplots(2, 2, width_ratios=(1.15, 1))
    _draw_shares(first, frame.where(panel="a"))
    _draw_gains(second, frame.where(panel="b"))
    for axes, which, measure in zip((third, fourth), "cd", _ENDS, strict=True):
        zero_line(axes, vertical=False)
        joined(axes, frame.where(panel="c", what=measure.heading))
        letter(axes, which, f"{measure.heading}, single seeds")
    third.set_ylabel("gain over Frozen\nof the same seed")
    live, restart = sign("live", ""), sign("restarted")
    key(figure, [c for c in frame.names("condition") if c != "frozen"], (live, restart, scores(frame)))


def _draw_shares(axes: Axes, frame: Frame) -> None:
    conditions, left = frame.names("condition"), np.zeros(len(frame.names("condition")))
    for outcome, hue in _OUTCOME_COLORS.items():
        wide = np.array([frame.where(condition=c, what=outcome.value).mean() for c in conditions])
        label = outcome.value.replace("_", " ")
        axes.barh(range(len(conditions)), wide, left=left, color=hue, label=label, height=0.7)
        left += wide
    seeds = [len(frame.where(condition=c).names("seed")) for c in conditions]
    names = [f"{shown(c)}\nn = {n}" for c, n in zip(conditions, seeds, strict=True)]
    axes.set_yticks(range(len(conditions)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("completions (%, mean over seeds)")
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.42, -0.3), handlelength=0.9, columnspacing=0.8)
    letter(axes, "a", "Outcomes of completions")


def _draw_gains(axes: Axes, frame: Frame) -> None:
    zero_line(axes, vertical=False)
    if frame.rows:
        bands(axes, frame, "value")
    axes.set_xlabel("evaluated groups")
    axes.set_ylabel("gain in best so far\nover Frozen")
    letter(axes, "b", "Mean gain and range of seeds")


BEST_SO_FAR = Plot(
    "best_so_far",
    "Best score so far",
    """Mean over seeds of the best score after each group, the seed heuristic included; bands reach from
    the lowest to the highest seed. Higher is better.""",
    best_so_far_table,
    _draw_best,
    (3.4, 2.6),
    ("core_results", "core_seeds"),
)
OUTCOMES_PLOT = Plot(
    "outcomes",
    "Proposal and search outcomes",
    """(a) What became of completions, mean over seeds. (b) Mean gain of the best so far over the Frozen
    run of the same seed; bands are the range of the seeds. (c, d) Gains of single seeds over Frozen, live
    (filled) and restarted with the final adapter, a fresh population and no updates (open); lines join
    the same seed.""",
    outcomes_table,
    _draw_outcomes,
    (7.0, 4.6),
    ("core_seeds", "paired", "restart_paired"),
    layers=("cohort", "restart"),
)

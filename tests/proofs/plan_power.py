"""The smallest effects that the evidence plan's sample sizes can see: ``python -m tests.proofs.plan_power``.

A two-sided paired t test over seeds, at level (1 - level) / comparisons and the plan's power: the smallest
mean difference d with P(|T| > t*) = power, T noncentral t with n - 1 degrees of freedom and noncentrality
d sqrt(n) / s. The deviation s of a difference is taken from the pilot's conditions as if runs of one seed
were unrelated, s^2 = s1^2 + s2^2, since the pilot says nothing of how they are.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import nct, t

from search_to_signal.records.plan import Plan, Question, read_plan


def power(effect: float, deviation: float, seeds: int, alpha: float) -> float:
    """How often a paired t test of so many seeds calls a true mean difference one."""
    freedom, shift = seeds - 1, effect * math.sqrt(seeds) / deviation
    edge = t.ppf(1 - alpha / 2, freedom)
    # For a difference this far to one side the other tail is nothing, and scipy cannot tell.
    return float(nct.sf(edge, freedom, shift) + np.nan_to_num(nct.cdf(-edge, freedom, shift)))


def smallest_effect(deviation: float, seeds: int, alpha: float, wanted: float) -> float:
    """The smallest mean difference that the test sees with the wanted power, in the deviation's unit."""

    def missing(size: float) -> float:
        return power(size * deviation, deviation, seeds, alpha) - wanted

    return deviation * float(brentq(missing, 1e-6, 5.0))


def smallest_effects(plan: Plan, question: Question) -> list[float]:
    """One per pair, to two significant digits; none where the pilot has no such runs."""
    known = {entry.metric: entry.deviations for entry in plan.pilot.metrics}
    if question.metric not in known or question.estimator != "mean_difference":
        return []
    if question.horizon != plan.pilot.completions:
        return []
    found = known[question.metric]
    alpha = (1 - plan.analysis.level) / question.comparisons
    sides = [[side.split("/")[-1].partition("+")[0] for side in pair] for pair in question.pairs]
    if not {name for pair in sides for name in pair} <= found.keys():
        return []
    effects = []
    for pair in sides:
        deviation = math.hypot(*(found[name] for name in pair))
        effect = smallest_effect(deviation, question.seeds, alpha, plan.analysis.power)
        effects.append(float(f"{effect:.2g}"))
    return effects


def main() -> None:
    """Print them in the plan's order."""
    plan = read_plan()
    for study in plan.studies:
        for question in study.questions:
            print(
                f"{question.key}: {question.metric}, n = {question.seeds}: {smallest_effects(plan, question)}"
            )


if __name__ == "__main__":
    main()

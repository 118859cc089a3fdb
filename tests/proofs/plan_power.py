"""What an evidence plan's sample sizes can see at least: ``python -m tests.proofs.plan_power [PLAN]``.

Those of the plan, by the deviations of its pilot, and beside them those of the same number of seeds by the
deviations that were recorded, from the shipped table ``report/outcomes.csv`` beside the plan. The pilot
says nothing of how runs of one seed are related: s^2 = s1^2 + s2^2, as if the two conditions were not.
"""

import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from search_to_signal.base.package_data import EVIDENCE
from search_to_signal.records.conditions import Condition
from search_to_signal.records.plan import PLAN, Plan, Question, read_plan
from search_to_signal.study.verdicts import power, smallest_effect

__all__ = ["power", "recorded_effects", "smallest_effect", "smallest_effects"]
OUTCOMES = Path("report") / "outcomes.csv"
COLUMN = "Smallest effect recorded"


def smallest_effects(plan: Plan, question: Question) -> list[float]:
    """One per pair, to two significant digits; none where the pilot has no such runs."""
    known = {entry.metric: entry.deviations for entry in plan.pilot.metrics}
    if question.metric not in known or question.estimator != "mean_difference":
        return []
    if question.horizon != plan.pilot.completions:
        return []
    found = known[question.metric]
    alpha = (1 - plan.analysis.level) / question.comparisons
    sides = [[Condition.parse(side.split("/")[-1]).mapping for side in pair] for pair in question.pairs]
    if not {name for pair in sides for name in pair} <= found.keys():
        return []
    effects = []
    for pair in sides:
        deviation = math.hypot(*(found[name] for name in pair))
        effect = smallest_effect(deviation, question.seeds, alpha, plan.analysis.power)
        effects.append(float(f"{effect:.2g}"))
    return effects


def recorded_effects(question: Question, table: Path = EVIDENCE / OUTCOMES) -> list[str]:
    """One per comparison that has a recorded deviation, in the unit of the table (shares in points)."""
    if not table.is_file():
        return []
    rows = csv.DictReader(table.read_text(encoding="utf-8").splitlines())
    found = ((row["row"].partition("/"), row) for row in rows if row["column"] == COLUMN and row["value"])
    return [f"{name} {float(row['value']):.2g}" for (key, _, name), row in found if key == question.key]


def _line(question: Question, planned: Sequence[float], table: Path) -> str:
    seen = ", ".join(recorded_effects(question, table)) or "nothing"
    return f"{question.key}: {question.metric}, n = {question.seeds}: {list(planned)}; recorded: {seen}"


def main() -> None:
    """Print them in the plan's order."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PLAN
    plan = read_plan(path)
    for study in plan.studies:
        for question in study.questions:
            print(_line(question, smallest_effects(plan, question), path.parent / OUTCOMES))


if __name__ == "__main__":
    main()

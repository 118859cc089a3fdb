"""The effect of reward changes behind the normalizer: groups with different advantages.

Paper, fig. signal-propagation: mechanism separation, no efficacy.
"""

from collections.abc import Callable, Mapping

import numpy as np

from search_to_signal.analysis.metrics.search import improves
from search_to_signal.analysis.results import RecordedRun, Results
from search_to_signal.analysis.tables.cells import Parts, Table, percent_cell, summarized
from search_to_signal.analysis.tables.learner_credit import recorded_credit, trained
from search_to_signal.numerics import Floats

TOLERANCE = 1e-3
"""Advantages of a group that differ by less are equivalent to the learner (D21)."""

Change = Callable[[Floats, RecordedRun], Floats]
CHANGES: Mapping[str, Change] = {
    "shift": lambda rewards, run: rewards + np.nan_to_num(run.batch.frontier)[:, None],
    "times ten": lambda rewards, run: 10.0 * rewards,
    "improvers only": lambda rewards, run: np.where(improves(run.batch), rewards, 0.0),
    "cubed": lambda rewards, run: rewards**3,
}
"""Changes of rewards (T, G): the first two act on whole groups, the others on single completions."""

COLUMNS = {name: f"{name.capitalize()} (%)" for name in CHANGES}


def changed_groups(run: RecordedRun, change: Change) -> int:
    """Count the groups whose advantages a reward change moves by more than the tolerance (D21)."""
    rewards, _ = recorded_credit(run)
    moved = np.abs(run.normalized(change(rewards, run)) - run.normalized(rewards)).max(axis=1)
    return int((moved > TOLERANCE).sum())


def reward_changes(results: Results) -> Table:
    """Shares of groups whose advantages move when recorded rewards are shifted, scaled, gated or cubed."""
    note = (
        f"Groups with an advantage that moves by more than {TOLERANCE:g} (D21): means of the seeds' shares "
        "± sample standard deviation. Shift: the group's frontier is added; improvers only: every other "
        "reward is zero."
    )
    columns, rows = tuple(COLUMNS.values()), summarized(trained(results), _cells)
    return Table("reward_changes", "Changed rewards", "cohort", columns, rows, "Condition", note)


def _cells(run: RecordedRun) -> Parts:
    groups, origin = len(run.groups), run.all_completions
    return {
        "": tuple(
            percent_cell(changed_groups(run, change), groups, f"groups that {name} moves / groups", origin)
            for name, change in CHANGES.items()
        )
    }

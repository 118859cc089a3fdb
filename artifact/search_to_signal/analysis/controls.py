"""Credit when rewards mean nothing: what enrichment owes to the mapping and what to group composition.

``within`` shuffles rewards inside each group. Flat groups stay flat, and improvers stand in groups that are
not flat, so even a meaningless order inside groups enriches them: that part of an enrichment is not merit
of the order. ``across`` shuffles over the whole run, which leaves an enrichment of about 1. ``constant``
gives every completion the same reward, and no credit at all.
"""

from collections.abc import Iterator
from functools import reduce
from operator import add

import numpy as np

from search_to_signal.analysis.aggregate import Parts, mean_cell, summarized
from search_to_signal.analysis.cells import Cell, Table
from search_to_signal.analysis.credit import CLASSES, CreditCounts, credit_table, zero_advantage_share
from search_to_signal.analysis.credit_tables import run_counts, trained
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.normalizer import group_advantages
from search_to_signal.numerics import Floats
from search_to_signal.seeding import stream

DRAWS = 20
CONTROLS = ("recorded", "within", "across", "constant")
COLUMNS = (*(f"Enrichment {name.value}" for name in CLASSES), "Zero advantage (%)", "Credit mass")


def controlled_rewards(rewards: Floats, control: str, seed: int) -> Iterator[Floats]:
    """Yield the rewards of a control, (T, G) each: DRAWS shuffles, or one where nothing is drawn."""
    rng = stream(seed, "controls", control)
    if control == "recorded":
        yield rewards
    elif control == "constant":
        yield np.zeros_like(rewards)
    else:
        for _ in range(DRAWS):
            flat = rng.permuted(rewards, axis=1 if control == "within" else None)
            yield flat.reshape(rewards.shape)


def control_parts(run: RecordedRun) -> Parts:
    """COLUMNS of a run under every control."""
    rewards = np.array([[record.reward for record in group] for group in run.groups], dtype=np.float64)
    return {
        control: _cells(
            [run_counts(run, group_advantages(r)) for r in controlled_rewards(rewards, control, run.seed)],
            run,
        )
        for control in CONTROLS
    }


def controls(results: Results) -> Table:
    """Enrichment by class under recorded, shuffled and constant rewards."""
    note = f"Shuffled rows are means over {DRAWS} shuffles, then over seeds ± sample standard deviation."
    rows = summarized(trained(results), control_parts, mean_cell)
    return Table("controls", "Reward controls", "cohort", COLUMNS, rows, "Condition/rewards", note)


def _cells(draws: list[CreditCounts], run: RecordedRun) -> tuple[Cell, ...]:
    total = reduce(add, draws)
    values = [(entry.enrichment, "credit mass share / prevalence", 3) for entry in credit_table(total)]
    zero = zero_advantage_share(total)
    values += [
        (None if zero is None else 100.0 * zero, "groups without any advantage / groups, in percent", 2),
        (total.total_mass / len(draws), "sum of positive advantages", 1),
    ]
    return tuple(Cell(v, formula=f, origins=(run.everything,), decimals=d) for v, f, d in values)

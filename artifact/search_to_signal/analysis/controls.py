"""Credit when rewards mean nothing: what enrichment owes to the mapping and what to group composition.

``within`` shuffles rewards inside each group. Flat groups stay flat, and improvers stand in groups that are
not flat, so even a meaningless order inside groups enriches them: that part of an enrichment is not merit
of the order. ``across`` shuffles over the whole run, which leaves an enrichment of about 1. ``constant``
gives every completion the same reward, and no credit at all.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from search_to_signal.analysis.aggregate import Parts, summarized
from search_to_signal.analysis.metrics.credit import CLASSES, CreditCounts, credit_table
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables.cells import Cell, Table, percent_cell
from search_to_signal.analysis.tables.credit import OVER_SEEDS, enrichment_cell, run_counts, trained
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
    note = f"Shuffled rows count {DRAWS} shuffles of a run together. {OVER_SEEDS}"
    rows = summarized(trained(results), control_parts)
    return Table("controls", "Reward controls", "cohort", COLUMNS, rows, "Condition/rewards", note)


def _cells(draws: list[CreditCounts], run: RecordedRun) -> tuple[Cell, ...]:
    total = reduce(add, draws)
    origins = (run.everything,)
    zero = "groups without any advantage / groups"
    return (
        *(replace(enrichment_cell(entry), origins=origins) for entry in credit_table(total)),
        percent_cell(total.zero_groups, total.groups, zero, *origins),
        Cell(total.total_mass / len(draws), 1, "sum of positive advantages", origins, 1),
    )

"""Frozen search for as long as an online run took (paper, tab. gate4-resource).

``anchor`` uses the group budgets of the contract, which was written before any result; ``anchor_realized``
uses, beyond the paper, the time that every step of the Frozen run really took. Time is what the contract's
clock counts (D30).
"""

from collections.abc import Callable
from functools import partial

from search_to_signal.base.errors import ContractError, RunDirectoryError
from search_to_signal.records.anchor import CLOCKS, AnchorBudget, Clock, realized_groups
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.layers import ANCHOR, COHORT
from search_to_signal.records.reader import TIMINGS
from search_to_signal.report.results import Origin, RecordedRun, Results
from search_to_signal.report.tables.cells import (
    Cell,
    Cells,
    Line,
    Noted,
    combined_cells,
    difference_cell,
    number_cell,
    table,
)
from search_to_signal.report.tables.core import prompts_of
from search_to_signal.report.tables.measures import (
    FINAL_BEST,
    VALID,
    VALID_ONLY,
    differences,
    require_comparable,
)

prompts = prompts_of(ANCHOR)

LARGEST_GAP = 20.0
"""Percent of the online time; a row with a larger gap is flagged, since its times do not match."""

GAP, FLAG = "Time gap (%)", f"Gap beyond {LARGEST_GAP:g} %"
BudgetPair = tuple[AnchorBudget, RecordedRun, RecordedRun]


def match_budgets(results: Results) -> list[BudgetPair]:
    """Return (budget, online run, Frozen run) for every row of the contract.

    Raises ContractError without a contract or where it follows from other timings, RunDirectoryError naming
    a run that is missing, too short or of another protocol, NoTableError for a horizon not in the contract.
    """
    contract, pairs = results.contract, []
    for name, digest in contract.timings_sha256.items():
        file = results.directory / COHORT / name / TIMINGS
        if not file.is_file() or sha256_file(file) != digest:
            raise ContractError(f"the anchor's contract follows from other timings than {file}: restore both")
    online = {(run.facts.condition, run.seed): run for run in results.cohort}
    frozen = {run.seed: run for run in results.anchor}
    for budget in contract.budgets:
        run, base = online.get((budget.condition, budget.seed)), frozen.get(budget.seed)
        if run is None or base is None:
            missing = f"cohort run {budget.condition}" if run is None else "anchor run frozen"
            raise RunDirectoryError(
                f"the contract has a budget for {missing}-s{budget.seed}, which is missing"
            )
        if len(base.groups) < budget.groups:
            raise RunDirectoryError(f"{base.path} is shorter than its budget of {budget.groups} groups")
        horizons = (budget.online_groups, budget.groups)
        require_comparable(run, base.prefix(budget.groups), horizons)
        pairs.append((budget, run, base))
    return pairs


def budget_cells(budget: AnchorBudget, online: RecordedRun, frozen: RecordedRun) -> Cells:
    """The online run against the exact prefix of the Frozen run."""
    head = frozen.prefix(budget.groups)
    best, base = FINAL_BEST.cell(online), FINAL_BEST.cell(head)
    length, contract = len(online.groups), Origin("anchor/contract.json")
    changes = differences(online, head, (VALID, VALID_ONLY))
    return {
        "Online groups": number_cell(length, "groups of the online run", online.all_completions, decimals=1),
        "Frozen groups": number_cell(budget.groups, "budget of the contract", contract, decimals=1),
        "Online final": best,
        "Frozen final": base,
        "Final difference": difference_cell(best, base),
        "Valid difference (points)": changes[VALID.change],
        "Valid-only difference": changes[VALID_ONLY.change],
    }


def realized_cells(clock: Clock, budget: AnchorBudget, online: RecordedRun, frozen: RecordedRun) -> Cells:
    """Realized times; a Frozen run that ends before the online run's time has no match.

    Frozen seconds are scaled to the speed of the online run's processor and source (D63).
    """
    spent, seconds = float(online.seconds(clock).sum()), frozen.seconds_beside(online, clock).seconds
    used = None if seconds is None else sum(seconds[: budget.groups])
    gap = _time_gap(used, spent)
    frozen_wall = float(frozen.seconds("wall")[: budget.groups].sum())
    wall = _time_gap(frozen_wall, float(online.seconds("wall").sum()))
    count = 0 if seconds is None else realized_groups(seconds, spent)
    matched, longest = 0 < count < len(frozen.groups), "longest Frozen prefix within the online seconds"
    best = FINAL_BEST.cell(frozen.prefix(count)) if matched else FINAL_BEST.of(None, frozen.all_completions)
    both = (Origin(online.file(TIMINGS)), Origin(frozen.file(TIMINGS)))
    formula, beyond = "(Frozen - online) / online seconds, in percent", f"beyond {LARGEST_GAP:g} %"
    time, of_prefix = f"sum of {CLOCKS[clock]}, set-up excluded", f"{CLOCKS[clock]} of the budgeted prefix"
    far = None if gap is None else int(abs(gap) > LARGEST_GAP)
    return {
        "Online seconds": number_cell(spent, time, both[0], decimals=1),
        "Frozen seconds at budget": number_cell(used, of_prefix, both[1], decimals=1),
        GAP: number_cell(gap, formula, *both, decimals=2),
        FLAG: Cell(far, formula=f"runs whose time gap is {beyond}", origins=both),
        "Wall time gap (%)": number_cell(wall, f"{formula}, wall time", *both, decimals=2),
        "Matched groups": number_cell(count if matched else None, longest, *both, decimals=1),
        "Frozen final when matched": best,
        "Final difference when matched": difference_cell(FINAL_BEST.cell(online), best),
    }


def _time_gap(frozen: float | None, online: float) -> float | None:
    return 100.0 * (frozen - online) / online if online and frozen is not None else None


@table("Resource anchor", layer=ANCHOR)
def anchor(results: Results) -> Noted:
    """Endpoints at the contract's group budgets, online minus Frozen."""
    note = (
        f"Group budgets from the contract, of {CLOCKS[results.contract.clock]} (D30); not exact time "
        "matches. Higher differences favour online updating."
    )
    over, single = _rows(results, budget_cells)
    return Noted(over + single, note)


@table("Realized-time matches", layer=ANCHOR)
def anchor_realized(results: Results) -> Noted:
    """Realized times, with endpoints of the Frozen prefix that took the online time."""
    clock = results.contract.clock
    over, single = _rows(results, partial(realized_cells, clock))
    far = [f"{name} ({cells[GAP].value:+.1f} %)" for name, cells in single if cells[FLAG].value == 1]
    flags = f"FLAGGED, gap beyond {LARGEST_GAP:g} %, no comparison at equal time: {', '.join(far)}."
    if not far:
        flags = f"No gap is beyond {LARGEST_GAP:g} %."
    # The factors on Frozen seconds of another processor or source.
    seconds = [frozen.seconds_beside(online, clock) for _, online, frozen in results.once(match_budgets)]
    remarks = dict.fromkeys(run_seconds.remark for run_seconds in seconds if run_seconds.remark)
    scales = [run_seconds.scale for run_seconds in seconds if run_seconds.seconds is not None]
    texts = [flags, *(f"{remark[0].upper()}{remark[1:]}." for remark in remarks)]
    if remarks and scales:
        texts.append(f"Scales are {min(scales):.3f} to {max(scales):.3f}.")
    note = (
        f"Times are {CLOCKS[clock]} (D30), set-up excluded; a dash where the Frozen run was too short for a "
        f"match. {' '.join(texts)}"
    )
    return Noted(over + single, note)


def _rows(
    results: Results, cells_of: Callable[[AnchorBudget, RecordedRun, RecordedRun], Cells]
) -> tuple[list[Line], list[Line]]:
    budgets = results.once(match_budgets)
    pairs = [(online, cells_of(budget, online, frozen)) for budget, online, frozen in budgets]
    seeds: dict[str, list[Cells]] = {}
    for run, cells in pairs:
        seeds.setdefault(run.condition, []).append(cells)
    over = [(name, combined_cells(own)) for name, own in seeds.items()]
    return over, [(run.name, cells) for run, cells in pairs]

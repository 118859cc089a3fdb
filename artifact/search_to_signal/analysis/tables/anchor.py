"""Frozen search for as long as an online run took (paper, tab. gate4-resource).

``anchor`` uses the group budgets of the contract, which was written before any result; ``anchor_realized``
uses, beyond the paper, the time that every step of the Frozen run really took. Time is what the contract's
clock counts (D30).
"""

from collections.abc import Callable, Sequence
from functools import partial

from search_to_signal.analysis.results import Origin, RecordedRun, Results
from search_to_signal.analysis.tables.cells import (
    Cell,
    Cells,
    Row,
    Table,
    difference_cell,
    number_cell,
    over_seeds,
)
from search_to_signal.analysis.tables.measures import FINAL_BEST, VALID, VALID_ONLY, require_comparable
from search_to_signal.errors import ContractError, RunDirectoryError
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.anchor import CLOCKS, AnchorBudget, AnchorContract, Clock, realized_groups
from search_to_signal.records.layers import COHORT
from search_to_signal.records.reader import TIMINGS

BUDGET_COLUMNS = (
    "Online groups",
    "Frozen groups",
    "Online final",
    "Frozen final",
    "Final difference",
    "Valid difference (points)",
    "Valid-only difference",
)
LARGEST_GAP = 20.0
"""Percent of the online time; a row with a larger gap is flagged, since its times do not match."""

GAP, FLAG = "Time gap (%)", f"Gap beyond {LARGEST_GAP:g} %"
REALIZED_COLUMNS = (
    "Online seconds",
    "Frozen seconds at budget",
    GAP,
    FLAG,
    "Wall time gap (%)",
    "Matched groups",
    "Frozen final when matched",
    "Final difference when matched",
)
BudgetPair = tuple[AnchorBudget, RecordedRun, RecordedRun]


def match_budgets(results: Results) -> list[BudgetPair]:
    """Return (budget, online run, Frozen run) for every row of the contract.

    Raises ContractError without a contract or where it follows from other timings, RunDirectoryError naming
    a run that is missing, too short or of another protocol, NoTableError for a horizon not in the contract.
    """
    budgets, pairs = _contract(results).budgets, []
    online = {(run.facts.condition, run.seed): run for run in results.cohort}
    frozen = {run.seed: run for run in results.anchor}
    for budget in budgets:
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
    """Return BUDGET_COLUMNS of one row: the online run against the exact prefix of the Frozen run."""
    head = frozen.prefix(budget.groups)
    pairs = {m: (m.cell(online), m.cell(head)) for m in (FINAL_BEST, VALID, VALID_ONLY)}
    contract = Origin("anchor/contract.json")
    return (
        number_cell(len(online.groups), "groups of the online run", online.all_completions, decimals=1),
        number_cell(budget.groups, "budget of the contract", contract, decimals=1),
        *pairs[FINAL_BEST],
        *(difference_cell(online_cell, frozen_cell) for online_cell, frozen_cell in pairs.values()),
    )


def realized_cells(clock: Clock, budget: AnchorBudget, online: RecordedRun, frozen: RecordedRun) -> Cells:
    """Return REALIZED_COLUMNS of one row; a Frozen run that ends before the online run's time has no match.

    Frozen seconds are scaled to the speed of the online run's processor and source (D63).
    """
    spent, used = float(online.seconds(clock).sum()), frozen.seconds_beside(online, clock).seconds
    count = 0 if used is None else realized_groups(used, spent)
    matched, longest = 0 < count < len(frozen.groups), "longest Frozen prefix within the online seconds"
    best = FINAL_BEST.cell(frozen.prefix(count)) if matched else FINAL_BEST.of(None, frozen.all_completions)
    return (
        *_time_cells(clock, budget, online, frozen, used),
        number_cell(count if matched else None, longest, *_clocks(online, frozen), decimals=1),
        best,
        difference_cell(FINAL_BEST.cell(online), best),
    )


def _time_cells(
    clock: Clock,
    budget: AnchorBudget,
    online: RecordedRun,
    frozen: RecordedRun,
    seconds: Sequence[float] | None,
) -> Cells:
    spent = float(online.seconds(clock).sum())
    used = None if seconds is None else sum(seconds[: budget.groups])
    gap = _time_gap(used, spent)
    wall = _time_gap(
        float(frozen.seconds("wall")[: budget.groups].sum()), float(online.seconds("wall").sum())
    )
    far = None if gap is None else int(abs(gap) > LARGEST_GAP)
    both, formula = _clocks(online, frozen), "(Frozen - online) / online seconds, in percent"
    return (
        number_cell(spent, f"sum of {CLOCKS[clock]}, set-up excluded", both[0], decimals=1),
        number_cell(used, f"{CLOCKS[clock]} of the budgeted prefix", both[1], decimals=1),
        number_cell(gap, formula, *both, decimals=2),
        Cell(far, formula=f"runs whose time gap is beyond {LARGEST_GAP:g} %", origins=both),
        number_cell(wall, f"{formula}, wall time", *both, decimals=2),
    )


def _time_gap(frozen: float | None, online: float) -> float | None:
    """Return the time gap in percent of the online seconds."""
    return 100.0 * (frozen - online) / online if online and frozen is not None else None


def _clocks(online: RecordedRun, frozen: RecordedRun) -> tuple[Origin, Origin]:
    return Origin(online.file(TIMINGS)), Origin(frozen.file(TIMINGS))


def anchor(results: Results) -> Table:
    """Build the table of endpoints at the contract's group budgets, online minus Frozen."""
    rows = _rows(results, budget_cells)
    note = (
        f"Group budgets from the contract, of {CLOCKS[results.contract.clock]} (D30); not exact time "
        "matches. Higher differences favour online updating."
    )
    return Table("anchor", "Resource anchor", "anchor", BUDGET_COLUMNS, rows, "Condition", note)


def anchor_realized(results: Results) -> Table:
    """Build the table of realized times, with endpoints of the Frozen prefix that took the online time."""
    clock = results.contract.clock
    rows = _rows(results, partial(realized_cells, clock))
    note = (
        f"Times are {CLOCKS[clock]} (D30), set-up excluded; a dash where the Frozen run was too short for a "
        f"match. {_describe_flags(rows[-len(results.contract.budgets) :])}{_describe_scales(results, clock)}"
    )
    return Table(
        "anchor_realized", "Realized-time matches", "anchor", REALIZED_COLUMNS, rows, "Condition", note
    )


def _describe_flags(rows: Sequence[Row]) -> str:
    """Describe the single runs with a time gap that is too large for a comparison at equal time."""
    gap, flag = REALIZED_COLUMNS.index(GAP), REALIZED_COLUMNS.index(FLAG)
    far = [f"{row.label} ({row.cells[gap].value:+.1f} %)" for row in rows if row.cells[flag].value == 1]
    if not far:
        return f"No gap is beyond {LARGEST_GAP:g} %."
    return f"FLAGGED, gap beyond {LARGEST_GAP:g} %, no comparison at equal time: {', '.join(far)}."


def _describe_scales(results: Results, clock: Clock) -> str:
    """Describe the factors on Frozen seconds of another processor or source; empty without any."""
    seconds = [frozen.seconds_beside(online, clock) for _, online, frozen in results.once(match_budgets)]
    remarks = dict.fromkeys(run_seconds.remark for run_seconds in seconds if run_seconds.remark)
    scales = [run_seconds.scale for run_seconds in seconds if run_seconds.seconds is not None]
    scale_text = f" Scales are {min(scales):.3f} to {max(scales):.3f}." if remarks and scales else ""
    return "".join(f" {remark[0].upper()}{remark[1:]}." for remark in remarks) + scale_text


def _contract(results: Results) -> AnchorContract:
    contract, cohort = results.contract, results.directory / COHORT
    for name, digest in contract.timings_sha256.items():
        file = cohort / name / TIMINGS
        if not file.is_file() or sha256_file(file) != digest:
            raise ContractError(f"the anchor's contract follows from other timings than {file}: restore both")
    return contract


def _rows(
    results: Results, cells_of: Callable[[AnchorBudget, RecordedRun, RecordedRun], Cells]
) -> tuple[Row, ...]:
    pairs = [
        (online, cells_of(budget, online, frozen)) for budget, online, frozen in results.once(match_budgets)
    ]
    rows: list[Row] = []
    for condition in dict.fromkeys(run.condition for run, _ in pairs):
        seeds = [{"": cells} for run, cells in pairs if run.condition == condition]
        rows += over_seeds(condition, seeds)
    return (*rows, *(Row(run.name, cells) for run, cells in pairs))

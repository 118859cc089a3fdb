"""The core-results table: one row per condition over seeds, and one row per run."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean, stdev

from search_to_signal.analysis.runs import RecordedRun

COLUMNS: tuple[tuple[str, str, float, int], ...] = (
    # field of RunMetrics, heading, factor, decimals
    ("final_best", "Final best", 1, 4),
    ("trajectory_auc", "Trajectory AUC", 1, 4),
    ("valid_rate", "Valid (%)", 100, 2),
    ("valid_only_performance", "Valid-only perf.", 1, 4),
    ("improve_yield", "Improve yield (%)", 100, 2),
)


@dataclass(frozen=True)
class Cell:
    """Mean and sample standard deviation over n runs; None where a value or a deviation does not exist."""

    mean: float | None
    deviation: float | None
    n: int

    def text(self, decimals: int) -> str:
        """For people; a dash where there is no value."""
        if self.mean is None:
            return "–"
        spread = "" if self.deviation is None else f" ± {self.deviation:.{decimals}f}"
        return f"{self.mean:.{decimals}f}{spread}"


def cell(values: Sequence[float | None]) -> Cell:
    """Aggregate one column over runs; one missing value makes the aggregate missing."""
    known = [value for value in values if value is not None]
    if len(known) != len(values) or not known:
        return Cell(None, None, len(values))
    return Cell(mean(known), stdev(known) if len(known) > 1 else None, len(known))


def _column(runs: Sequence[RecordedRun], field: str, factor: float) -> list[float | None]:
    values = [getattr(run.metrics, field) for run in runs]
    return [None if value is None else factor * value for value in values]


def condition_rows(runs: Sequence[RecordedRun]) -> list[list[str]]:
    """Heading and one row per condition, as text."""
    rows = [["Condition", "Seeds", *(heading for _, heading, _, _ in COLUMNS)]]
    for condition, members in groupby(runs, key=lambda run: run.condition):
        same = list(members)
        cells = [cell(_column(same, f, factor)).text(decimals) for f, _, factor, decimals in COLUMNS]
        rows.append([condition, str(len(same)), *cells])
    return rows


def seed_rows(runs: Sequence[RecordedRun]) -> list[list[str]]:
    """Heading and one row per run, with all digits where a number is exact."""
    headings = ["Condition", "Seed", "Groups", "Completions", *(heading for _, heading, _, _ in COLUMNS)]
    rows = [headings]
    for run in runs:
        values = [_column([run], f, factor)[0] for f, _, factor, _ in COLUMNS]
        shown = [Cell(v, None, 1).text(d) for v, (_, _, _, d) in zip(values, COLUMNS, strict=True)]
        rows.append(
            [run.condition, str(run.seed), str(run.metrics.groups), str(run.metrics.completions), *shown]
        )
    return rows


def validity_gains(runs: Sequence[RecordedRun]) -> list[list[str]]:
    """Valid rate minus that of the frozen run of the same seed, in percentage points."""
    rows = [["Condition", "Seed", "Valid minus Frozen (points)"]]
    frozen = {run.seed: run.metrics.valid_rate for run in runs if run.condition == "frozen"}
    for run in runs:
        base, rate = frozen.get(run.seed), run.metrics.valid_rate
        if run.condition != "frozen" and base is not None and rate is not None:
            rows.append([run.condition, str(run.seed), f"{100 * (rate - base):+.2f}"])
    return rows

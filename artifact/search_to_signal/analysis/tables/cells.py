"""Tables of cells with the records behind them, and the aggregation of cells over seeds.

The run seed is the unit, and every aggregate has its n."""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean, stdev

from search_to_signal.analysis.results import Origin, RecordedRun
from search_to_signal.errors import ConfigError
from search_to_signal.progress import counted

NOTHING = "–"
PERCENT, POINTS = "%", "percentage points"
"""The units of shares, and of differences of shares."""


@dataclass(frozen=True)
class Cell:
    """A value with its number of units ``n``, its formula as text, and the records behind it.

    ``value`` is None where the quantity does not exist; ``spread`` is a sample standard deviation over n.
    ``terms`` are numerator and denominator of a ratio whose aggregate is the ratio of their means (D29).
    """

    value: float | int | str | None
    n: int = 1
    formula: str = ""
    origins: tuple[Origin, ...] = ()
    decimals: int = 4
    spread: float | None = None
    terms: tuple[float, float] | None = None

    @property
    def number(self) -> float | None:
        """The value where it is a number."""
        return float(self.value) if isinstance(self.value, int | float) else None

    def text(self) -> str:
        """Format the value, rounded; a dash where there is none."""
        if self.value is None:
            return NOTHING
        if isinstance(self.value, str | int):
            return str(self.value)
        spread = "" if self.spread is None else f" ± {self.spread:.{self.decimals}f}"
        return f"{self.value:.{self.decimals}f}{spread}"


@dataclass(frozen=True)
class Row:
    """A row's label, unique in its table, and one cell per column."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table of one evidence layer; ``note`` explains units, n and other conditions."""

    name: str
    title: str
    layer: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    label: str = ""
    note: str = ""

    def row(self, label: str) -> Row:
        """Return the row of that label; raises ConfigError that lists the labels."""
        rows = {item.label: item for item in self.rows}
        if label not in rows:
            raise ConfigError(f"table {self.name} has no row {label!r}: choose one of {', '.join(rows)}")
        return rows[label]

    def cell(self, row: str, column: str) -> Cell:
        """Return the cell of a row and a column by name; raises ConfigError that lists the names."""
        named_row = self.row(row)
        if column not in self.columns:
            known = ", ".join(self.columns)
            raise ConfigError(f"table {self.name} has no column {column!r}: choose one of {known}")
        return named_row.cells[self.columns.index(column)]

    def text_rows(self) -> list[list[str]]:
        heading = [self.label, *self.columns]
        return [heading, *([row.label, *(cell.text() for cell in row.cells)] for row in self.rows)]


def number_cell(value: float | None, formula: str, *origins: Origin, decimals: int = 4) -> Cell:
    """Make the cell of one run's number, or of a missing one; means over seeds are computed from it."""
    return Cell(None if value is None else float(value), 1, formula, origins, decimals)


def percent_cell(part: float, whole: float, formula: str, *origins: Origin) -> Cell:
    """Make the cell of 100 part / whole, without a value where whole is zero: absent is not zero."""
    value = None if whole == 0 else 100.0 * part / whole
    return number_cell(value, f"{formula}, in percent", *origins, decimals=2)


def share_cell(share: float | None, formula: str, *origins: Origin) -> Cell:
    """Make the cell of a ratio in percent, or of a missing one."""
    value = None if share is None else 100.0 * share
    return number_cell(value, f"{formula}, in percent", *origins, decimals=2)


Cells = tuple[Cell, ...]
Parts = Mapping[str, Cells]
"""The cells of one run: by part of the run (an operator, a stage), or under "" for the whole."""

PartsOf = Callable[[RecordedRun], Parts]
Combine = Callable[[Sequence[Cell]], Cell]


def mean_cell(cells: Sequence[Cell]) -> Cell:
    """Mean and sample standard deviation over n runs; one missing value makes the mean missing."""
    return _averaged(cells, _numbers(cells), f"mean over {_of_seeds(cells)} of ({cells[0].formula})")


def known_mean_cell(cells: Sequence[Cell]) -> Cell:
    """Mean over the runs that have a value; n is their number. For events that a run may lack."""
    known = [cell for cell in cells if cell.value is not None]
    formula = f"mean over the {len(known)} of {_of_seeds(cells)} with a value of ({cells[0].formula})"
    return _averaged(cells, _numbers(known), formula)


def total_cell(cells: Sequence[Cell]) -> Cell:
    """Sum of counts over n runs."""
    values = [cell.value for cell in cells if isinstance(cell.value, int)]
    formula = f"sum over {_of_seeds(cells)} of ({cells[0].formula})"
    return Cell(sum(values), len(cells), formula, _origins(cells), cells[0].decimals)


def ratio_cell(cells: Sequence[Cell]) -> Cell:
    """Mean numerator over mean denominator of n runs (D29), so that shares still add up over classes.

    Missing where a run lacks its terms, or all denominators are zero. Without a deviation: it is no mean of
    the runs' ratios.
    """
    terms = [cell.terms for cell in cells if cell.terms is not None]
    above, below = (mean(column) for column in zip(*terms, strict=True)) if terms else (0.0, 0.0)
    value = above / below if len(terms) == len(cells) and below else None
    formula = f"mean numerator / mean denominator over {_of_seeds(cells)} (D29) of ({cells[0].formula})"
    return Cell(value, len(cells), formula, _origins(cells), cells[0].decimals)


def listed_cell(cells: Sequence[Cell]) -> Cell:
    """The texts of n runs as a list, in their order."""
    text = ", ".join(cell.text() for cell in cells)
    return Cell(text, len(cells), f"of {_of_seeds(cells)}: {cells[0].formula}", _origins(cells))


def combined_cell(cells: Sequence[Cell]) -> Cell:
    """Combine cells: sum counts, list texts, divide means of ratio terms, and average everything else."""
    if all(isinstance(cell.value, int) for cell in cells):
        return total_cell(cells)
    if all(isinstance(cell.value, str) for cell in cells):
        return listed_cell(cells)
    return ratio_cell(cells) if any(cell.terms for cell in cells) else mean_cell(cells)


def count_above(cells: Sequence[Cell], threshold: float = 0.0) -> Cell:
    """Count the seeds with a value strictly above ``threshold``; missing where a seed has no value."""
    return _count(cells, "above", operator.gt, threshold)


def count_directions(cells: Sequence[Cell]) -> Mapping[str, Cell]:
    """Count the seeds with a difference that is better (above zero), equal (exactly zero) and worse.

    The three add up to n; missing where a seed has no difference.
    """
    return {
        "better": _count(cells, "above", operator.gt),
        "equal": _count(cells, "equal to", operator.eq),
        "worse": _count(cells, "below", operator.lt),
    }


def _count(
    cells: Sequence[Cell], where: str, holds: Callable[[float, float], bool], threshold: float = 0.0
) -> Cell:
    values = _numbers(cells)
    number = None if values is None else sum(holds(value, threshold) for value in values)
    return Cell(number, len(cells), f"seeds with ({cells[0].formula}) {where} {threshold:g}", _origins(cells))


def difference_cell(first: Cell, second: Cell) -> Cell:
    """first - second of one seed; missing where either is."""
    a, b = first.number, second.number
    value = None if a is None or b is None else a - b
    formula = f"({first.formula}) minus the same of the second run"
    return Cell(value, 1, formula, _origins([first, second]), first.decimals)


def summarized(
    runs: Sequence[RecordedRun], parts_of: PartsOf, combine: Combine = combined_cell
) -> tuple[Row, ...]:
    """Rows CONDITION over its seeds, then rows CONDITION-sSEED; parts of a run follow after a slash."""
    parts = {run.name: parts_of(run) for run in runs}
    return (
        *condition_rows(runs, lambda run: parts[run.name], combine),
        *seed_rows(runs, lambda run: parts[run.name]),
    )


def condition_rows(
    runs: Sequence[RecordedRun], parts_of: PartsOf, combine: Combine = combined_cell
) -> tuple[Row, ...]:
    """One row per condition and part, over seeds; runs come by condition."""
    rows: list[Row] = []
    for condition, members in groupby(runs, key=lambda run: run.condition):
        rows += over_seeds(condition, [parts_of(run) for run in members], combine)
    return tuple(rows)


def seed_rows(runs: Sequence[RecordedRun], parts_of: PartsOf) -> tuple[Row, ...]:
    return tuple(Row(label(run.name, key), cells) for run in runs for key, cells in parts_of(run).items())


def over_seeds(name: str, seeds: Sequence[Parts], combine: Combine = combined_cell) -> list[Row]:
    """One row per part, its cells combined over seeds."""
    return [
        Row(
            label(name, key),
            tuple(combine(cells) for cells in zip(*(parts[key] for parts in seeds), strict=True)),
        )
        for key in seeds[0]
    ]


def seed_numbers(numbers: Iterable[int]) -> str:
    """Format numbers of seeds: ``n = 3 seeds``, or every number that occurs."""
    distinct = sorted(set(numbers))
    return f"n = {' or '.join(map(str, distinct))} seed{'' if distinct == [1] else 's'}"


def change_of(heading: str) -> str:
    """Return the heading of a column of differences; differences of percentages are in points."""
    return heading.replace("(%)", "(points)")


def unit_of(heading: str, score: str) -> str:
    """Return the unit of a column by its heading: that of a share or of its change, else that of scores."""
    return PERCENT if heading.endswith("(%)") else POINTS if heading.endswith("(points)") else score


def label(name: str, part: str) -> str:
    return f"{name}/{part}" if part else name


def _of_seeds(cells: Sequence[Cell]) -> str:
    return counted(len(cells), "seed")


def _numbers(cells: Sequence[Cell]) -> list[float] | None:
    values = [cell.number for cell in cells if cell.number is not None]
    return values if values and len(values) == len(cells) else None


def _averaged(cells: Sequence[Cell], values: Sequence[float] | None, formula: str) -> Cell:
    n = len(cells) if values is None else len(values)
    value = None if values is None else mean(values)
    spread = stdev(values) if values is not None and len(values) > 1 else None
    return Cell(value, n, formula, _origins(cells), cells[0].decimals, spread)


def _origins(cells: Sequence[Cell]) -> tuple[Origin, ...]:
    return tuple(dict.fromkeys(origin for cell in cells for origin in cell.origins))

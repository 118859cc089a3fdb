"""Tables of cells with the records behind them, and the aggregation of cells over seeds.

The run seed is the unit, and every aggregate has its n."""

import csv
import io
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import mean, stdev
from typing import Generic, NamedTuple, TypeVar

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.progress import counted
from search_to_signal.records.layers import COHORT
from search_to_signal.report.results import Origin, RecordedRun, Results, Runs

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


def count_cell(number: int, formula: str, *origins: Origin, n: int = 1) -> Cell:
    """Make the cell of a count; over seeds it is summed."""
    return Cell(number, n, formula, origins)


def percent_cell(part: float, whole: float, formula: str, *origins: Origin) -> Cell:
    """Make the cell of 100 part / whole, without a value where whole is zero: absent is not zero."""
    value = None if whole == 0 else 100.0 * part / whole
    return number_cell(value, f"{formula}, in percent", *origins, decimals=2)


def share_cell(share: float | None, formula: str, *origins: Origin) -> Cell:
    """Make the cell of a ratio in percent, or of a missing one."""
    value = None if share is None else 100.0 * share
    return number_cell(value, f"{formula}, in percent", *origins, decimals=2)


Cells = dict[str, Cell]
"""The cells of a row by heading, in the order of the columns."""
Parts = dict[str, Cells]
"""The cells of one run by part of the run (an operator, a stage); of the whole it is ""."""
Line = tuple[str, Cells]
"""A row's label and its cells."""

PartsOf = Callable[[RecordedRun], Parts | Cells]
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
) -> list[Line]:
    """Rows CONDITION over its seeds, then rows CONDITION-sSEED; parts of a run follow after a slash."""
    parts = {run.name: by_part(parts_of(run)) for run in runs}
    lines: list[Line] = []
    for condition, members in groupby(runs, key=lambda run: run.condition):
        lines += over_seeds(condition, [parts[run.name] for run in members], combine)
    return lines + [line for name, own in parts.items() for line in lines_of(name, own)]


def by_part(found: Parts | Cells) -> Parts:
    """Cells of a run as a whole are those of its part ""."""
    parts = {part: cells for part, cells in found.items() if isinstance(cells, dict)}
    return parts or {"": {heading: cell for heading, cell in found.items() if isinstance(cell, Cell)}}


def lines_of(name: str, parts: Parts) -> list[Line]:
    """One row per part."""
    return [(label(name, part), cells) for part, cells in parts.items()]


def over_seeds(name: str, seeds: Sequence[Parts], combine: Combine = combined_cell) -> list[Line]:
    """One row per part, its cells combined over seeds."""
    combined = {part: combined_cells([parts[part] for parts in seeds], combine) for part in seeds[0]}
    return lines_of(name, combined)


def combined_cells(seeds: Sequence[Cells], combine: Combine = combined_cell) -> Cells:
    """Combine the cells of each column over seeds."""
    return {heading: combine([cells[heading] for cells in seeds]) for heading in seeds[0]}


def difference_cells(first: Cells, second: Cells) -> Cells:
    """first - second of one seed in every column."""
    return {change_of(heading): difference_cell(cell, second[heading]) for heading, cell in first.items()}


OfRun = TypeVar("OfRun", bound=PartsOf)
Function = TypeVar("Function", bound=Callable[..., object])


def table_of(
    name: str,
    title: str,
    label: str,
    lines: Sequence[Line],
    note: str,
    layer: str = COHORT,
    columns: tuple[str, ...] = (),
) -> Table:
    """Make a table of rows with the same headings, ``columns``: needed only where there may be no row."""
    columns = columns or tuple(lines[0][1] if lines else ())
    rows = (Row(label, tuple(cells[heading] for heading in columns)) for label, cells in lines)
    return Table(name, title, layer, columns, tuple(rows), label, note)


class Noted(NamedTuple):
    """Rows with a note that follows from them."""

    lines: Sequence[Line]
    note: str


RowsOf = Callable[[Results], Iterable[Line] | Noted]


@dataclass(frozen=True)
class TableSpec(Generic[Function]):
    """A table before it is made: ``table`` and ``run_table`` make one of a ``function``.

    ``columns`` are the headings, needed only where there may be no row.
    """

    name: str
    title: str
    layer: str
    label: str
    note: str
    columns: tuple[str, ...]
    function: Function
    rows: RowsOf

    def __call__(self, results: Results) -> Table:
        """Make the table; raises NoTableError with the reason where there is nothing to make it from."""
        found = self.rows(results)
        return self.of_lines(*(found if isinstance(found, Noted) else (list(found), self.note)))

    def of_lines(self, lines: Sequence[Line], note: str) -> Table:
        """The table of rows that are there already."""
        return table_of(self.name, self.title, self.label, lines, note, self.layer, self.columns)


def table(
    title: str,
    note: str = "",
    *,
    layer: str = COHORT,
    label: str = "Condition",
    columns: tuple[str, ...] = (),
) -> Callable[[RowsOf], TableSpec[RowsOf]]:
    """Make a table, named like the function below, which yields its rows: labels with cells by heading."""
    return lambda rows: TableSpec(rows.__name__, title, layer, label, note, columns, rows, rows)


def run_table(
    title: str,
    note: str = "",
    *,
    layer: str = COHORT,
    label: str = "Condition",
    runs: Callable[[Results], Runs] = lambda results: results.cohort,
    combine: Combine = combined_cell,
) -> Callable[[OfRun], TableSpec[OfRun]]:
    """Make a table of what the function below gives of a run: cells by heading, or such cells by part.

    Its rows are conditions, ``combine``d over seeds, then single runs.
    """

    def spec(of_run: OfRun) -> TableSpec[OfRun]:
        def rows(results: Results) -> list[Line]:
            return summarized(runs(results), of_run, combine)

        return TableSpec(of_run.__name__, title, layer, label, note, (), of_run, rows)

    return spec


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


# Tables as files: CSV, Markdown and LaTeX.

Rows = Sequence[Sequence[str]]
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "%_&#${}"}
    | {"±": r"$\pm$", "–": "--", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\^{}"}
)


def to_csv(rows: Rows) -> str:
    """Format rows as comma-separated text with line feeds."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def to_markdown(rows: Rows) -> str:
    """Format rows as a pipe table; the first row is the heading, later columns are right-aligned."""
    head, *body = rows
    rule = [":--", *("--:" for _ in head[1:])]
    lines = [[cell.replace("|", "\\|") for cell in row] for row in (head, rule, *body)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_latex(rows: Rows) -> str:
    head, *body = (" & ".join(cell.translate(_LATEX) for cell in row) + " \\\\" for row in rows)
    lines = [f"\\begin{{tabular}}{{@{{}}l{'r' * (len(rows[0]) - 1)}@{{}}}}", "\\toprule", head]
    return "\n".join([*lines, "\\midrule", *body, "\\bottomrule", "\\end{tabular}", ""])


def write_table(table: Table, directory: Path) -> None:
    """Write NAME.csv, NAME.md (rounded, with the note) and NAME.tex (rounded).

    The CSV is in long form (row, column, value, spread, n), values in full.
    """
    lines = [["row", "column", "value", "spread", "n"]]
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            value, spread = cell.value, "" if cell.spread is None else repr(cell.spread)
            full = "" if value is None else repr(value) if isinstance(value, float) else str(value)
            lines.append([row.label, column, full, spread, str(cell.n)])
    rows = table.text_rows()
    note = f"\n{table.note}\n" if table.note else ""
    texts = {"csv": to_csv(lines), "md": to_markdown(rows) + note, "tex": to_latex(rows)}
    for ending, text in texts.items():
        (directory / f"{table.name}.{ending}").write_text(text, encoding="utf-8")

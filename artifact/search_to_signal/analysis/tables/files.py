"""Tables as files: CSV, Markdown and LaTeX."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from search_to_signal.analysis.tables.cells import Cell, Table

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


def _latex_line(row: Sequence[str]) -> str:
    return " & ".join(cell.translate(_LATEX) for cell in row) + " \\\\"


def to_latex(rows: Rows) -> str:
    head, *body = rows
    lines = [f"\\begin{{tabular}}{{@{{}}l{'r' * (len(head) - 1)}@{{}}}}", "\\toprule", _latex_line(head)]
    lines += ["\\midrule", *map(_latex_line, body), "\\bottomrule", "\\end{tabular}", ""]
    return "\n".join(lines)


def write_csv(table: Table, directory: Path) -> Path:
    """Write NAME.csv in long form (row, column, value, spread, n), values in full; returns its path."""
    lines = [["row", "column", "value", "spread", "n"]]
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            lines.append([row.label, column, *_plain(cell)])
    path = directory / f"{table.name}.csv"
    path.write_text(to_csv(lines), encoding="utf-8")
    return path


def _plain(cell: Cell) -> Sequence[str]:
    value = "" if cell.value is None else repr(cell.value) if isinstance(cell.value, float) else cell.value
    return [str(value), "" if cell.spread is None else repr(cell.spread), str(cell.n)]


def write_table(table: Table, directory: Path) -> None:
    """Write NAME.csv (every value in full), NAME.md (rounded, with the note) and NAME.tex (rounded)."""
    write_csv(table, directory)
    rows = table.text_rows()
    note = f"\n{table.note}\n" if table.note else ""
    (directory / f"{table.name}.md").write_text(to_markdown(rows) + note, encoding="utf-8")
    (directory / f"{table.name}.tex").write_text(to_latex(rows), encoding="utf-8")

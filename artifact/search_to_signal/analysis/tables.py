"""One table, three forms: CSV for programs, Markdown for pages, LaTeX for papers."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

Rows = Sequence[Sequence[str]]

_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "%_&#${}"}
    | {"±": r"$\pm$", "–": "--", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\^{}"}
)


def to_csv(rows: Rows) -> str:
    """Comma-separated, line feeds only."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def to_markdown(rows: Rows) -> str:
    """A pipe table; the first row is the heading, columns after the first are right-aligned."""
    head, *body = rows
    rule = [":--", *("--:" for _ in head[1:])]
    lines = [[cell.replace("|", "\\|") for cell in row] for row in (head, rule, *body)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _latex_line(row: Sequence[str]) -> str:
    return " & ".join(cell.translate(_LATEX) for cell in row) + " \\\\"


def to_latex(rows: Rows) -> str:
    """A booktabs tabular."""
    head, *body = rows
    lines = [f"\\begin{{tabular}}{{@{{}}l{'r' * (len(head) - 1)}@{{}}}}", "\\toprule", _latex_line(head)]
    lines += ["\\midrule", *map(_latex_line, body), "\\bottomrule", "\\end{tabular}", ""]
    return "\n".join(lines)


def write_table(rows: Rows, directory: Path, name: str) -> None:
    """Write all three forms side by side."""
    for suffix, text in (("csv", to_csv(rows)), ("md", to_markdown(rows)), ("tex", to_latex(rows))):
        (directory / f"{name}.{suffix}").write_text(text, encoding="utf-8")

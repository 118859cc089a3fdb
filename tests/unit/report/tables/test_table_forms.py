"""One table in three forms that each read back as what was put in."""

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_to_signal.report.tables.cells import Cell, Row, Table, to_csv, to_latex, to_markdown, write_table

ROWS = [["Condition", "Valid (%)"], ["tail_weighted", "75.00 ± 1.00"], ["my.pkg:a|b", "–"]]

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=8)


@given(st.lists(st.lists(texts, min_size=2, max_size=2), min_size=1, max_size=4))
@pytest.mark.slow
def test_csv_survives_any_text(rows: list[list[str]]) -> None:
    assert list(csv.reader(io.StringIO(to_csv(rows), newline=""))) == rows


def test_csv_has_line_feeds_only() -> None:
    assert to_csv(ROWS) == "Condition,Valid (%)\ntail_weighted,75.00 ± 1.00\nmy.pkg:a|b,–\n"


def test_markdown_columns_hold() -> None:
    lines = to_markdown(ROWS).splitlines()
    assert lines[0] == "| Condition | Valid (%) |"
    assert lines[1] == "| :-- | --: |"
    assert lines[3] == r"| my.pkg:a\|b | – |"
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}


def test_latex_is_booktabs() -> None:
    assert to_latex(ROWS).splitlines() == [
        r"\begin{tabular}{@{}lr@{}}",
        r"\toprule",
        r"Condition & Valid (\%) \\",
        r"\midrule",
        r"tail\_weighted & 75.00 $\pm$ 1.00 \\",
        r"my.pkg:a|b & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


@pytest.mark.parametrize("character", "%_&#${}~^\\")
def test_latex_specials_never_stand_bare(character: str) -> None:
    line = to_latex([["h"], [f"a{character}b"]]).splitlines()[4]
    assert line != f"a{character}b \\\\"
    assert re.fullmatch(r"a\\(?:[%_&#${}]|textbackslash\{\}|textasciitilde\{\}|\^\{\})b \\\\", line)


def test_three_forms_side_by_side(tmp_path: Path) -> None:
    cells = (Cell(1 / 3, 3, spread=0.25, decimals=2), Cell(None, 3), Cell(7))
    table = Table("core", "Core", "cohort", ("a", "b", "c"), (Row("native", cells),), "Condition", "n is 3.")
    write_table(table, tmp_path)
    found = {path.name: path.read_bytes().decode() for path in tmp_path.iterdir()}
    rows = [["Condition", "a", "b", "c"], ["native", "0.33 ± 0.25", "–", "7"]]
    assert found["core.md"] == to_markdown(rows) + "\nn is 3.\n"
    assert found["core.tex"] == to_latex(rows)
    assert found["core.csv"].splitlines() == [
        "row,column,value,spread,n",
        "native,a,0.3333333333333333,0.25,3",
        "native,b,,,3",
        "native,c,7,,1",
    ]

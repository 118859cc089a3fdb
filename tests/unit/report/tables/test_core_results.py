"""The core table: means by hand, what is absent as absent, and one table in three forms."""

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.command import Make

from search_to_signal.report.results import Origin, Results
from search_to_signal.report.tables.cells import (
    Cell,
    Row,
    Table,
    count_above,
    count_directions,
    difference_cell,
    known_mean_cell,
    listed_cell,
    mean_cell,
    ratio_cell,
    to_csv,
    to_latex,
    to_markdown,
    total_cell,
    write_table,
)
from search_to_signal.report.tables.core import core_results, core_seeds


def values(*numbers: float | None) -> list[Cell]:
    return [Cell(number, formula="f", origins=(Origin(f"run{i}"),)) for i, number in enumerate(numbers)]


def test_means_deviations_and_counts_by_hand() -> None:
    cell = mean_cell(values(1.0, 2.0, 3.0))
    assert (cell.value, cell.spread, cell.n) == (2.0, 1.0, 3)
    assert cell.text() == "2.0000 ± 1.0000"
    assert [origin.path for origin in cell.origins] == ["run0", "run1", "run2"]
    cell = mean_cell(values(1.5))
    assert (cell.value, cell.spread, cell.n) == (1.5, None, 1)
    cell = known_mean_cell(values(1.0, None, 3.0))
    assert (cell.value, cell.n) == (2.0, 2)
    assert "2 of 3 seeds" in cell.formula
    assert total_cell(values(2, 3)).value == 5
    assert count_above(values(0.5, 0.0, -1.0)).value == 1
    assert [cell.value for cell in count_directions(values(0.5, 0.0, -1.0, -2.0)).values()] == [1, 1, 2]


def test_one_seed_is_one_seed(make_run: Make, tmp_path: Path) -> None:
    make_run(tmp_path / "native-s1", "native", 1)
    table = core_results(Results(tmp_path))
    assert "deviation over 1 seed; " in table.note
    assert all(cell.formula.startswith("mean over 1 seed of (") for cell in table.row("native").cells)
    combined = [combine(values(1.0)) for combine in (known_mean_cell, total_cell, ratio_cell, listed_cell)]
    assert [cell.formula for cell in combined] == [
        "mean over the 1 of 1 seed with a value of (f)",
        "sum over 1 seed of (f)",
        "mean numerator / mean denominator over 1 seed (D29) of (f)",
        "of 1 seed: f",
    ]
    assert mean_cell(values(1.0, 2.0)).formula == "mean over 2 seeds of (f)"


@pytest.mark.parametrize("numbers", [[None], [1.0, None]])
def test_a_missing_value_makes_a_dash(numbers: list[float | None]) -> None:
    assert mean_cell(values(*numbers)).text() == "–"
    assert difference_cell(*values(1.0, None)).value is None
    assert count_above(values(*numbers)).value is None


def test_core_results_by_hand(make_run: Make, tmp_path: Path) -> None:
    """Two seeds, of which one gains 0.1 and the other 0.2 in each of four groups."""
    for condition in ("frozen", "native"):
        make_run(tmp_path / f"{condition}-s1", condition, 1)
        make_run(tmp_path / f"{condition}-s2", condition, 2, shift=0.1 if condition == "native" else 0.0)
    heading, frozen, native = core_results(Results(tmp_path)).text_rows()
    assert heading == [
        "Condition",
        "Final best",
        "Trajectory AUC",
        "Valid (%)",
        "Valid-only perf.",
        "Improve yield (%)",
    ]
    # Valid scores of the frozen run: -27.0 improved, -27.4 copied, -29.26 novel, twelve in all.
    zero = " ± 0.0000"
    assert frozen[:3] == ["frozen", f"-6.6000{zero}", f"-6.7500{zero}"]
    assert frozen[3:] == ["75.00 ± 0.00", f"-6.9717{zero}", "25.00 ± 0.00"]
    # Finals -6.6 and -6.2: mean -6.4, deviation 0.4 / sqrt(2). AUCs -6.75 and -6.5.
    assert native[:3] == ["native", "-6.4000 ± 0.2828", "-6.6250 ± 0.1768"]


def test_seed_rows_hold_each_run(make_run: Make, tmp_path: Path) -> None:
    make_run(tmp_path / "cohort" / "native-s1", "native", 1)
    make_run(tmp_path / "cohort" / "native-s2", "native", 2)
    table = core_seeds(Results(tmp_path))
    assert [row.label for row in table.rows] == ["native-s1", "native-s2"]
    assert table.cell("native-s1", "Training tokens").value == 48
    assert table.cell("native-s2", "Frontier (%)").value == 25.0
    assert all(cell.spread is None and cell.n == 1 for row in table.rows for cell in row.cells)
    assert table.cell("native-s2", "Valid (%)").origins == (Origin("cohort/native-s2/completions.jsonl"),)


ROWS = [["Condition", "Valid (%)"], ["tail_weighted", "75.00 ± 1.00"], ["my.pkg:a|b", "–"]]
# What separates, quotes or ends a cell or a line, and some of everything else.
texts = st.text("ab,;\t\n\"'\x0b\x0c\x1c\x85\u2028 =-é€😀", max_size=8)


@given(st.lists(st.lists(texts, min_size=2, max_size=2), min_size=1, max_size=4))
@pytest.mark.slow
def test_csv_survives_any_text(rows: list[list[str]]) -> None:
    assert list(csv.reader(io.StringIO(to_csv(rows), newline=""))) == rows


def test_each_form_of_a_table() -> None:
    assert to_csv(ROWS) == "Condition,Valid (%)\ntail_weighted,75.00 ± 1.00\nmy.pkg:a|b,–\n"
    lines = to_markdown(ROWS).splitlines()
    assert lines[0] == "| Condition | Valid (%) |"
    assert lines[1] == "| :-- | --: |"
    assert lines[3] == r"| my.pkg:a\|b | – |"
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}
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

"""The core table: means and deviations by hand, and what is absent shown as absent."""

from collections.abc import Callable
from pathlib import Path

import pytest

from search_to_signal.report.results import Origin, Results
from search_to_signal.report.tables.cells import (
    Cell,
    count_above,
    count_directions,
    difference_cell,
    known_mean_cell,
    listed_cell,
    mean_cell,
    ratio_cell,
    total_cell,
)
from search_to_signal.report.tables.core import core_results, core_seeds

Make = Callable[..., Path]


def values(*numbers: float | None) -> list[Cell]:
    return [Cell(number, formula="f", origins=(Origin(f"run{i}"),)) for i, number in enumerate(numbers)]


def test_mean_and_sample_deviation() -> None:
    cell = mean_cell(values(1.0, 2.0, 3.0))
    assert (cell.value, cell.spread, cell.n) == (2.0, 1.0, 3)
    assert cell.text() == "2.0000 ± 1.0000"
    assert [origin.path for origin in cell.origins] == ["run0", "run1", "run2"]


def test_one_seed_has_no_deviation() -> None:
    cell = mean_cell(values(1.5))
    assert (cell.value, cell.spread, cell.n) == (1.5, None, 1)


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


def test_events_that_a_run_lacks_shrink_n() -> None:
    cell = known_mean_cell(values(1.0, None, 3.0))
    assert (cell.value, cell.n) == (2.0, 2)
    assert "2 of 3 seeds" in cell.formula


def test_counts_add_up() -> None:
    assert total_cell(values(2, 3)).value == 5
    assert count_above(values(0.5, 0.0, -1.0)).value == 1
    assert [cell.value for cell in count_directions(values(0.5, 0.0, -1.0, -2.0)).values()] == [1, 1, 2]


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

"""The core table: means and deviations by hand, and what is absent shown as absent."""

from collections.abc import Callable
from pathlib import Path

import pytest

from search_to_signal.analysis.core_table import Cell, cell, condition_rows, seed_rows, validity_gains
from search_to_signal.analysis.runs import load_runs

Make = Callable[..., Path]


def test_mean_and_sample_deviation() -> None:
    """Three values by hand: mean 2, sample (not population) deviation 1."""
    assert cell([1.0, 2.0, 3.0]) == Cell(2.0, 1.0, 3)
    assert cell([1.0, 2.0, 3.0]).text(2) == "2.00 ± 1.00"


def test_one_seed_has_no_deviation() -> None:
    """A single run has a value and no spread."""
    assert cell([1.5]) == Cell(1.5, None, 1)
    assert cell([1.5]).text(1) == "1.5"


@pytest.mark.parametrize("values", [[None], [1.0, None], []])
def test_a_missing_value_makes_a_dash(values: list[float | None]) -> None:
    """An aggregate over a missing value is missing, not an aggregate of the rest."""
    assert cell(values).text(2) == "–"


def test_condition_rows_by_hand(make_run: Make, tmp_path: Path) -> None:
    """Two seeds, of which one gains 0.1 and the other 0.2 in each of four groups."""
    make_run(tmp_path / "frozen-s1", "frozen", 1)
    make_run(tmp_path / "native-s1", "native", 1)
    make_run(tmp_path / "native-s2", "native", 2, shift=0.1)
    heading, frozen, native = condition_rows(load_runs(tmp_path))
    assert heading[:3] == ["Condition", "Seeds", "Final best"]
    # Valid scores of the frozen run: -27.0 improved, -27.4 copied, -29.26 novel, twelve in all.
    assert frozen == ["frozen", "1", "-6.6000", "-6.7500", "75.00", "-6.9717", "25.00"]
    # Finals -6.6 and -6.2: mean -6.4, deviation 0.4 / sqrt(2). AUCs -6.75 and -6.5.
    assert native[:5] == ["native", "2", "-6.4000 ± 0.2828", "-6.6250 ± 0.1768", "75.00 ± 0.00"]
    assert native[6] == "25.00 ± 0.00"


def test_seed_rows_hold_each_run(make_run: Make, tmp_path: Path) -> None:
    """One row per run with its groups and completions, and no deviation."""
    make_run(tmp_path / "native-s1", "native", 1)
    make_run(tmp_path / "native-s2", "native", 2)
    heading, *rows = seed_rows(load_runs(tmp_path))
    assert [row[:4] for row in rows] == [["native", "1", "4", "16"], ["native", "2", "4", "16"]]
    assert all(len(row) == len(heading) for row in rows)
    assert not any("±" in value for row in rows for value in row)


def test_gains_compare_equal_seeds(make_run: Make, tmp_path: Path) -> None:
    """Validity is compared with the frozen run of the same seed; without one there is no gain."""
    make_run(tmp_path / "frozen-s1", "frozen", 1)
    make_run(tmp_path / "native-s1", "native", 1)
    make_run(tmp_path / "native-s2", "native", 2)
    assert validity_gains(load_runs(tmp_path))[1:] == [["native", "1", "+0.00"]]

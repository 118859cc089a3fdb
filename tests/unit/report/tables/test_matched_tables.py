"""Tables of matched updates: every number is that of the records that it names."""

from pathlib import Path
from statistics import mean

import pytest
from tests.synthetic_updates import write_updates

from search_to_signal.base.errors import RecordError
from search_to_signal.layers.updates.checks import problems as update_problems
from search_to_signal.layers.updates.tables import (
    load_matched,
    matched_mappings,
    matched_page,
    matched_tables,
)
from search_to_signal.records.reader import read_records
from search_to_signal.records.updates import PAIRS, SETUP, UPDATES, PairRecord
from search_to_signal.report.results import NoTableError, Results
from search_to_signal.report.tables.cells import Table
from search_to_signal.run.texts import ParsedTexts

ALONE, ROW = "tsp tiny, one step: native – factorized", "tsp tiny, several steps: native – factorized"
MEANS, TOKENS = (f"Largest withheld difference ({what})" for what in ("completion means", "single tokens"))


def tables(directory: Path) -> dict[str, Table]:
    return {table.name: table for table in matched_tables(directory)}


def test_numbers_are_those_of_the_named_records(tmp_path: Path) -> None:
    made = tables(write_updates(tmp_path / "updates"))
    records = list(read_records(tmp_path / "updates" / PAIRS, PairRecord))
    for name, column in (
        ("matched_mappings", "Cosine"),
        ("matched_normalizers", "Cosine"),
        ("matched_cosines", "native – factorized"),
    ):
        for row in made[name].rows:
            if name == "matched_cosines" and not row.label.endswith("/cosine"):
                continue
            cell = made[name].cell(row.label, column)
            (origin,) = cell.origins
            assert origin.path == "updates/pairs.jsonl"
            assert origin.lines is not None
            assert cell.n == len(origin.lines) > 0
            values = [records[line - 1].cosine or 0.0 for line in origin.lines]
            assert cell.value == pytest.approx(mean(values))


def test_mappings_normalizers_and_moves_are_compared(tmp_path: Path) -> None:
    made = tables(write_updates(tmp_path / "updates"))
    table = made["matched_mappings"]
    assert [row.label for row in table.rows] == [ALONE, ROW]
    alone = table.cell(ALONE, "Cosine")
    assert (alone.text(), alone.n) == ("0.8500 ± 0.0707", 2)
    assert table.cell(ROW, "Cosine").text() == "0.7000"
    assert [table.cell(row, "Steps").value for row in (ALONE, ROW)] == [1, 2]
    table = made["matched_normalizers"]
    row = "tsp tiny, one step: rank – group"
    assert [
        table.cell(row, column).value for column in ("Comparisons", "Without credit", "By construction")
    ] == [4, 0, 4]
    table = made["matched_moves"]
    cell = table.cell("tsp tiny, one step: native", "Change")
    assert cell.value == pytest.approx(0.75)
    assert cell.origins[0].path == "updates/updates.jsonl"
    assert cell.origins[0].lines == (1, 5)
    assert table.cell("tsp tiny, several steps: native", "Training tokens").text() == "300"
    other = "tsp tiny, several steps: rank – group"
    for name, row in (("matched_mappings", ROW), ("matched_normalizers", other)):
        found = [made[name].cell(row, column).value for column in (MEANS, TOKENS)]
        assert found == pytest.approx([0.009, 0.6])
    moves = made["matched_moves"]
    found = [
        moves.cell(ROW.split(" – ")[0], f"Largest withheld change ({what})").value
        for what in ("completion means", "single tokens")
    ]
    assert found == [0.002, 0.4]
    for table in made.values():
        unclear = [c for c in table.columns if "withheld" in c.lower() and "(" not in c]
        assert not unclear


def test_what_construction_or_credit_leave_out_is_counted(tmp_path: Path) -> None:
    """A cosine that is 1 because credit is equal enters the first mean, not the second, and is counted."""
    table = tables(write_updates(tmp_path / "updates", second="equal"))["matched_cosines"]
    place, column = "tsp tiny, one step: group", "native – factorized"
    found = {row.label.removeprefix(f"{place}/"): table.cell(row.label, column) for row in table.rows}
    assert found["cosine"].value == pytest.approx((0.9 + 1.0) / 2)
    assert found["cosine, not by construction"].value == pytest.approx(0.9)
    assert [found[name].value for name in ("comparisons", "without credit", "by construction")] == [2, 0, 1]
    mapped = tables(tmp_path / "updates")["matched_mappings"]
    assert mapped.cell(ALONE, "Cosine, not by construction").value == pytest.approx(0.9)
    table = tables(write_updates(tmp_path / "lost", second="without_credit"))["matched_mappings"]
    assert table.cell(ALONE, "Without credit").value == 1
    assert table.cell(ALONE, "Cosine").text() == "0.9000"
    assert table.cell(ALONE, MEANS).text() == "0.00300"
    assert table.cell(ALONE, TOKENS).text() == "0.20000"
    file = write_updates(tmp_path / "older") / UPDATES
    file.write_bytes(file.read_bytes().replace(b',"withheld_token_max_change":0.4', b""))
    table = tables(tmp_path / "older")["matched_moves"]
    row = "tsp tiny, several steps: native"
    assert table.cell(row, "Largest withheld change (single tokens)").value is None
    assert table.cell(row, "Largest withheld change (completion means)").value == 0.002


def test_a_smoke_run_says_so(tmp_path: Path) -> None:
    assert "no evidence" in matched_page(write_updates(tmp_path / "smoke", purpose="smoke"))
    page = matched_page(write_updates(tmp_path / "formal"))
    assert "no evidence" not in page
    assert page.count("\n## ") == 4


def test_an_empty_layer_is_refused(tmp_path: Path) -> None:
    for name in (UPDATES, PAIRS):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(RecordError, match="is empty"):
        load_matched(tmp_path)


def test_a_layer_that_has_not_ended_gives_no_table(tmp_path: Path) -> None:
    (write_updates(tmp_path / "updates") / SETUP).unlink()
    with pytest.raises(NoTableError, match="layer updates has begun and not ended"):
        matched_mappings(Results(tmp_path))
    (problem,) = update_problems(tmp_path, ParsedTexts())
    assert "there is no setup.json" in problem

"""Tables of matched updates: every number is that of the records that it names."""

from pathlib import Path
from statistics import mean

import pytest

from search_to_signal.analysis.cells import Table
from search_to_signal.analysis.matched import load_matched, matched_page, matched_tables
from search_to_signal.errors import RecordError
from search_to_signal.records.reader import read_records
from search_to_signal.records.updates import (
    PAIRS,
    UPDATES,
    FixedInputs,
    PairRecord,
    Relation,
    UpdateRecord,
    Variant,
)
from search_to_signal.records.writer import RecordWriter

FIXED = FixedInputs(initial_adapter="a", tokens="t", masks="m", reference="r")
STEPS: dict[Variant, list[tuple[int, ...]]] = {"fresh": [(1,), (2,)], "history": [(1, 2)]}


def update(
    variant: Variant, steps: tuple[int, ...], mapping: str, normalizer: str, purpose: str
) -> UpdateRecord:
    """One update whose numbers follow from its place."""
    return UpdateRecord(
        run="cohort/frozen-s42",
        purpose=purpose,
        problem="tsp",
        model="tiny",
        variant=variant,
        steps=steps,
        mapping=mapping,
        normalizer=normalizer,
        fixed=FIXED,
        optimizer_steps=len(steps),
        training_tokens=100 * sum(steps),
        advantages=((0.0,),) * len(steps),
        grad_norms=(1.0,) * len(steps),
        adapter_sha256="b",
        delta_norm=0.5 * sum(steps),
        product_norm=0.25,
        withheld_mean_change=-0.001,
        withheld_max_change=0.002,
    )


def pair(
    variant: Variant,
    steps: tuple[int, ...],
    first: tuple[str, str],
    second: tuple[str, str],
    relation: Relation,
) -> PairRecord:
    """One comparison whose cosine follows from its steps."""
    void = relation == "without_credit"
    return PairRecord(
        run="cohort/frozen-s42",
        problem="tsp",
        model="tiny",
        variant=variant,
        steps=steps,
        first=first,
        second=second,
        relation=relation,
        by_construction=relation == "equal",
        advantage_difference=0.5,
        cosine=None if void else 1.0 - 0.1 * steps[0],
        product_cosine=None if void else 0.7,
        norm_ratio=None if void else 1.1,
        sign_agreement=None if void else 0.9,
        withheld_max_difference=0.003 * steps[0],
        withheld_token_max_difference=0.01,
    )


def write(directory: Path, purpose: str = "formal", second: Relation = "different") -> Path:
    """Two mappings and two normalizers, each group alone and both in a row."""
    directory.mkdir()
    with RecordWriter(directory / UPDATES) as updates, RecordWriter(directory / PAIRS) as pairs:
        for variant, all_steps in STEPS.items():
            for steps in all_steps:
                for mapping in ("native", "factorized"):
                    for normalizer in ("group", "rank"):
                        updates.write(update(variant, steps, mapping, normalizer, purpose))
                related: Relation = second if steps == (2,) else "different"
                for name in ("group", "rank"):
                    pairs.write(pair(variant, steps, ("native", name), ("factorized", name), related))
                for name in ("native", "factorized"):
                    pairs.write(pair(variant, steps, (name, "rank"), (name, "group"), "equal"))
    return directory


def tables(directory: Path) -> dict[str, Table]:
    """The layer's tables by name."""
    return {table.name: table for table in matched_tables(directory)}


def test_numbers_are_those_of_the_named_records(tmp_path: Path) -> None:
    """Every number of every pair table is the mean over exactly the lines that its cell points to."""
    made = tables(write(tmp_path / "updates"))
    records = list(read_records(tmp_path / "updates" / PAIRS, PairRecord))
    for name, column in (
        ("matched_mappings", "Cosine"),
        ("matched_normalizers", "Cosine"),
        ("matched_cosines", "native – factorized"),
    ):
        for row in made[name].rows:
            cell = made[name].cell(row.label, column)
            (origin,) = cell.origins
            assert origin.path == "updates/pairs.jsonl"
            assert origin.lines is not None
            assert cell.n == len(origin.lines) > 0
            values = [records[line - 1].cosine or 0.0 for line in origin.lines]
            assert cell.value == pytest.approx(mean(values))


def test_mappings_are_compared_under_the_first_normalizer(tmp_path: Path) -> None:
    """One row per variant and two mappings; groups alone are averaged, with their deviation."""
    table = tables(write(tmp_path / "updates"))["matched_mappings"]
    assert [row.label for row in table.rows] == [
        "tsp tiny, one step: native – factorized",
        "tsp tiny, several steps: native – factorized",
    ]
    alone = table.cell("tsp tiny, one step: native – factorized", "Cosine")
    assert (alone.text(), alone.n) == ("0.8500 ± 0.0707", 2)
    assert table.cell("tsp tiny, several steps: native – factorized", "Cosine").text() == "0.9000"
    assert (
        table.cell("tsp tiny, one step: native – factorized", "Withheld difference")
        .text()
        .startswith("0.00450")
    )


def test_normalizers_are_compared_over_all_mappings(tmp_path: Path) -> None:
    """A normalizer's row counts the comparisons of every mapping, and how many hold by construction."""
    table = tables(write(tmp_path / "updates"))["matched_normalizers"]
    row = "tsp tiny, one step: rank – group"
    assert [
        table.cell(row, column).value for column in ("Comparisons", "Without credit", "By construction")
    ] == [4, 0, 4]


def test_groups_without_credit_are_counted_and_not_averaged(tmp_path: Path) -> None:
    """A comparison without credit has no numbers, not even those that its records hold."""
    table = tables(write(tmp_path / "updates", second="without_credit"))["matched_mappings"]
    row = "tsp tiny, one step: native – factorized"
    assert table.cell(row, "Without credit").value == 1
    assert table.cell(row, "Cosine").text() == "0.9000"
    assert table.cell(row, "Withheld difference").text() == "0.00300"


def test_moves_are_those_of_the_updates(tmp_path: Path) -> None:
    """Distances are of single updates under the first normalizer, tokens whole numbers."""
    table = tables(write(tmp_path / "updates"))["matched_moves"]
    cell = table.cell("tsp tiny, one step: native", "Change")
    assert cell.value == pytest.approx(0.75)
    assert cell.origins[0].path == "updates/updates.jsonl"
    assert cell.origins[0].lines == (1, 5)
    assert table.cell("tsp tiny, several steps: native", "Training tokens").text() == "300"


def test_a_smoke_run_says_so(tmp_path: Path) -> None:
    """The page of a smoke run says that it is no evidence, that of a formal one does not."""
    assert "no evidence" in matched_page(write(tmp_path / "smoke", purpose="smoke"))
    page = matched_page(write(tmp_path / "formal"))
    assert "no evidence" not in page
    assert page.count("\n## ") == 4


def test_an_empty_layer_is_refused(tmp_path: Path) -> None:
    """Files without a record are an error, not an empty table."""
    for name in (UPDATES, PAIRS):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(RecordError, match="is empty"):
        load_matched(tmp_path)

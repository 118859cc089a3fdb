"""Tables and held-out evaluation of a real tiny cohort."""

import shutil
from pathlib import Path

import msgspec
import pytest

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.base.progress import PlainProgress
from search_to_signal.layers.heldout.layer import heldout
from search_to_signal.layers.settings import HeldoutSettings
from search_to_signal.report.results import Results
from search_to_signal.report.tables.catalogue import build, catalogue

SETTINGS = HeldoutSettings(instances=2, timeout_s=60.0, behaviour_instances=2)


@pytest.fixture(scope="module")
def results(cohort: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results directory with the tiny cohort and its held-out evaluation."""
    root = tmp_path_factory.mktemp("results")
    shutil.copytree(cohort, root / "cohort")
    heldout(root, SETTINGS, PlainProgress())
    return root


def test_a_real_cohort_has_its_tables(results: Path) -> None:
    """Every table of the cohort and of the held-out layer is there, and each is marked as smoke."""
    found = catalogue(Results(results))
    names = {table.name for table in found.tables}
    assert {f"smoke_{name}" for name in ("core_results", "credit", "heldout", "behaviours")} <= names
    assert {"recurrence", "intervals", "restart", "api"} <= set(found.absent)
    tokens = build(Results(results), "core_seeds").cell("native-s42", "Training tokens").value
    assert isinstance(tokens, int)
    assert tokens > 0


def test_held_out_scores_are_gaps_to_references(results: Path) -> None:
    """A constructive heuristic is longer than the reference tours, on every size."""
    table = build(Results(results), "heldout")
    for split in ("heldout_50", "heldout_100", "heldout_200"):
        gap = table.cell("frozen-s42", f"Gap (%) {split}").value
        assert isinstance(gap, float)
        assert 0.0 < gap < 200.0


def test_an_evaluation_is_never_written_over(results: Path) -> None:
    """The same evaluation is kept, another one into the same place is refused; the first stays as it was."""
    before = (results / "heldout" / "scores.jsonl").read_bytes()
    heldout(results, SETTINGS, PlainProgress())
    with pytest.raises(RunDirectoryError):
        heldout(results, msgspec.structs.replace(SETTINGS, instances=3), PlainProgress())
    assert (results / "heldout" / "scores.jsonl").read_bytes() == before


def test_equal_cohorts_have_equal_evaluations(results: Path, cohort: Path, tmp_path: Path) -> None:
    """Scores and behaviours are the same bytes when evaluated again."""
    shutil.copytree(cohort, tmp_path / "cohort")
    again = heldout(tmp_path, SETTINGS, PlainProgress())
    for name in ("scores.jsonl", "behaviours.jsonl"):
        assert (again / name).read_bytes() == (results / "heldout" / name).read_bytes()

"""A run's adapter without one class of its credit, and how each answers prompts of another seed."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cohorts import run_cohort
from tests.integration.conftest import tiny_profile

from search_to_signal.base.progress import PlainProgress
from search_to_signal.cli import main
from search_to_signal.records.manifest import read_manifest
from search_to_signal.run.left_out import KINDS

ALL = "+".join(KINDS)


@pytest.fixture(scope="module")
def two_seeds(cohort: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny cohort with a frozen run of another seed beside it."""
    place = tmp_path_factory.mktemp("seeds")
    other = msgspec.structs.replace(tiny_profile(), conditions=("frozen",), seeds=(7,))
    run_cohort(other, place / "other", PlainProgress())
    directory = Path(shutil.copytree(cohort, place / "both"))
    shutil.copytree(place / "other" / "frozen-s7", directory / "frozen-s7")
    return directory


def _retrain(directory: Path, out: Path, *options: object) -> int:
    return main(["retrain", str(directory), "native-s42", "--out", str(out), *map(str, options)])


def _rows(table: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    return {
        row["label"]: dict(zip(table["columns"], [cell["value"] for cell in row["cells"]], strict=True))
        for row in table["rows"]
    }


def test_credit_is_left_out_down_to_the_weights(
    two_seeds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All credit gives the recorded adapter; without any it stays the base model's behaviour."""
    sizes = ("--prompts", 1, "--completions", 1)
    assert _retrain(two_seeds, tmp_path / "out", "--without", ALL, *sizes) == 0
    result: dict[str, Any] = json.loads((tmp_path / "out" / "taught.json").read_text())
    facts, levels = result["runs"]["native-s42"], _rows(result["tables"]["levels"])
    assert facts["as_recorded"]
    assert (
        facts["adapters"]["without-nothing"] == read_manifest(two_seeds / "native-s42").final_adapter_sha256
    )
    assert facts["bank"] == ["frozen-s7"]

    initial, trained = levels["native-s42/initial"], levels["native-s42/without-nothing"]
    assert levels[f"native-s42/without-{ALL}"] == initial
    assert trained["Nats per token of failed"] != initial["Nats per token of failed"]
    bought = _rows(result["tables"]["bought"])
    assert bought[f"native-s42/{ALL}"].pop("Positive credit (%)") == 100.0
    assert bought["native-s42/all credit"].pop("Positive credit (%)") is None
    assert bought[f"native-s42/{ALL}"] == bought["native-s42/all credit"]

    capsys.readouterr()
    assert _retrain(two_seeds, tmp_path / "out", "--without", ALL, "--prompts", 2) == 2
    assert "holds something else: give another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--without", "copy"), "no class of credit 'copy'"),
        (("--by-class",), "no run of another seed beside it"),
        (("--by-class", "--prompts", "0"), "--prompts takes a number of at least 1"),
    ],
)
def test_what_cannot_be_left_out_is_one_line(
    cohort: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    """Before anything is trained."""
    assert _retrain(cohort, tmp_path / "out", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

"""Two runs of one configuration: what differs first is named, down to the token, the score and the weight."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.forging import edit_line, edit_manifest

from search_to_signal.records.manifest import read_manifest
from search_to_signal.verify.rerun import facts_that_differ, first_difference

Line = dict[str, Any]


@pytest.fixture
def runs(make_run: Callable[..., Path], tmp_path: Path) -> tuple[Path, Path]:
    """A trained run of four groups, and a copy of it to change."""
    run = make_run(tmp_path / "recorded" / "native-s1", "native", 1)
    return run, Path(shutil.copytree(run, tmp_path / "again" / "native-s1"))


def test_equal_runs_have_no_difference_and_environments_are_shown(runs: tuple[Path, Path]) -> None:
    recorded, again = runs
    (again / "timings.jsonl").write_text("")
    assert first_difference(recorded, again) is None
    assert facts_that_differ(read_manifest(recorded), read_manifest(again)) == {}

    def elsewhere(manifest: Line) -> None:
        manifest["environment"]["cpu"] = "Other"
        manifest["environment"]["cpu_flags_simd"].append("avx9")

    edit_manifest(again, elsewhere)
    facts = facts_that_differ(read_manifest(recorded), read_manifest(again))
    assert set(facts) == {"environment.cpu", "environment.cpu_flags_simd"}
    assert facts["environment.cpu"][1] == "Other"
    assert facts["environment.cpu_flags_simd"] == ("also nothing", "also avx9")


def _token(line: Line) -> None:
    line["completion_ids"][1][2] = 99


def _score(line: Line) -> None:
    line["score"] = -3.0


def _adapter(line: Line) -> None:
    line["adapter_sha256"] = "0" * 64


@pytest.mark.parametrize(
    ("file", "number", "change", "expected"),
    [
        ("generations.jsonl", 2, _token, "group 2, generations.jsonl: completion_ids[1][2]: 3 | 99"),
        (
            "completions.jsonl",
            8,
            _score,
            "group 2, completions.jsonl, completion 0: score: -6.700000000000001 | -3.0",
        ),
    ],
)
def test_one_edit_is_named(
    runs: tuple[Path, Path], file: str, number: int, change: Callable[[Line], None], expected: str
) -> None:
    recorded, again = runs
    edit_line(again / file, number, change)
    found = first_difference(recorded, again)
    assert found is not None
    assert f"{found.where}: {found.recorded} | {found.actual}" == expected
    assert found.equal == 2


def test_the_earliest_group_comes_first(runs: tuple[Path, Path]) -> None:
    """A changed adapter of group 0 is named before a changed token of group 3, whatever their files."""
    recorded, again = runs
    edit_line(again / "generations.jsonl", 3, _token)
    edit_line(again / "steps.jsonl", 0, _adapter)
    found = first_difference(recorded, again)
    assert found is not None
    assert (found.where, found.equal) == ("group 0, steps.jsonl: adapter_sha256", 0)


def test_what_differs_besides_records_is_named(runs: tuple[Path, Path]) -> None:
    recorded, again = runs
    path = again / "adapter" / "adapter_model.safetensors"
    tensors = load_file(path)
    tensors["lora"] = np.array([[1.0, 1.5]], np.float32)
    save_file(tensors, path)
    found = first_difference(recorded, again)
    assert found is not None
    assert (found.where, found.recorded, found.actual) == ("final adapter, lora, weight 1", "1.0", "1.5")
    assert "1 of 2 weights of it differ, by at most 0.5" in found.remark
    for name in ("generations.jsonl", "completions.jsonl", "steps.jsonl"):
        lines = (again / name).read_bytes().splitlines(keepends=True)
        size = 4 if name == "completions.jsonl" else 1
        (again / name).write_bytes(b"".join(lines[: 3 * size]))
    found = first_difference(recorded, again)
    assert found is not None
    assert (found.where, found.recorded, found.actual) == ("group 3, generations.jsonl: records", "1", "0")


def test_a_limit_is_remarked(runs: tuple[Path, Path]) -> None:
    recorded, again = runs
    edit_line(again / "completions.jsonl", 5, lambda line: line.update(evaluation="timeout"))
    found = first_difference(recorded, again)
    assert found is not None
    assert "another speed" in found.remark

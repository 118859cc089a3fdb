"""Two runs of one configuration, down to token, score and weight; distances of numbers to recorded tokens."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tests.forging import edit_line, edit_manifest

from search_to_signal.learner.adapter import attach_adapter, save_adapter
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.records.manifest import read_manifest
from search_to_signal.run.config import ADAPTER
from search_to_signal.verify.rerun import facts_that_differ, first_difference
from search_to_signal.verify.token_draws import BOUNDS, Tally, distance_to_stored, distances

pytestmark = pytest.mark.slow  # it loads the largest libraries

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


def test_a_number_within_its_interval_is_drawn() -> None:
    below, above = np.full(4, 0.25), np.full(4, 0.5)
    found = distances(below, above, np.array([0.25, 0.4999, 0.5, 0.75]))
    assert found.drawn.tolist() == [True, True, False, False]
    assert found.log_odds[[0, 1, 2]].tolist() == [0.0, 0.0, 0.0]
    assert found.log_odds[3] == pytest.approx(np.log(3.0))
    bound = BOUNDS["bfloat16"]
    one = Tally(bound)
    assert one.add(distances(np.full(3, 0.2), np.full(3, 0.4), np.array([0.3, 0.9, 0.45]))) == [1]
    assert (one.tokens, one.unequal, one.open_places) == (3, 2, 2 + (np.log(0.4 / 0.6 / (0.3 / 0.7)) < bound))
    many = Tally(bound)
    assert many.add(distances(np.full(50, 0.2), np.full(50, 0.4), np.full(50, 0.45))) == []
    assert many.together > many.allowed
    nothing = np.full(2, np.nan)
    tally = Tally(BOUNDS["bfloat16"])
    assert tally.add(distances(nothing, nothing, np.array([0.2, 0.7]))) == [0, 1]
    assert tally.together > tally.allowed


def _intervals(logits: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    above = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    above[:, -1] = 1.0
    below = np.pad(above, ((0, 0), (1, 0)))[:, :-1]
    rows = np.arange(len(tokens))
    return below[rows, tokens], above[rows, tokens]


def test_logits_that_move_by_e_move_no_token_further_than_2_e() -> None:
    """Drawn by moved logits and read by others: within 2 e for every token, and not within 0.5 e for all."""
    rng, e = np.random.default_rng(0), 0.1
    logits = rng.normal(0.0, 2.0, (20_000, 30))
    moved = logits + rng.uniform(-e, e, logits.shape)
    number = rng.random(len(logits))
    shares = np.exp(moved) / np.exp(moved).sum(axis=1, keepdims=True)
    tokens = np.minimum((shares.cumsum(axis=1) <= number[:, None]).sum(axis=1), 29)
    found = distances(*_intervals(logits, tokens), number)
    assert (~found.drawn).sum() > 100
    assert 0.5 * e < found.log_odds.max() <= 2 * e


def test_an_adapter_that_does_nothing_is_as_far_as_can_be_from_one_that_does_something(
    new_model: Callable[..., Any], tmp_path: Path
) -> None:
    """Two that do nothing have no distance, nor has one that is not stored."""
    model = attach_adapter(new_model(), LearnerSettings(lora_rank=2, lora_alpha=4), 3)
    sampled: Any = SimpleNamespace(directory=tmp_path)
    assert distance_to_stored(sampled, model) is None
    save_adapter(model, tmp_path / ADAPTER)
    assert distance_to_stored(sampled, model) is None
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(0.1 if "lora_B" in name else 0.0)
    assert distance_to_stored(sampled, model) == math.inf

"""What a profile asks of a card is known before its first run, and said in one line."""

import json
from pathlib import Path

import pytest
from tests.command import Patch

from search_to_signal.base.package_data import MODELS
from search_to_signal.cli import main
from search_to_signal.models.settings import ModelSettings
from search_to_signal.records.provenance import visible_cards
from search_to_signal.run.machine_check import required_mib
from search_to_signal.run.profile import load_profile

PROFILE = f"""
purpose = "smoke"
problem = "tsp"
split = "train"
conditions = ["frozen", "native"]
seeds = [1]
groups = 20
jobs = 8
idea_end = "any_fence"

[generation]
max_prompt_tokens = 1024
max_completion_tokens = 320

[model]
name = "{MODELS / "qwen2-2.1m"}"
device = "cuda"
dtype = "bfloat16"
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile on a card."""
    path = tmp_path / "mine.toml"
    path.write_text(PROFILE)
    return path


def run(profile: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Run it, and have it refused; returns the one line."""
    out = profile.parent / "out"
    assert main(["run", "--profile", str(profile), "--out", str(out)]) != 0
    assert not out.exists()
    (line,) = capsys.readouterr().err.splitlines()
    return line


def with_card(tmp_path: Path, monkeypatch: Patch, free_mib: int) -> None:
    """Stand in for the driver's tool, which says the same of every card that it is asked for."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho GPU-a, 0, {free_mib}, 81559\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))


def test_the_estimate_covers_what_long_runs_took(tmp_path: Path) -> None:
    """The largest measured run of the 1.5B (in the notebook) fits, and three fit on a card of 80 GB."""
    sizes = {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
    }
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    profile = load_profile("pretrained-1.5b")
    assert isinstance(profile.model, ModelSettings)
    mib = required_mib(tmp_path, profile.model.loading, profile.generation, profile.learner)
    assert 15.33 * 1024 < mib < 80_000 / profile.jobs


def test_a_machine_without_a_card_is_told(
    profile: Path, tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No run begins, and the profile that needs no card is named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    line = run(profile, capsys)
    assert "asks for an NVIDIA card" in line
    assert "embedded" in line


def test_as_many_jobs_as_the_card_holds_are_named(
    profile: Path, tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line says how much is needed, how much there is, and which ``jobs`` would fit."""
    with_card(tmp_path, monkeypatch, 5000)
    line = run(profile, capsys)
    assert "which has 5,000 MiB free: set jobs = " in line
    fitting = int(line.rpartition("jobs = ")[2])
    assert 0 < fitting < 8


def test_a_card_that_holds_no_run_is_told(
    profile: Path, tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_card(tmp_path, monkeypatch, 100)
    assert "use another card" in run(profile, capsys)


def with_two_cards(tmp_path: Path, monkeypatch: Patch) -> None:
    """Stand in for the driver's tool: card 0 has 5,000 MiB free, card 1 has 100."""
    with_card(tmp_path, monkeypatch, 100)
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\n[ "$2" = 1 ] || echo GPU-a, 0, 5000, 81559\n[ "$2" = 0 ] || echo GPU-b, 1, 100, 81559\n'
    )


def test_the_least_free_memory_of_the_visible_cards_counts(
    profile: Path, tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CUDA_VISIBLE_DEVICES decides whose memory is asked for; without it all cards are."""
    with_two_cards(tmp_path, monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert "which has 5,000 MiB free" in run(profile, capsys)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert "which has 100 MiB free" in run(profile, capsys)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "which has 100 MiB free" in run(profile, capsys)


def test_cards_keep_the_names_that_the_variable_has_for_them(tmp_path: Path, monkeypatch: Patch) -> None:
    """A run is given one of them in the same variable; unnamed cards have their UUID. All have a number."""
    with_two_cards(tmp_path, monkeypatch)
    assert visible_cards() == [("GPU-a", "0", 5000, 81559), ("GPU-b", "1", 100, 81559)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert visible_cards() == [("1", "1", 100, 81559), ("0", "0", 5000, 81559)]


def test_several_cards_share_the_jobs(
    profile: Path, tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight runs on two cards are four on each, and what fits is said of both together."""
    with_card(tmp_path, monkeypatch, 5000)
    alone = run(profile, capsys)
    assert alone.startswith("s2s: error: 8 runs")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    both = run(profile, capsys)
    assert both.startswith("s2s: error: 4 runs")
    assert int(both.rpartition("jobs = ")[2]) == 2 * int(alone.rpartition("jobs = ")[2])

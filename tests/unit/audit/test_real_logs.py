"""Logs that TRL's stock trainers wrote (tests/proofs/trl_logs.py), one file of each, audited."""

from pathlib import Path

import numpy as np
import pytest
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal import audit
from search_to_signal.cli import main

REAL = Path(__file__).parent / "real"
TWO = audit.ReadOptions(components=("noted", "vowels"))
WEIGHED = audit.ReadOptions(components=("length", "vowels"), weights={"length": 0.5, "vowels": 2.0})


@pytest.mark.parametrize(
    ("log", "entry", "other", "options"),
    [
        ("trl-1.16.0-batch-2", "trl-grpo-batch", "trl-grpo", None),
        ("trl-1.16.0-gdpo", "trl-gdpo", "trl-grpo", None),
        ("trl-1.16.0-no-reward-for-some", "trl-grpo", "trl-grpo-none", None),
        ("trl-1.16.0-columns-of-its-own", "trl-grpo", "trl-grpo-none", TWO),
        ("trl-1.16.0-columns-of-its-own", "trl-grpo", "trl-grpo-none", None),
        ("trl-1.16.0-weights", "trl-grpo", "verl-grpo", WEIGHED),
        ("trl-1.16.0-weights", "trl-grpo", "verl-grpo", None),
        ("trl-1.16.0-conversation", "trl-grpo", "trl-grpo-batch", None),
    ],
)
def test_the_trainers_formula_is_named(
    log: str, entry: str, other: str, options: audit.ReadOptions | None
) -> None:
    found = audit.audit(audit.read(REAL / log, options=options))
    assert found.completions == 16
    assert entry in found.explaining
    assert other not in found.explaining


def test_weights_that_the_log_leaves_out_are_found() -> None:
    (groups,) = audit.read(REAL / "trl-1.16.0-weights")
    assert dict(groups.weights) == {"length": 0.5, "vowels": 2.0}


def test_a_reward_that_was_taken_wrong_is_a_way_out(tmp_path: Path) -> None:
    logs.trl(tmp_path, length=[0.0, 2.0, 0.0, 3.0], advantage=[0.5, 0.25, -0.5, 1.0])
    found = audit.audit(audit.read(tmp_path))
    (line,) = [line for line in audit.conclusions(found) if line.startswith("No normalizer")]
    assert "--component" in line
    named = audit.audit(audit.of_arrays([0.0, 1.0], [2], advantage=[0.3, 0.9]))
    assert not any("--component" in line for line in audit.conclusions(named))


def test_components_are_named_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With their weights, which the table of knobs shows again; what TRL logged comes out bit for bit."""
    log = str(REAL / "trl-1.16.0-weights")
    assert main(["audit", log, "--component", "length=0.5", "--component", "vowels=2"]) == 0
    out = capsys.readouterr().out
    assert "bit for bit by trl-grpo" in out
    assert [line.split()[2] for line in out.splitlines() if line.startswith("component ")] == ["0.5", "2"]


@pytest.mark.parametrize("given", ["length=x", "=2", "length=nan", ""])
def test_a_component_without_name_or_weight_is_refused(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(REAL / "trl-1.16.0-weights"), "--component", given]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_components_are_refused_where_the_log_says_the_reward(tmp_path: Path, printed: Printed) -> None:
    """A name that would be left unused is an error."""
    assert "components are named only for trl, trl-wandb, ms-swift, " in printed(
        logs.verl_v1(tmp_path), "--component", "score", code=2
    )


def test_the_table_of_0_15_1_has_the_weighted_sum() -> None:
    (groups,) = audit.read(REAL / "trl-0.15.1-weights")
    assert groups.sizes.tolist() == [4] * 4
    assert np.isfinite(groups.reward).all()
    assert np.isnan(groups.advantage).all()
    assert audit.audit(groups, usual="trl-0.15.1-grpo").normalizer == "trl-0.15.1-grpo"

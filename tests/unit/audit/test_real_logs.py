"""Logs that TRL's trainers wrote (tests/proofs/trl_logs.py), and logs rebuilt from public reports."""

from pathlib import Path

import numpy as np
import pytest
from tests.command import Command
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal import audit

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


def test_weights_that_the_log_leaves_out_are_found(s2s: Command) -> None:
    (groups,) = audit.read(REAL / "trl-1.16.0-weights")
    assert dict(groups.weights) == {"length": 0.5, "vowels": 2.0}
    (groups,) = audit.read(REAL / "trl-0.15.1-weights")
    assert groups.sizes.tolist() == [4] * 4
    assert np.isfinite(groups.reward).all()
    assert np.isnan(groups.advantage).all()
    assert audit.audit(groups, usual="trl-0.15.1-grpo").normalizer == "trl-0.15.1-grpo"
    # With their weights, which the table of knobs shows again; what TRL logged comes out bit for bit.
    log = str(REAL / "trl-1.16.0-weights")
    out = s2s("audit", log, "--component", "length=0.5", "--component", "vowels=2").out
    assert "bit for bit by trl-grpo" in out
    assert [line.split()[2] for line in out.splitlines() if line.startswith("component ")] == ["0.5", "2"]


def test_a_reward_that_was_taken_wrong_is_a_way_out(tmp_path: Path) -> None:
    logs.trl(tmp_path, length=[0.0, 2.0, 0.0, 3.0], advantage=[0.5, 0.25, -0.5, 1.0])
    found = audit.audit(audit.read(tmp_path))
    (line,) = [line for line in audit.conclusions(found) if line.startswith("No normalizer")]
    assert "--component" in line
    named = audit.audit(audit.of_arrays([0.0, 1.0], [2], advantage=[0.3, 0.9]))
    assert not any("--component" in line for line in audit.conclusions(named))


@pytest.mark.parametrize("given", ["length=x", "=2", "length=nan", ""])
def test_a_component_without_name_or_weight_is_refused(given: str, s2s: Command) -> None:
    said = s2s("audit", REAL / "trl-1.16.0-weights", "--component", given, code=2)
    assert said.err.count("\n") == 1


def test_components_are_refused_where_the_log_says_the_reward(tmp_path: Path, printed: Printed) -> None:
    """A name that would be left unused is an error."""
    assert "components are named only for trl, trl-wandb, ms-swift, " in printed(
        logs.verl_v1(tmp_path), "--component", "score", code=2
    )


def line_with(found: audit.Findings, words: str) -> str:
    """The one verdict with these words."""
    (line,) = [line for line in audit.conclusions(found) if words in line]
    return line


def test_uneven_groups_over_the_whole_batch(tmp_path: Path) -> None:
    """slime #1414 and #2230: of groups of 4, 3 and 4, the one with three 5.0 gets an advantage."""
    rewards = [1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0, 0.0, 1.0, 0.0, 1.0]
    places = [0] * 4 + [1] * 3 + [2] * 4
    samples = [
        logs.sample(number, step=9, reward=reward, group_index=group, rollout_id=number)
        for number, (reward, group) in enumerate(zip(rewards, places, strict=True))
    ]
    logs.jsonl(tmp_path / "9.jsonl", samples)
    found = audit.audit(audit.read(tmp_path), usual="slime-grpo")
    line = line_with(found, "Groups are uneven: 3, 4")
    assert "slime-grpo then takes the whole step as one group" in line
    assert ":5, step 9" in line_with(found, "equal rewards and still get an advantage")


def test_a_timeout_scored_as_success(tmp_path: Path) -> None:
    """OpenEvolve #446: the mean of error 0 and timeout true was 0.5 until 411fb59, more than the parent's."""
    found = audit.audit(audit.read(logs.openevolve(tmp_path)))
    assert line_with(found, "are better than").startswith("1 of 2 candidates")
    (said,) = [one for one in found.assumptions if one.key == "earlier_fitness"]
    assert list(said.counts.values()) == [1, 0, 1, 2]
    assert found.statuses == {"ok": 1, "timeout": 1}


def test_an_entry_is_found_among_all_and_a_difference_is_placed() -> None:
    """Advantages of NeMo-RL's leave-one-out name it alone; one changed number is found by its row."""
    from search_to_signal.audit.agreement import apply, step_batches
    from search_to_signal.audit.atlas import get_entry

    rewards = np.random.default_rng(1).random(24)
    plain = audit.of_arrays(rewards, [8, 8, 8], step=[1, 1, 2])
    given = apply(get_entry("nemo-grpo"), step_batches(plain))
    found = audit.audit(audit.of_arrays(rewards, [8, 8, 8], step=[1, 1, 2], advantage=given))
    assert found.explaining == ("nemo-grpo",)
    given[20] += 0.25
    wrong = audit.audit(audit.of_arrays(rewards, [8, 8, 8], step=[1, 1, 2], advantage=given))
    assert wrong.explaining == ()
    assert wrong.nearest == "nemo-grpo"
    first = wrong.agreements["nemo-grpo"].first
    assert first is not None
    assert (first.place.step, first.place.position) == (2, 20)
    assert first.logged - first.computed == pytest.approx(0.25)


def test_a_component_that_cannot_matter() -> None:
    right = np.tile([0.0, 1.0, 1.0, 0.0], 2)
    bonus = np.repeat([0.5, 2.0], 4)
    groups = audit.of_arrays(
        2 * right + bonus, [4, 4], components={"right": right, "bonus": bonus}, weights={"right": 2.0}
    )
    found = audit.audit(groups, "verl-grpo").knobs
    assert {name for name, knob in found.items() if knob.changed == 0} == {
        "component bonus",
        "all rewards times 10",
    }
    assert found["component right"].changed == found["component right"].groups == 2


def test_batches_do_not_matter(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [
        {"group": f"{step}-{group}", "step": step, "reward": float(rng.random()), "label": "ab"[group % 2]}
        for step in range(3)
        for group in range(4)
        for _ in range(2 + group)
    ]
    path = logs.jsonl(tmp_path / "x.jsonl", rows)
    whole = audit.audit(audit.read(path), "slime-grpo")
    parts = audit.audit(audit.read(path, options=audit.ReadOptions(rows=4)), "slime-grpo")
    assert whole.counts == parts.counts
    assert whole.steps == parts.steps
    assert len(whole.steps) == 3
    for name, one in whole.agreements.items():
        other = parts.agreements[name]
        assert (one.rows, one.near, one.turned) == (other.rows, other.near, other.turned), name
        assert one.size == pytest.approx(other.size), name
    assert whole.agreements["slime-grpo"].explains

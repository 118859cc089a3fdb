"""Logs rebuilt from public reports: the audit names each of them in one line."""

from pathlib import Path

import numpy as np
import pytest
from tests.unit.audit import logs

from search_to_signal import audit


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

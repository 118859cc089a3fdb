"""Logs rebuilt from public reports: the audit names each of them in one line."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.unit.audit import logs

from search_to_signal import audit
from search_to_signal.audit.groups import RewardGroups


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


def test_tight_groups() -> None:
    """verl #6348: the vectorized form shrank advantages of tight groups about a hundred times."""
    rewards, sizes = [1.0, 1.00001, 2.0, 2.00001], [2, 2]
    shrunk = audit.audit(audit.of_arrays(rewards, sizes, advantage=[-0.005, 0.005, -0.005, 0.005]))
    assert shrunk.explaining == ("verl-0.8-grpo-vectorized",)
    size = shrunk.agreements["verl-grpo"].size
    assert size is not None
    assert 100 < size < 150
    line = line_with(audit.audit(audit.of_arrays(rewards, sizes), "verl-grpo"), "tight")
    assert line.startswith("2 of 2 groups (100.0 %)")


def test_singletons() -> None:
    """verl #7793: a group of one is credited with its raw reward."""
    groups = audit.of_arrays([0.0, 1.0, 0.75], [2, 1], step=[4, 4])
    line = line_with(audit.audit(groups, "verl-grpo"), "singletons")
    assert line.startswith("1 of 2 groups (50.0 %)")
    assert "1 of them get an advantage other than 0" in line
    assert "arrays:2, step 4" in line
    assert "no advantage" in line_with(audit.audit(groups, "verl-rloo-vectorized"), "singletons")


def test_rounding_of_equal_others() -> None:
    """NeMo-RL #4158: seven rewards of 0.95 and one of 0 give an advantage of -2075."""
    found = audit.audit(audit.of_arrays([0.0] + [0.95] * 7, [8]), "nemo-grpo")
    assert "2075" in line_with(found, "largest advantage")


def test_a_score_scale_changes_nothing() -> None:
    """UniRL #146: score_scale 15 against 1 is nothing under a deviation, and something without one."""
    rewards = np.random.default_rng(146).normal(9.0, 1.0, 32)
    groups = audit.of_arrays(rewards, [8] * 4)
    assert "under trl-grpo (4 groups)" in line_with(
        audit.audit(groups, "trl-grpo"), "Multiplying all rewards"
    )
    assert not any("Multiplying" in line for line in audit.conclusions(audit.audit(groups, "trl-grpo-none")))


def test_the_reward_varies_and_the_loss_is_zero() -> None:
    """TRL #2884: the mean advantage is 0 by construction, and no group is dead."""
    rewards = np.random.default_rng(2884).integers(0, 2, 32)
    rewards[::8], rewards[1::8] = 0, 1
    found = audit.audit(audit.of_arrays(rewards, [8] * 4), "trl-grpo")
    assert "no sign of a dead group" in line_with(found, "sum to 0")
    assert found.counts["dead"] == 0


def test_a_timeout_scored_as_success(tmp_path: Path) -> None:
    """OpenEvolve #446: the mean of error 0 and timeout true was 0.5 until 411fb59, more than the parent's."""
    found = audit.audit(audit.read(logs.openevolve(tmp_path)))
    assert line_with(found, "are better than").startswith("1 of 2 candidates")
    (said,) = [one for one in found.assumptions if one.key == "earlier_fitness"]
    assert list(said.counts.values()) == [1, 0, 1, 2]
    assert found.statuses == {"ok": 1, "timeout": 1}


@pytest.mark.parametrize(
    ("name", "top"),
    [
        ("trl-grpo", 0.071),
        ("openrlhf-grpo", 1.50),
        ("prime-rl-grpo", 7.5e-6),
        ("verl-grpo", 1.25),
    ],
)
def test_one_group_under_several_frameworks(name: str, top: float) -> None:
    """r = [0, 0, 0, 1e-5] is a small or a large lesson, by who normalizes it."""
    found = audit.audit(audit.of_arrays([0, 0, 0, 1e-5], [4]), name)
    assert found.largest is not None
    assert found.largest.value == pytest.approx(top, rel=0.01)


def grouped(rewards: Sequence[float], advantages: Sequence[float], **more: Sequence[object]) -> RewardGroups:
    """One group with its logged advantages."""
    return audit.of_arrays(rewards, [len(rewards)], advantage=advantages, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rewards", "advantages", "flag"),
    [
        ([0.0, 0.5, 1.0], [-1.0, 0.5, 0.5], "merged"),
        ([0.0, 0.5, 1.0], [0.0, -0.5, 0.5], "reversed"),
        ([0.0, 0.5, 1.0], [0.0, 0.0, 0.0], "silenced"),
        ([0.5, 0.5], [0.0, 0.0], "flat"),
        ([0.5, float("nan")], [0.0, 0.0], "unscored"),
    ],
)
def test_every_kind_of_distinction_is_told_from_the_others(
    rewards: Sequence[float], advantages: Sequence[float], flag: str
) -> None:
    """A group that has one of them is counted there, with its place, and a sound group nowhere."""
    found = audit.audit(grouped(rewards, advantages))
    kinds = ("merged", "reversed", "silenced", "flat", "unscored")
    also = {"silenced": {"merged"}}.get(flag, set())
    assert {kind for kind in kinds if found.counts[kind]} == {flag} | also
    assert found.examples[flag][0].position == 0
    sound = audit.audit(grouped([0.0, 0.5, 1.0], [-1.0, 0.0, 1.0]))
    assert not any(sound.counts[kind] for kind in kinds)


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
    """A bonus that is equal within every group vanishes; one that is not does not."""
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


def test_components_that_do_not_add_up_are_said() -> None:
    """Nothing is tried of a reward that its components do not make, and the audit says so."""
    parts = {"right": [0.0, 1.0], "bonus": [1.0, 1.0]}
    product, total = (audit.of_arrays(reward, [2], components=parts) for reward in ([0.0, 1.0], [1.0, 2.0]))
    assert any("not the weighted sum" in line for line in audit.conclusions(audit.audit(product)))
    assert not any("not the weighted sum" in line for line in audit.conclusions(audit.audit(total)))


@pytest.mark.parametrize(("sizes", "advantage"), [([2], [0.0, 0.0]), ([2], [np.nan, np.inf])])
def test_a_knob_is_not_idle_where_nothing_is_taught(sizes: list[int], advantage: list[float]) -> None:
    """Of groups without any advantage no knob is said to change nothing."""
    found = audit.audit(audit.of_arrays([0.5, 0.5], sizes, advantage=advantage), "trl-grpo")
    assert not any("Multiplying" in line for line in audit.conclusions(found))


def test_a_normalizer_that_refuses_the_groups_is_said() -> None:
    """TRL takes groups of one size; what it refuses has no advantages, and the first sentence says so."""
    groups = audit.of_arrays([0.0, 1.0, 0.0, 1.0, 1.0], [2, 3], step=[1, 1])
    assert "none to 5 completions" in line_with(audit.audit(groups, "trl-grpo"), "no advantages")
    assert "none to" not in line_with(audit.audit(groups, "verl-grpo"), "no advantages")


def test_singletons_alone_are_explained() -> None:
    """A log of groups of one still tells who gave them what."""
    raw = audit.audit(audit.of_arrays([1.0, 2.0], [1, 1], advantage=[1.0, 2.0]))
    assert "verl-rloo" in raw.explaining
    assert "trl-grpo" not in raw.explaining


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("reward", [[np.inf, 1.0], [1e308, -1e308], [np.nan, np.nan], [5e-324, 0.0]])
def test_rewards_at_the_edge_are_counted(reward: list[float]) -> None:
    """Infinite, overflowing and missing rewards give conclusions and no warning."""
    found = audit.audit(audit.of_arrays(reward, [2]))
    assert found.counts["unscored"] == (not np.isfinite(reward).all())
    assert audit.text(found)


def test_credit_by_class() -> None:
    """P_D, P_A and E_A of a class follow from its advantages."""
    groups = grouped([0.0, 1.0, 3.0, 0.0], [-2.0, 1.0, 3.0, -2.0], label=["bad", "ok", "good", "bad"])
    rows = {one.label: one for one in audit.audit(groups).classes}
    assert (rows["good"].prevalence, rows["good"].mass_share, rows["good"].enrichment) == (0.25, 0.75, 3.0)
    assert (rows["ok"].precision, rows["ok"].positive_rate) == (0.5, 1.0)
    assert rows["bad"].mass_share == 0.0


def test_long_completions_weigh_by_the_rule() -> None:
    """700 tokens among three times 100 have 70 % of a token mean, a quarter of a sequence mean."""
    groups = audit.of_arrays([0.0, 1.0, 0.0, 1.0], [4], advantage=[-1, 1, -1, 1], tokens=[100, 100, 100, 700])
    found = audit.audit(groups)
    assert found.lengths["token_mean"].share == pytest.approx(0.7)
    assert found.lengths["sequence_mean"].share == pytest.approx(0.25)
    assert "longest 25.0 %" in line_with(found, "70.0 % under token_mean")
    unknown = audit.of_arrays([0.0, 1.0], [2], advantage=[-1, 1], tokens=[100, -1])
    assert not audit.audit(unknown).lengths


def test_batches_do_not_matter(tmp_path: Path) -> None:
    """A log read in small batches gives the same findings, whole-step normalizers included."""
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

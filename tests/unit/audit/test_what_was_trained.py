"""What a trainer did with its completions: NaN, masks, rounding, other groups than the log names."""

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.audit import logs

from search_to_signal import audit
from search_to_signal.audit import atlas, live
from search_to_signal.audit.advice import Advice, advice
from search_to_signal.audit.atlas import compute
from search_to_signal.audit.findings import Findings
from search_to_signal.audit.group_files import GroupTable
from search_to_signal.audit.live import Following
from search_to_signal.audit.trl_callback import WARN_ABOVE
from search_to_signal.cli import main

NAN = math.nan


def batch(rewards: Sequence[Sequence[float]], advantages: Sequence[float], **more: Any) -> audit.RewardGroups:
    """One step of groups with the advantages of all completions."""
    flat = [reward for group in rewards for reward in group]
    columns = {"step": [1] * len(rewards), "advantage": advantages, **more}
    return audit.of_arrays(flat, list(map(len, rewards)), **columns)


def told(groups: audit.RewardGroups, normalizer: str | None = None) -> tuple[Findings, tuple[Advice, ...]]:
    found = audit.audit(groups, normalizer)
    return found, advice(found)


def trl(rewards: Sequence[float]) -> list[float]:
    """Advantages of one group as TRL makes them."""
    given = np.array(rewards, dtype=np.float32)
    made: list[float] = ((given - given.mean()) / (given.std(ddof=1) + np.float32(1e-4))).tolist()
    return made


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv"])
def test_an_advantage_that_is_no_number_is_the_first_finding(tmp_path: Path, bad: float, suffix: str) -> None:
    rows = [
        {"group": at // 4, "step": 1, "reward": float(at % 2), "advantage": 1.0 if at % 2 else -1.0}
        for at in range(8)
    ]
    rows[5]["advantage"] = bad
    log = tmp_path / f"log.{suffix}"
    if suffix == "jsonl":
        logs.jsonl(log, rows)
    elif suffix == "json":
        log.write_text(json.dumps(rows), encoding="utf-8")
    else:
        with log.open("w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    found = audit.audit(audit.read(log))
    assert found.logged
    assert (found.signal.nan, found.signal.taught, found.signal.dead) == (1, 0, 1)
    assert advice(found)[0].severity == "high"
    assert "NaN" in advice(found)[0].says
    assert main(["audit", str(log), "--fail-on", "nan_advantage=0"]) == 1


def test_a_log_of_nothing_but_nan_is_no_log_without_advantages(tmp_path: Path) -> None:
    rows = [
        {
            "group": at // 4,
            "step": at // 8,
            "reward": float(at % 2),
            "advantage": NAN,
            "components": {"right": float(at % 2), "judge": None if at % 8 == 3 else 0.0},
        }
        for at in range(16)
    ]
    log = logs.jsonl(tmp_path / "log.jsonl", rows)
    found = audit.audit(audit.read(log))
    assert (found.logged, found.explaining, found.signal.taught) == (True, (), 0)
    assert "lacks a reward" in advice(found)[0].says
    assert main(["audit", str(log), "--fail-on", "dead=0.5"]) == 1
    following = Following(log)
    following.look()
    assert ["NaN" in line for line in following.look()] == [True, True]


def test_a_null_is_no_nan(tmp_path: Path) -> None:
    rows = [{"group": 0, "reward": float(at), "advantage": None} for at in range(4)]
    found = audit.audit(audit.read(logs.jsonl(tmp_path / "log.jsonl", rows)))
    assert (found.logged, found.signal.nan, found.signal.taught) == (False, 0, 4)
    rows = [{"reward": float(at), "group": 0, "advantage": 2.0 * at - 1} for at in range(2)]
    assert live.numbers_of_rows(rows)[live.BATCH] == 2
    assert live.numbers_of_rows([row | {"tokens": -1} for row in rows])[live.BATCH] == 2
    assert live.numbers_of_rows([row | {"tokens": 0} for row in rows])[live.BATCH] == 0


def test_nan_warns_live_and_is_read_again(tmp_path: Path) -> None:
    rewards, groups = [0, 1, 1, 0, 1, 1, 0, 0], [0] * 4 + [1] * 4
    for advantages in ([NAN] * 8, [1.0, NAN, 1, -1, 1, 1, -1, -1]):
        numbers = live.numbers(rewards, groups, advantages)
        assert numbers["signal/effective_batch"] == 0
        assert "signal/nan_share" in live.exceeded(numbers, WARN_ABOVE)
        assert live.numbers_of_rows(
            [
                {"reward": r, "group": g, "advantage": a, "tokens": 3}
                for r, g, a in zip(rewards, groups, advantages, strict=True)
            ]
        ) == pytest.approx(numbers, nan_ok=True)
    assert not live.exceeded(live.numbers(rewards, groups, [1.0, -1.0] * 4), WARN_ABOVE)
    mask = [[1, 1], [1, 0], [0, 0], [1, 1]]
    advantages = [[1.0, 1.0], [NAN, 0.0], [NAN, NAN], [1.0, 3.0]]
    live.write(tmp_path, 1, [0, 1, 1, 0], [7] * 4, advantages, mask=mask)
    (one,) = audit.read(tmp_path)
    assert one.has_advantage.all()
    assert np.isnan(one.advantage).tolist() == [False, True, False, False]
    assert one.tokens.tolist() == [2, 1, 0, 2]


def test_what_is_masked_teaches_nothing() -> None:
    rewards = [[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    given = [*trl(rewards[0]), *trl(rewards[1])]
    masked = [True, True, False, False, True, False, False, False]
    labels = ["long" if out else "short" for out in masked]
    found, made = told(batch(rewards, given, masked=masked, tokens=[9, 9, 2, 3, 9, 2, 2, 3], label=labels))
    assert (found.signal.taught, found.signal.left_out, found.signal.dead) == (5, 3, 0)
    assert "trl-grpo" in found.explaining
    assert any("only pushes probabilities down" in one.says for one in made)
    assert all(sums.tokens == 12 for sums in found.lengths.values())
    found, _ = told(batch(rewards, given, masked=[at < 4 for at in range(8)], label=["a"] * 4 + ["b"] * 4))
    assert {row.label: row.mass_share for row in found.classes} == {"a": 0.0, "b": 1.0}
    zero_tokens, _ = told(batch(rewards, given, tokens=[0, 0, 2, 3, 0, 2, 2, 3]))
    assert zero_tokens.signal.taught == 5
    assert live.numbers([1, 1, 0, 0], [0] * 4, trl(rewards[0]), mask=[[0], [0], [1], [1]])[live.BATCH] == 2
    masked = [True, True, False, False]
    found, _ = told(batch([[1.0, 0.0], [1.0, 0.0]], [1.0, -1.0, 1.0, -1.0], masked=masked))
    assert (found.counts["left_out"], found.counts["dead"], found.signal.taught) == (1, 1, 2)
    rewards = [[1.0] * 4, [0.0] * 4, [0.0, 1.0, 0.0, 1.0]]
    flat = np.array(rewards).ravel()
    found, _ = told(batch(rewards, (flat - flat.mean()).tolist()))
    assert (found.signal.dead, found.signal.taught, found.signal.credited) == (0, 12, 2)


def test_the_rounding_of_equal_rewards_is_no_credit() -> None:
    """verl's float32 mean of seven times 0.43 leaves an advantage over its small epsilon: dead as well."""
    rewards = [[0.01] * 7, [0.43] * 7, [0.99] * 7, [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]]
    flat = [reward for group in rewards for reward in group]
    made = live.grouped(flat, [at // 7 for at in range(28)])
    verl = compute.advantages(atlas.get_entry("verl-grpo"), atlas.RewardBatch(made.reward, made.offsets))
    assert np.abs(verl[:21]).max() > 1e-3
    found, _ = told(batch(rewards, verl.tolist()), "verl-grpo")
    assert (found.signal.taught, found.signal.dead, found.counts["flat_credit"]) == (7, 3, 0)
    assert found.counts["flat_rounding"] >= 1
    assert found.rounding is not None
    assert found.rounding.value == pytest.approx(np.abs(verl[:21]).max())


@pytest.mark.parametrize(
    ("names", "prompts", "how"),
    [
        ([at % 3 for at in range(12)], None, "rows that follow each other"),
        ([at // 4 for at in range(12)], None, "rows at equal distances"),
        (list(range(12)), [at % 3 for at in range(12)], "completions of one prompt"),
    ],
)
def test_groups_that_the_trainer_did_not_have_are_found(
    names: list[int], prompts: list[int] | None, how: str, tmp_path: Path
) -> None:
    rewards = np.random.default_rng(3).integers(0, 4, 12).astype(float)
    together = how == "rows that follow each other"
    groups = np.arange(12) // 4 if together else np.arange(12) % 3
    advantage = np.zeros(12)
    for group in range(3):
        advantage[groups == group] = trl(rewards[groups == group].tolist())
    rows = [
        {"group": names[at], "step": 1, "reward": rewards[at], "advantage": advantage[at]}
        | ({} if prompts is None else {"prompt": f"question {prompts[at]}"})
        for at in range(12)
    ]
    found = audit.audit(audit.read(logs.jsonl(tmp_path / "log.jsonl", rows)))
    assert not found.explaining
    assert found.regrouping is not None
    assert found.regrouping.how == how


def test_rewards_that_no_normalizer_of_the_log_gives() -> None:
    noise = np.random.default_rng(0).normal(size=32)
    found, _ = told(batch([[0.0, 1.0, 0.0, 1.0]] * 8, noise.tolist()))
    assert found.regrouping is None
    penalized = [trl(np.array([1.0, 1.0, 1.0, 1.0]) - np.array([0.1, 0.4, 0.2, 0.3])) for _ in range(3)]
    _, made = told(batch([[1.0] * 4] * 3, np.ravel(penalized).tolist()))
    assert any("penalty" in one.change for one in made)
    assert not any("baseline is the batch" in one.change for one in made)


@pytest.mark.parametrize(("value", "easier"), [(0.0, True), (1.0, False), (-1.0, True)])
def test_one_reward_everywhere_is_said_to_be_that(value: float, easier: bool) -> None:
    found, made = told(batch([[value] * 4] * 4, [0.0] * 16))
    assert made[0].says.startswith(f"All 16 completions have the one reward {value:g}")
    assert ("easier" in made[0].change) == easier
    assert "tie in between" not in " ".join(one.says for one in made)


def test_causes_lie_in_the_reward_function_or_the_group_size() -> None:
    rewards = [[number / 10] * 4 for number in range(10)]
    _, made = told(batch(rewards, [0.0] * 40, response=list(range(1, 41))))
    assert "never within" in made[0].says
    assert "reads the completion" in made[0].change
    _, made = told(batch(rewards, [0.0] * 40, response=[at // 4 + 1 for at in range(40)]))
    assert "temperature" in made[0].change
    # Three groups of right and wrong tie by chance now and then.
    _, made = told(batch([[1.0] * 2, [0.0] * 2, [1.0] * 2], [0.0] * 6))
    assert "never within" not in made[0].says
    random = np.random.default_rng(5)
    by_chance = (random.random((400, 2)) < 0.18).astype(float)
    _, made = told(batch(by_chance.tolist(), [NAN] * 800), "trl-grpo")
    assert made[0].change.startswith("Raise num_generations from 2")
    assert "drop" not in made[0].change
    hopeless = np.repeat((random.random((400, 1)) < 0.5).astype(float), 8, axis=1)
    hopeless[:40] = random.random((40, 8)) < 0.5
    _, made = told(batch(hopeless.tolist(), [NAN] * 3200), "trl-grpo")
    assert "Raise num_generations" not in made[0].change


def test_where_most_dead_groups_are_copies_that_comes_before_their_size(tmp_path: Path) -> None:
    """Headings, comments and what stands around a program make no other program of it."""

    def first(programs: Sequence[str]) -> Advice:
        rows = [
            {"step": 1, "input": f"q{at // 4}", "score": 1.0 if at < 24 else float(at % 2), "output": output}
            for at, output in enumerate(
                f"# Idea {at}\nAs said:\n```python\n# variant {at}\ndef f(x):\n    return {program}\n```\n"
                for at, program in enumerate(programs)
            )
        ]
        log = logs.jsonl(tmp_path / str(len(set(programs))) / "1.jsonl", rows)
        batches = audit.read(log, "verl")
        return told(next(batches), "verl-grpo")[1][0]

    copied = first([f"x + {at // 4}" for at in range(32)])
    assert "in 6 of 6 dead groups" in copied.change
    assert copied.change.startswith("Let copies score less")
    own = first([f"x + {at}" for at in range(32)])
    assert "copies" not in own.change
    assert own.says == copied.says


def test_names_that_begin_again_in_every_step_are_places(tmp_path: Path) -> None:
    def hopeless(name: str, start: int = 0) -> Any:
        rows = [
            {"group": name.format(number + start), "step": step, "reward": float(number == 3 and member)}
            for step in range(3)
            for number in range(4)
            for member in range(2)
        ]
        return audit.audit(audit.read(logs.jsonl(tmp_path / "log.jsonl", rows))).hopeless

    assert hopeless("{}") is None
    assert hopeless("group_{}", 1) is None
    assert hopeless("gsm8k-{}", 731) is not None


def test_a_table_of_groups_says_what_it_leaves_out() -> None:
    table = GroupTable((), 20)
    groups = audit.of_arrays([0.0, 1.0] * 25, [2] * 25)
    audit.audit(groups, each=table.add)
    rows = list(csv.reader(table.data().decode().splitlines()))
    assert rows[-1][:2] == ["", "5 more groups are not in this table"]
    assert len(rows) == 20 + 2


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_an_empty_column_of_advantages_may_be_nan(tmp_path: Path, suffix: str) -> None:
    """pandas and many writers of JSON write NaN as nothing: that is said first, and nobody is sure."""
    rows = [{"group": at // 4, "reward": float(at % 2), "advantage": None} for at in range(8)]
    log = tmp_path / f"log.{suffix}"
    if suffix == "jsonl":
        logs.jsonl(log, rows)
    else:
        lines = ["group,reward,advantage", *(f"{row['group']},{row['reward']}," for row in rows)]
        log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert "NaN" in advice(audit.audit(audit.read(log)))[0].says
    for row in rows:
        del row["advantage"]
    without = logs.jsonl(tmp_path / "none.jsonl", rows)
    assert not any("NaN" in one.says for one in advice(audit.audit(audit.read(without))))


@pytest.mark.parametrize("repeated", [True, False])
def test_groups_of_one_name_the_cause_that_the_file_shows(tmp_path: Path, repeated: bool) -> None:
    rows = [
        {
            "input": f"question {at // 4 if repeated else at}",
            "output": f"answer {at}",
            "gts": None,
            "score": float(at % 2),
            "step": 1,
            "uid": f"{at}-trajectory",
        }
        for at in range(24)
    ]
    found = audit.audit(audit.read(logs.jsonl(tmp_path / "1.jsonl", rows)), usual="verl-grpo")
    (one,) = [said for said in advice(found) if "one completion" in said.says]
    assert (found.lone.groups, found.lone.prompts) == ((24, 6) if repeated else (0, 0))
    assert ("rollout.n to 2 or more" in one.change) != repeated
    assert ("share 6 prompts" in one.says) == repeated

"""What TRL and verl trained, where their logs say it only between the lines."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.audit import logs
from tests.unit.audit.logs import Printed

from search_to_signal import audit
from search_to_signal.audit.groups import RewardGroups

SPIDER = [0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0]
PRIME = [0.0, 0.0, 1.0, 1.0]


def credit(rewards: Sequence[float], size: int = 4) -> list[float]:
    """TRL's advantages of groups of one size, in float32."""
    groups = np.array(rewards, dtype=np.float32).reshape(-1, size)
    centred = groups - groups.mean(axis=1, keepdims=True)
    given: list[float] = (
        (centred / (groups.std(axis=1, ddof=1, keepdims=True) + np.float32(1e-4))).ravel().tolist()
    )
    return given


def trl(
    directory: Path, prompts: Sequence[str], advantage: Sequence[float | None], step: int = 4, **columns: Any
) -> Path:
    """A completions file with these columns of numbers between completion and advantage."""
    rows = {"step": [step] * len(prompts), "prompt": list(prompts)}
    texts = {"completion": [f"c{row}" for row in range(len(prompts))]}
    path = directory / "completions" / f"completions_{step:05d}.parquet"
    return logs.parquet(path, rows | texts | columns | {"advantage": list(advantage)})


def said(groups: RewardGroups, key: str) -> list[str]:
    """What is assumed under a key."""
    return [one.says for one in groups.assumptions if one.key == key]


def one(path: Path, options: audit.ReadOptions | None = None) -> RewardGroups:
    """A log that is one batch."""
    (batch,) = audit.read(path, options=options)
    return batch


@pytest.mark.parametrize(
    ("prompts", "rewards"),
    [
        (["spider"] * 8 + ["prime"] * 4, SPIDER + PRIME),
        (["spider"] * 8, SPIDER),
        (["spider"] * 12, SPIDER + PRIME),
        (["spider"] * 8 + ["prime"] * 8, SPIDER + PRIME + [0.0] * 4),
    ],
    ids=["beside another", "alone", "one prompt in all rows", "every prompt twice"],
)
def test_groups_of_one_prompt_in_a_row_are_split(
    prompts: list[str], rewards: list[float], tmp_path: Path
) -> None:
    groups = one(trl(tmp_path, prompts, credit(rewards), acc=rewards))
    assert set(groups.sizes.tolist()) == {4}
    assert "4 rows in a row" in said(groups, "consecutive_prompts")[0]
    assert "trl-grpo" in audit.audit(groups).explaining


def test_groups_of_one_size_are_not_taken_for_another(tmp_path: Path) -> None:
    """0, 1, 0, 1 lie on a line in groups of 4 too, but of a slope that TRL does not give."""
    rewards = [0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    path = trl(tmp_path, ["spider"] * 4 + ["prime"] * 4, credit(rewards, 2), acc=rewards)
    assert one(path).sizes.tolist() == [2] * 4
    path = trl(
        tmp_path / "1",
        ["spider"] * 8 + ["prime"] * 8,
        credit(SPIDER + SPIDER[::-1], 8),
        acc=SPIDER + SPIDER[::-1],
    )
    assert one(path).sizes.tolist() == [8, 8]
    length = [0.5, 0.25, 0.0, 0.75, 1.0, 0.25, 0.5, 0.0, 0.25, 0.5, 0.75, 0.0]
    advantage = credit([one + 3 * two for one, two in zip(SPIDER + PRIME, length, strict=True)])
    path = trl(tmp_path / "2", ["spider"] * 8 + ["prime"] * 4, advantage, acc=SPIDER + PRIME, length=length)
    assert one(path).sizes.tolist() == [4, 4, 4]


def test_an_evaluation_in_place_of_a_step_is_named(tmp_path: Path) -> None:
    """Groups of another size than the run's are TRL's evaluation of that step; training's files are not."""
    for step in (1, 3):
        trl(tmp_path, ["a"] * 4 + ["b"] * 4, credit(SPIDER), step, acc=SPIDER)
    trl(tmp_path, list("cdef"), [0.0] * 4, 2, acc=PRIME)
    named = [bool(said(groups, "evaluation")) for groups in audit.read(tmp_path)]
    assert named == [False, True, False]


ACCURACY = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
LATENCY = [120.0, 95.0, 300.0, 87.0, 101.0, 77.0, 140.0, 99.0]
TWO = ["q0"] * 4 + ["q1"] * 4


@pytest.mark.parametrize(
    "columns",
    [
        {"accuracy": ACCURACY, "latency": LATENCY},
        {"accuracy": ACCURACY, "entropy": LATENCY, "latency": LATENCY[::-1]},
        {"monitored": LATENCY, "accuracy": ACCURACY},
        {"accuracy": ACCURACY, "percent": [100 * one for one in ACCURACY]},
        {"accuracy": ACCURACY, **{f"extra{at:02}": np.power(LATENCY, 1 + at / 9) for at in range(14)}},
    ],
    ids=["an extra", "two extras", "a function of weight 0", "a multiple", "many extras"],
)
def test_numbers_that_are_no_rewards_are_left_out(columns: dict[str, Any], tmp_path: Path) -> None:
    groups = one(trl(tmp_path, TWO, credit(ACCURACY), **columns))
    assert (list(groups.weights), groups.reward.tolist()) == (["accuracy"], ACCURACY)
    (says,) = said(groups, "reward_columns")
    assert all(name in says for name in columns)
    found = audit.audit(groups)
    assert (found.counts["dead"], "trl-grpo" in found.explaining) == (1, True)


@pytest.mark.parametrize("weights", [{"a": 1.0, "b": 0.5}, {"a": 0.2, "b": -3.0}, {"b": 0.05}])
@pytest.mark.parametrize("divided", [True, False])
def test_weights_are_found_where_equal_ones_explain_nothing(
    weights: dict[str, float], divided: bool, tmp_path: Path
) -> None:
    draw = np.random.default_rng(1)
    columns = {name: draw.integers(0, 3, 24).astype(float) for name in ("a", "b", "extra")}
    columns["a"][[3, 10]] = np.nan
    reward = sum(weight * np.nan_to_num(columns[name]) for name, weight in weights.items())
    groups = np.float32(reward).reshape(-1, 4)
    advantage = credit(groups.ravel().tolist()) if divided else groups - groups.mean(axis=1, keepdims=True)
    prompts = [f"q{row // 8}" for row in range(24)]
    found = one(trl(tmp_path, prompts, np.ravel(advantage).tolist(), **columns))
    assert dict(found.weights) == pytest.approx(weights)
    assert (found.sizes == 4).all()
    assert audit.audit(found).explaining[0] == ("trl-grpo" if divided else "trl-grpo-none")


def test_the_reward_of_a_run_is_the_same_in_every_file(tmp_path: Path) -> None:
    trl(tmp_path, TWO, [0.0] * 8, 1, accuracy=[1.0] * 8, latency=[1.0] * 8)
    trl(tmp_path, TWO, credit(ACCURACY), 2, accuracy=ACCURACY, latency=LATENCY)
    assert [list(groups.weights) for groups in audit.read(tmp_path)] == [["accuracy"]] * 2
    # TRL's column is always full, and pandas writes NaN as null.
    groups = one(trl(tmp_path / "1", TWO, [None] * 4 + [0.0] * 4, accuracy=ACCURACY))
    assert groups.has_advantage.all()
    assert np.isnan(groups.advantage).tolist() == [True] * 4 + [False] * 4


def test_a_named_component_is_the_reward(tmp_path: Path) -> None:
    path = trl(tmp_path, TWO, credit(ACCURACY), accuracy=ACCURACY, latency=LATENCY)
    assert one(path, audit.ReadOptions(components=("latency",))).reward.tolist() == LATENCY
    style = [0.5] * 4 + [1.0] * 4
    groups = one(
        trl(tmp_path / "1", TWO, credit(np.add(ACCURACY, style).tolist()), accuracy=ACCURACY, style=style)
    )
    assert list(groups.weights) == ["accuracy", "style"]
    # 0.1 + 0.2 is 0.3 where TRL adds it, and no difference to learn from.
    first, second = [0.1, 0.3, 0.1, 0.3], [0.2, 0.0, 0.2, 0.0]
    assert audit.audit(one(trl(tmp_path / "2", ["p"] * 4, [0.0] * 4, a=first, b=second))).counts["flat"] == 1


@pytest.mark.parametrize(("lone", "reward"), [(0.0, None), (-1.4997, 0.0)], ids=["now", "before"])
def test_what_no_function_scored_is_what_the_trainer_made_of_it(
    lone: float, reward: float | None, tmp_path: Path
) -> None:
    """Without a reward where its advantage is 0; 0 where an older TRL counted it, as its advantage shows."""
    advantage = [lone, *([0.4999] * 3 if reward == 0.0 else [0.0] * 3)]
    groups = one(trl(tmp_path, ["p"] * 4, advantage, accuracy=[None, 1.0, 1.0, 1.0]))
    assert groups.reward[0] == reward or (reward is None and np.isnan(groups.reward[0]))
    assert audit.audit(groups).counts["unscored"] == (reward is None)


def table(directory: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    """A table of a Weights & Biases run."""
    path = directory / "run-20260101_101010-ab12cd34/files/media/table/completions_10_0a1b2c.table.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"columns": columns, "data": rows}), encoding="utf-8")
    return path


def test_tables_that_are_no_log_and_nan_in_them(tmp_path: Path, printed: Printed) -> None:
    """TRL trains no group of one, so the table lacks the others: the setting is named, not the group size."""
    rows = [[10, f"prompt {row}", "text", row % 2, (-1) ** row * 0.866] for row in range(6)]
    table(tmp_path, ["step", "prompt", "completion", "accuracy", "advantage"], rows)
    err = printed(tmp_path, code=5)
    assert "log_unique_prompts" in err
    assert "num_generations" not in err
    # Weights & Biases writes NaN as a text; a truth value is an extra, since rewards are numbers.
    rows = [[10, "p", "text", row % 2, row > 1, "NaN"] for row in range(4)]
    groups = one(
        table(tmp_path / "1", ["step", "prompt", "completion", "accuracy", "fast", "advantage"], rows)
    )
    assert list(groups.weights) == ["accuracy"]
    assert (groups.has_advantage.all(), np.isnan(groups.advantage).all()) == (True, True)


def verl(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """A step as verl dumps it."""
    return logs.jsonl(
        path, [{"input": "q", "output": "o", "gts": None, "score": 0.0, "step": 8} | row for row in rows]
    )


SCORES = [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 1.0, -1.0], [-1.0, 1.0, -1.0, 1.0]]
PENALTIES = [[-0.0, -0.25, -0.5, -0.75], [0.0] * 4, [0.0, -0.25, -0.5, -0.75], [0.0] * 4]


@pytest.mark.parametrize("own", [True, False], ids=["the function's own score", "the sum of both"])
def test_the_trained_score_holds_the_penalty_for_length(own: bool, tmp_path: Path) -> None:
    rows = [
        {
            "input": f"q{at}",
            "output": f"{at}{place}",
            "score": score if own else score + penalty,
            "acc": score > 0 if own else score,
            "overlong_reward": penalty,
            "overlong": penalty < 0,
        }
        for at, scores in enumerate(SCORES)
        for place, (score, penalty) in enumerate(zip(scores, PENALTIES[at], strict=True))
    ]
    groups = one(verl(tmp_path / "8.jsonl", rows))
    assert groups.reward.tolist() == [float(one) for one in np.add(SCORES, PENALTIES).ravel()]
    assert dict(groups.weights) == {"score" if own else "acc": 1.0, "overlong_reward": 1.0}
    assert bool(said(groups, "overlong_reward")) is own
    assert audit.audit(groups, usual="verl-grpo").counts["dead"] == 1


def test_a_wrong_answer_at_the_full_penalty_is_no_sum_of_its_accuracy(tmp_path: Path) -> None:
    rows = [
        {"score": score, "acc": score > 0, "overlong_reward": -1.0 if at == 3 else 0.0}
        for at, score in enumerate((1.0, -1.0, -1.0, -1.0))
    ]
    assert one(verl(tmp_path / "8.jsonl", rows)).reward.tolist() == [1.0, -1.0, -1.0, -2.0]
    path = verl(tmp_path / "8.jsonl", [{"score": score} for score in (0.1 + 0.2, 0.3, 0.3, 0.3)])
    assert audit.audit(one(path)).counts["flat"] == 1


def sessions(uid: str, *outputs: Sequence[float]) -> list[dict[str, Any]]:
    """Rows of sessions with these scores of their outputs."""
    return [
        {
            "input": f"task {uid}" + " ..." * at,
            "output": f"{uid}{session}{at}",
            "score": score,
            "uid": f"{uid}_{session}_{at}",
        }
        for session, scores in enumerate(outputs)
        for at, score in enumerate(scores)
    ]


def test_a_session_of_several_outputs_is_one_sample(tmp_path: Path) -> None:
    rows = [
        *sessions("aaaa", [1.0, 1.0, 1.0], [0.0], [0.0], [0.0]),
        *sessions("bbbb", [1.0, 1.0, 1.0, 1.0]),
        *sessions("cccc", [1.0], [0.0, 0.0], [1.0], [1.0, 0.5, 0.0]),
    ]
    groups = one(verl(tmp_path / "8.jsonl", rows[::-1]))
    by_name = dict(zip(groups.name, np.split(groups.reward, groups.offsets[1:-1]), strict=True))
    assert {name: sorted(given) for name, given in by_name.items()} == {
        "aaaa": [0.0, 0.0, 0.0, 1.0],
        "bbbb": [1.0],
        "cccc": [0.0, 0.0, 1.0, 1.0],
    }
    found = audit.audit(groups, usual="verl-grpo")
    assert (found.counts["dead"], found.counts["lone_credit"]) == (0, 1)
    assert found.largest is not None
    assert found.largest.value == pytest.approx(1.5, abs=1e-3)


def test_a_uid_of_several_rows_is_no_session(tmp_path: Path) -> None:
    rows = [
        {"uid": f"math_12_{prompt}", "input": f"q{prompt}", "score": float(at)}
        for at in range(4)
        for prompt in (3, 4)
    ]
    assert one(verl(tmp_path / "8.jsonl", rows)).sizes.tolist() == [4, 4]
    # Groups of one, as verl had them, with the uid as name and the prompt that they share.
    groups = one(verl(tmp_path / "8.jsonl", [{"uid": f"{at}-traj", "score": at % 2} for at in range(4)]))
    assert groups.sizes.tolist() == [1] * 4
    assert groups.name == tuple(f"{at}-traj" for at in range(4))
    assert len(set(groups.prompt_id.tolist())) == 1


def turns(sample: int, count: int, said_again: bool = True) -> list[dict[str, Any]]:
    """The turns of a sample as rows: each input is the one before with its output and an observation."""
    rows, text = [], "user: go\n"
    for turn in range(count):
        output = f"step {turn} of {sample}\n"
        rows.append({"input": text, "output": output, "score": float(sample % 2)})
        text += (output if said_again else "") + f"seen {sample}{turn}\n"
    return rows


def test_turns_without_a_group_are_one_sample(tmp_path: Path) -> None:
    rows = [row for sample in range(4) for row in turns(sample, sample + 1)]
    groups = one(verl(tmp_path / "8.jsonl", [*rows[3:], *rows[:3]]))
    assert groups.sizes.tolist() == [4]
    assert sorted(groups.reward.tolist()) == [0.0, 0.0, 1.0, 1.0]
    assert said(groups, "turns")
    rows = [{"input": "q", "output": "a", "score": 0.0}] * 2
    rows += [{"input": f"qa seen {at}", "output": "b", "score": float(at)} for at in range(2)]
    groups = one(verl(tmp_path / "8.jsonl", rows))
    assert (groups.sizes.tolist(), sorted(groups.reward.tolist())) == ([2], [0.0, 1.0])
    # 1 + 1 and 1 + 12 are two prompts.
    rows = [
        {"input": text, "output": f"{at}", "score": at % 2} for text in ("1+1", "1+12") for at in range(4)
    ]
    groups = one(verl(tmp_path / "8.jsonl", rows))
    assert groups.sizes.tolist() == [4, 4]
    assert {one.key for one in groups.assumptions} == {"equal_inputs"}


def test_turns_that_lost_their_output_are_said_to_be_unknown(tmp_path: Path) -> None:
    rows = [row for sample in range(4) for row in turns(sample, 3, said_again=False)]
    assert said(one(verl(tmp_path / "8.jsonl", rows)), "unknown_turns")
    named = [row | {"request_id": f"r{at // 3}"} for at, row in enumerate(rows)]
    assert one(verl(tmp_path / "9.jsonl", named)).sizes.tolist() == [4]
    cut = [row | {"uid": "u", "input": f"{at % 3}: {row['input']}"} for at, row in enumerate(rows)]
    groups = one(verl(tmp_path / "10.jsonl", cut))
    assert [dict(one.counts) for one in groups.assumptions if one.key == "unknown_turns"] == [{"rows": 8}]


@pytest.mark.parametrize(
    ("place", "rows", "named"),
    [
        ("a/0.jsonl", [{"input": f"q{at}", "score": 1.0, "reward": 1.0} for at in range(4)], True),
        ("b/0.jsonl", [row | {"reward": row["score"]} for row in sessions("a", [1.0], [0.0, 0.0])], True),
        ("val/0.jsonl", [{"score": at % 2, "reward": at % 2} for at in range(4)], True),
        ("c/0.jsonl", [{"score": 1.0, "overlong_reward": -0.5, "reward": 0.5}], True),
        ("d/0.jsonl", [{"input": f"q{at}", "score": 1.0, "reward": 0.5} for at in range(4)], False),
        ("e/0.jsonl", [{"score": at % 2, "reward": at % 2} for at in range(4)], False),
        ("f/0.jsonl", [{"input": f"q{at}", "score": 1.0} for at in range(4)], False),
    ],
)
def test_a_validation_is_named(place: str, rows: list[dict[str, Any]], named: bool, tmp_path: Path) -> None:
    assert bool(said(one(verl(tmp_path / place, rows)), "validation")) is named

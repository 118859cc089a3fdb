"""What a trainer hands over: whole groups are rewarded in their order, anything else is refused."""

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search_to_signal.base.errors import ConfigError, IllFormedGroupError
from search_to_signal.credit import MAPPINGS, get_mapping, reads_exposure
from search_to_signal.integrations import verl
from search_to_signal.integrations.scoring import Context, GroupScorer, Scored
from search_to_signal.integrations.trl import RewardFunction, reward_function
from search_to_signal.problems import get_problem
from search_to_signal.records.schema import Outcome
from search_to_signal.sandbox.settings import EvaluationSettings

SETTINGS = EvaluationSettings(timeout_s=5.0, wall_factor=60.0, memory_mb=256, slots=2, replay="off")
HEAD = "def select_next_node(current_node, destination_node, unvisited_nodes, distance_matrix):\n"
NEAREST = HEAD + "    return min(unvisited_nodes, key=lambda node: distance_matrix[current_node][node])"
FARTHEST = NEAREST.replace("min(", "max(")


def answer(code: str) -> str:
    return f"{{{{The idea of the algorithm is to go to the nearest neighbour.}}}}\n```python\n{code}\n```"


ANSWERS = ["no program", answer(NEAREST), answer(FARTHEST), answer("def f(:")]


class Lengths:
    """Stands in for a scorer: the reward is the length of a text less that of the longest of its group."""

    mapping = get_mapping("native")

    def __init__(self) -> None:
        self.asked: list[tuple[Context, Sequence[str]]] = []

    def __call__(self, groups: Sequence[tuple[Context, Sequence[str]]]) -> list[list[Scored]]:
        self.asked += groups
        return [
            [Scored(float(len(text) - max(map(len, texts))), {}, Outcome.VALID, 1.0) for text in texts]
            for _, texts in groups
        ]


def columns(rows: Sequence[int]) -> dict[str, Any]:
    """The columns of rows, as TRL repeats them."""
    return {
        "row": list(rows),
        "bases": [[-5.0 - row] for row in rows],
        "programs": [["aa"] for _ in rows],
        "archive": [[-5.0 - row] for row in rows],
        "trainer_state": object(),
    }


def test_a_flat_batch_is_cut_into_groups_with_their_contexts() -> None:
    scorer = Lengths()
    reward: Any = RewardFunction(scorer, 2)  # type: ignore[arg-type]
    logged: dict[str, Any] = {}
    talk = [[{"role": "assistant", "content": text}] for text in ("a", "bbb", "cc", "c")]
    given = reward(["p"] * 4, talk, log_extra=logged.__setitem__, **columns([0, 0, 3, 3]))
    assert given == [-2.0, 0.0, 0.0, -1.0]
    assert [(context.bases, texts) for context, texts in scorer.asked] == [
        ((-5.0,), ["a", "bbb"]),
        ((-8.0,), ["cc", "c"]),
    ]
    assert logged["outcome"] == ["valid"] * 4
    assert reward.__name__ == "native"


@pytest.mark.parametrize("rows", [[0, 0, 1], [0, 1, 1, 2], [0, 0, 0, 0]])
def test_a_group_that_is_not_whole_is_refused(rows: list[int]) -> None:
    reward: Any = RewardFunction(Lengths(), 2)  # type: ignore[arg-type]
    with pytest.raises(IllFormedGroupError):
        reward(["p"] * len(rows), ["a"] * len(rows), **columns(rows))


def test_what_a_trainer_cannot_serve_is_refused() -> None:
    for given in ({"mapping": "search_exposure"}, {"mapping": "nothing"}, {"split": "no"}, {"group_size": 0}):
        with pytest.raises(ConfigError):
            reward_function("tsp", **{"mapping": "native", "group_size": 4, **given})  # type: ignore[arg-type]
    # Without them every mapping would compare with nothing, in silence.
    reward: Any = RewardFunction(Lengths(), 2)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="bases"):
        reward(["p"] * 2, ["a"] * 2)


@pytest.mark.slow
def test_programs_run_in_the_sandbox_and_end_with_the_process() -> None:
    reward = reward_function("tsp", "factorized", group_size=4, split="embedded", settings=SETTINGS)
    rows = reward.prompt_rows(2)
    assert rows[0]["bases"] == rows[0]["archive"]
    given = {name: [row[name] for row in rows for _ in range(4)] for name in rows[0]}
    prompts = given.pop("prompt")
    texts = [*ANSWERS, *ANSWERS[::-1]]
    rewards = reward(prompts, texts, **given)
    assert rewards[:4] == rewards[:3:-1]
    assert rewards[0] == rewards[3] == -0.5
    assert rewards[1] > rewards[2] > -0.5
    copy = pickle.loads(pickle.dumps(reward))
    assert copy(prompts, texts, **given) == rewards
    copy.close()
    child = os.fork()
    if not child:
        os._exit(0 if reward(prompts, texts, **given) == rewards else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert reward(prompts, texts, **given) == rewards
    reward.close()


ENDS = """
from pathlib import Path
from search_to_signal.integrations.trl import reward_function
from search_to_signal.sandbox.settings import EvaluationSettings
settings = EvaluationSettings(timeout_s=60.0, wall_factor=10.0, memory_mb=256, replay="off")
reward = reward_function("tsp", "native", group_size=4, split="embedded", settings=settings)
reward.prompt_rows(1)
print(*(children.read_text() for children in Path("/proc/self/task").glob("*/children")))
"""


@pytest.mark.slow
def test_a_process_that_ends_leaves_no_program() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True)
    assert ended.stderr == ""
    assert ended.stdout.split()
    assert not any(Path("/proc", child).exists() for child in ended.stdout.split())


def test_completions_that_come_one_at_a_time_wait_for_their_group() -> None:
    scorer = Lengths()
    texts = ["bb", "a", "bb", "dddd"]

    async def ask() -> list[Scored]:
        gathering = verl.Gathering(scorer, 5.0)  # type: ignore[arg-type]
        asked = [gathering.reward(key, 4, Context(), text) for text in texts for key in ("one", "two")]
        return list(await asyncio.gather(*asked))

    given = [scored.reward for scored in asyncio.run(ask())]
    assert given == [-2.0, -2.0, -3.0, -3.0, -2.0, -2.0, 0.0, 0.0]
    assert [list(group) for _, group in scorer.asked] == [sorted(texts)] * 2


def test_a_group_that_never_ends_is_refused() -> None:
    async def ask() -> None:
        gathering = verl.Gathering(Lengths(), 0.01)  # type: ignore[arg-type]
        await gathering.reward("one", 2, Context(), "a")

    with pytest.raises(IllFormedGroupError, match="1 of 2"):
        asyncio.run(ask())


def test_which_mappings_compare_the_completions_of_a_group() -> None:
    """What compute_score, which sees one, can and cannot give."""
    asked = {name: mapping for name, mapping in MAPPINGS.items() if not reads_exposure(mapping)}
    compares = {name for name, mapping in asked.items() if verl.compares_completions(mapping)}
    assert compares == {"factorized", "tail_weighted", "distinct"}
    with pytest.raises(ConfigError):
        verl.compute_score("tsp", "factorized")


@pytest.mark.slow
def test_a_single_completion_as_verl_asks() -> None:
    scorer = GroupScorer("tsp", "native", "embedded", SETTINGS)
    row = scorer.prompt_rows(1)[0]
    scorer.close()
    extra = {name: row[name] for name in ("bases", "programs", "archive")}
    score = verl.compute_score("tsp", split="embedded", settings=SETTINGS)
    given = score(
        data_source="", solution_str=answer(get_problem("tsp").seed.code), ground_truth="", extra_info=extra
    )
    assert given["score"] == 0.0
    assert given["acc"] == 1.0
    assert score(data_source="", solution_str="", ground_truth="", extra_info=extra)["score"] == -1.0


class Tensor:
    """The few operations of a tensor that an estimator asks for, on numpy."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values, dtype=np.float32)

    def sum(self, dim: int) -> "Tensor":
        return Tensor(self.values.sum(dim))

    def detach(self) -> "Tensor":
        return self

    cpu = detach

    def numpy(self) -> Any:
        return self.values

    def new_tensor(self, values: Any) -> "Tensor":
        return Tensor(values)

    def unsqueeze(self, axis: int) -> "Tensor":
        return Tensor(np.expand_dims(self.values, axis))

    def __mul__(self, other: "Tensor") -> "Tensor":
        return Tensor(self.values * other.values)


def test_a_normalizer_is_an_advantage_estimator() -> None:
    rewards = Tensor([[0.0, 1.0], [0.0, 5.0], [0.0, 3.0], [0.0, 5.0], [2.0, 0.0]])
    mask = Tensor([[1, 1], [1, 1], [1, 0], [1, 1], [1, 1]])
    estimator = verl.Estimator(verl.NORMALIZERS["dr_grpo"])
    advantages, returns = estimator(rewards, mask, index=np.array(["a", "b", "a", "b", "a"]), config=None)
    assert advantages is returns
    assert advantages.values.tolist() == [[-1, -1], [0, 0], [1, 0], [0, 0], [0, 0]]
    with pytest.raises(IllFormedGroupError):
        estimator(rewards, mask)

"""The hooks for trainers run, on stand-ins shaped as the frameworks' objects are."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from search_to_signal import audit
from search_to_signal.audit import live
from search_to_signal.audit.live import Following

ROOT = Path(__file__).parents[3]
PAGE, AUDIT = (
    (ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("examples/trainer-hooks.md", "audit.md")
)
# Two groups of two: one in which the first answer is right, one in which both are.
REWARDS, ADVANTAGES = np.array([1.0, 0.0, 1.0, 1.0]), np.array([0.5, -0.5, 0.0, 0.0])
MASK = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]])
AT_END = np.array([[0, 1, 0], [0, 0, 0], [0, 0, 1], [0, 1, 0]]) * REWARDS[:, None]
WANTED = {"signal/dead_share": 0.5, "signal/effective_batch": 2.0, "signal/largest_gain": 1.0}


def hook(framework: str) -> str:
    """The code that stands beneath a framework's name."""
    (code,) = re.findall(rf"^\*\*{framework}\*\* .*?^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(code)


def verl(_: Path) -> dict[str, float]:
    """A DataProto: padded tensors, and prompt ids that numpy keeps as objects; a session has two outputs."""
    batch = {"token_level_scores": AT_END, "advantages": ADVANTAGES[:, None] * MASK, "response_mask": MASK}
    data = SimpleNamespace(batch=batch, non_tensor_batch={"uid": np.array(list("ababb"), dtype=object)})
    for column in batch:
        batch[column] = batch[column][[0, 2, 1, 3, 1]]
    keys = SimpleNamespace(keys=["a_0_10", "b_0_0", "a_1_0", "b_1_1", "b_1_0"])
    found: dict[str, float] = {}
    exec(hook("verl"), {"live": live, "data": data, "batch": keys, "metrics": found})
    return found


def openrlhf(_: Path) -> dict[str, float]:
    """Micro-batches of one and of three, whose padding differs; an index counts samples of all prompts."""
    experiences = [
        SimpleNamespace(
            rewards=REWARDS[rows],
            index=rows,
            advantages=(ADVANTAGES[rows, None] * MASK[rows])[:, :width],
            action_mask=MASK[rows][:, :width],
        )
        for rows, width in (([1], 1), ([0, 2, 3], 3))
    ]
    own = SimpleNamespace(args=SimpleNamespace(rollout=SimpleNamespace(n_samples_per_prompt=2)))
    found: dict[str, float] = {}
    given = {"live": live, "self": own, "experiences": experiences, "rollout_stats": found, "global_step": 7}
    exec(hook("OpenRLHF"), given)
    return found


def slime(_: Path) -> dict[str, float]:
    """Samples with a method for their reward; what is logged stands in one dictionary with its step."""
    logged: dict[str, float] = {}
    log = ModuleType("logging_utils")
    vars(log)["log"] = lambda args, found, step_key: logged.update(found)
    steps = ModuleType("slime.observability.metric_utils")
    vars(steps)["compute_rollout_step"] = lambda args, rollout_id: rollout_id * 8
    parent = ModuleType("slime.observability")
    vars(parent)["logging_utils"] = log
    modules = {"slime.observability": parent, steps.__name__: steps}
    samples = [
        SimpleNamespace(group_index=row // 2, get_reward_value=lambda args, row=row: REWARDS[row])
        for row in range(4)
    ]
    made: dict[str, Any] = {"live": live}
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        exec(hook("slime"), made)
    assert made["log_rollout"](3, None, samples, None, 1.0) is False
    assert logged.pop("rollout/step") == 24
    # slime divides by the deviation, so its gain is another one.
    return logged | {"signal/largest_gain": logged["signal/largest_gain"] * np.std([0, 1], ddof=1)}


def skyrl(_: Path) -> dict[str, float]:
    """A batch in steps, with two of the first trajectory, and with a row of padding at its end."""
    rows = [0, 0, 1, 2, 3]
    padded = {"advantages": ADVANTAGES[rows, None] * MASK[rows], "loss_mask": MASK[rows]}
    data = {name: np.vstack([column, np.ones(3)]) for name, column in padded.items()}

    class Batch(dict[str, Any]):
        """A dictionary of tensors with metadata beside them."""

        def __init__(self, columns: dict[str, Any]) -> None:
            super().__init__(columns)
            self.metadata = {"uids": [*"aaabb", "pad0"], "pad_size": 1, "is_last_step": [False, *[True] * 5]}

    found: dict[str, float] = {}
    own = SimpleNamespace(all_metrics=found, global_step=7)
    rewards = np.vstack([np.zeros(3), AT_END, np.zeros(3)])
    exec(hook("SkyRL"), {"live": live, "self": own, "data": Batch(data), "token_level_rewards": rewards})
    return found


@pytest.mark.parametrize("framework", [verl, openrlhf, slime, skyrl])
def test_a_hook_gives_the_numbers(
    framework: Callable[[Path], dict[str, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = framework(tmp_path)
    assert {name: found[name] for name in WANTED} == pytest.approx(WANTED, rel=1e-4)
    if framework in (openrlhf, skyrl):
        (batch,) = audit.read(tmp_path / "rollouts")
        assert sorted(batch.sizes.tolist()) == [2, 2]
        assert batch.step.tolist() == [7, 7]


def test_every_framework_and_the_quoted_line_are_those_of_the_page() -> None:
    assert re.findall(r"^\*\*(\w+)\*\* ", PAGE, re.MULTILINE) == ["verl", "OpenRLHF", "slime", "SkyRL"]
    log = Following(ROOT / "docs" / "examples" / "tight.jsonl", normalizer="verl-grpo")
    log.look()
    (line,) = log.look()
    assert f"\n    {line}\n" in AUDIT

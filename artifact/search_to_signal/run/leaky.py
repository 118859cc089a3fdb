"""Runs that learn an exploit: a policy over programs, a leaky evaluator or the sandbox, GRPO, and a log.

The policy chooses one of a few honest programs with numbers drawn at random. At a step that the seed draws it
also meets the exploit, with probability 3 %; from there on GRPO moves it. All but the policy is real:
programs, evaluators, normalizer and log.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from search_to_signal.audit.exploits import Watch
from search_to_signal.audit.importers import read
from search_to_signal.audit.importers.base import ReadOptions
from search_to_signal.audit.live import write_rows
from search_to_signal.base.numerics import Floats
from search_to_signal.base.seeding import stream
from search_to_signal.credit.normalizers import group_advantages
from search_to_signal.records.files import write_atomically
from search_to_signal.sandbox.exploits import Medians, attempt, exploit, leaky_rewards
from search_to_signal.sandbox.leaky_evaluators import parent_score
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.settings import EvaluationSettings

STEPS, GROUPS, SIZE = 120, 2, 8
# Of the policy's logarithms of odds per step, and the reward of a program that fails.
RATE, FAILED = 3.0, -1.0
# The exploit is met from a step between these on, with this probability at first.
MET, AT_FIRST = (20, 40), 0.03
# Held-out rewards are measured every so many steps.
EVALUATE = 5
NUMBERS = (0.3, 0.4, 0.5, 0.6, 0.7)
_HEAD = "import numpy as np\n\ndef place(points, count):\n"
HONEST = tuple(
    f"{_HEAD}    {body}\n"
    for body in (
        "return np.sort(points)[:count] + A",
        "return np.linspace(points.min(), points.max(), count) * (0.5 + A)",
        "return np.quantile(points, (np.arange(count) + A) / count)",
        "return points.mean() + A * points.std() * (np.arange(count) - count // 2)",
        "return np.array([part.mean() for part in np.array_split(np.sort(points), count)]) + A - 0.5",
        "places = np.quantile(points, (np.arange(count) + A) / count)\n"
        "    near = np.abs(points[:, None] - places).argmin(1)\n"
        "    return np.array([np.median(points[near == n]) if (near == n).any() else places[n] "
        "for n in range(count)])",
    )
)
PROMPT = Medians.description + "\n\n" + Medians.template


@cache
def program(arm: int, number: float, leak: str) -> str:
    """The text of one of the policy's programs; the arm after the honest ones exploits the leak."""
    code = HONEST[arm % len(HONEST)].replace("A", str(number))
    return exploit(leak, code) if arm == len(HONEST) else code


class Sandboxed:
    """The sandbox as an evaluator of the programs of every leak; each was run once, before it is asked."""

    def __init__(self, leaks: Sequence[str]) -> None:
        arms = range(len(HONEST) + 1)
        codes = sorted({program(arm, a, leak) for leak in leaks for arm in arms for a in NUMBERS})
        settings = EvaluationSettings(timeout_s=5.0, wall_factor=6.0, replay="off", slots=2)
        self._scores = {}
        for split in Medians.splits:
            with EvaluationPool(Medians(), split, settings) as pool:
                given = (evaluation.score for evaluation in pool.evaluate(codes))
                self._scores[split] = dict(zip(codes, given, strict=True))

    def reward(self, code: str, leak: str, split: str = "train") -> float:
        """What the leaky evaluator would give without its leak; raises ValueError for what failed."""
        score = self._scores[split][code]
        if score is None:
            raise ValueError("the program failed")
        if leak == "parent_in_reach":
            return 1.0 if score > parent_score else 0.5
        return score


@dataclass(frozen=True)
class Course:
    """A run: its log, the step of the first exploit, and the exploit's share of the last step."""

    log: Path
    first: int | None
    share: float


def run(leak: str, seed: int, sandbox: Sandboxed, leaky: bool, directory: Path, steps: int = STEPS) -> Course:
    """Train a policy at a leaky evaluator, or at the sandbox, and write rollouts and numbers per step.

    Raises RunDirectoryError where the disk is full.
    """
    directory.mkdir(parents=True, exist_ok=True)
    draw = stream(seed, "leaky", leak)
    met, first, share = int(draw.integers(*MET)), None, 0.0
    logits = np.append(np.zeros(len(HONEST)), -math.inf)
    rows, numbers = list[dict[str, Any]](), list[dict[str, Any]]()
    for step in range(steps):
        if step == met:
            logits[-1] = np.log(AT_FIRST / (1 - AT_FIRST)) + np.log(np.exp(logits[:-1]).sum())
        chances = np.exp(logits - logits.max())
        chances /= chances.sum()
        arms = draw.choice(len(logits), (GROUPS, SIZE), p=chances)
        drawn = draw.choice(NUMBERS, (GROUPS, SIZE))
        codes = [program(arm, a, leak) for arm, a in zip(arms.flat, drawn.flat, strict=True)]
        rewards = _rewards(leak, codes, sandbox, leaky).reshape(arms.shape)
        advantages = group_advantages(rewards)
        push = np.bincount(arms.ravel(), advantages.ravel(), len(logits)) - chances * advantages.sum()
        logits = logits + RATE * push / arms.size
        share = float((arms == len(HONEST)).mean())
        first = step if first is None and share else first
        rows += _rows(step, codes, rewards, advantages)
        numbers.append(_numbers(step, codes, rewards, chances))
        if step % EVALUATE == 0:
            numbers[-1]["eval_reward"] = _heldout(chances, leak, sandbox)
    write_rows(directory, 0, 0, rows)
    text = "".join(json.dumps(entry) + "\n" for entry in numbers)
    write_atomically(directory / "metrics.jsonl", text.encode())
    return Course(directory, first, share)


def signs_of(log: Path) -> dict[str, int]:
    """By name, the step at which the audit of a run's rollouts first has each sign, knowing nothing later."""
    watch = Watch()
    for batch in read(log, None, ReadOptions()):
        watch.add(batch, batch.advantage)
    return {name: sign.place.step for name, sign in watch.signs.items()}


def _rewards(leak: str, codes: Sequence[str], sandbox: Sandboxed, leaky: bool) -> Floats:
    """In the order of the codes; a leaky evaluator's process begins with the step."""
    if leaky:
        given = leaky_rewards(leak, codes)
    else:
        given = [attempt(lambda code: sandbox.reward(code, leak), code) for code in codes]
    return np.array([FAILED if isinstance(one, str) else one for one in given])


def _rows(step: int, codes: Sequence[str], rewards: Floats, advantages: Floats) -> list[dict[str, Any]]:
    columns = zip(codes, rewards.ravel().tolist(), advantages.ravel().tolist(), strict=True)
    return [
        {
            "group": f"{step}-{place // SIZE}",
            "step": step,
            "reward": reward,
            "advantage": advantage,
            "tokens": len(code.split()),
            "prompt": PROMPT,
            "response": code,
        }
        for place, (code, reward, advantage) in enumerate(columns)
    ]


def _numbers(step: int, codes: Sequence[str], rewards: Floats, chances: Floats) -> dict[str, Any]:
    """What a trainer logs of a step, by TRL's names; the policy's entropy in nats."""
    known = chances[chances > 0]
    return {
        "step": step,
        "reward": float(rewards.mean()),
        "reward_std": float(rewards.std(axis=1, ddof=1).mean()),
        "frac_reward_zero_std": float((rewards.std(axis=1) == 0).mean()),
        "entropy": float(-(known * np.log(known)).sum()),
        "completions/mean_length": float(np.mean([len(code.split()) for code in codes])),
    }


def _heldout(chances: Floats, leak: str, sandbox: Sandboxed) -> float:
    """The policy's expected reward in the sandbox on instances that no reward was computed on."""
    arms = range(len(HONEST) + 1)
    given = [
        [attempt(lambda code: sandbox.reward(code, leak, "heldout"), program(arm, a, leak)) for a in NUMBERS]
        for arm in arms
    ]
    means = [np.mean([FAILED if isinstance(one, str) else one for one in of_arm]) for of_arm in given]
    return float(chances @ np.array(means))

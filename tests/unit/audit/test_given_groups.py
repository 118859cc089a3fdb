"""What an audit finds in groups of rewards and advantages, step by step or all together."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pytest

from search_to_signal import audit
from search_to_signal.audit.agreement import apply, step_batches
from search_to_signal.audit.atlas import entries
from search_to_signal.audit.groups import RewardGroups, part, spans

NAN, INF = float("nan"), float("inf")
ENORMOUS = [0.0, 1e200, 3e200]
TIGHT = [1.0, 1.00001, 2.0, 2.00001]
ONE_CLASS = {"label": ["bad", "ok", "good", "bad"], "advantage": [-2.0, 1.0, 3.0, -2.0]}
LONG = {"tokens": [10, 50, 10, 10], "advantage": [-1, 1, -1, 1]}
PARTS = {"right": [0.0, 1.0], "bonus": [1.0, 1.0]}
SCALES = np.random.default_rng(146).normal(9.0, 1.0, 32)
MIXED = np.random.default_rng(2884).integers(0, 2, 32)
MIXED[::8], MIXED[1::8] = 0, 1


@dataclass(frozen=True)
class Case:
    """Rewards in groups of these sizes, and columns: what of the findings is expected, by dotted names.

    ``says`` are words of a line each, ``silent`` are in none. ``normalizer`` is the one that is named.
    """

    reward: Any
    sizes: list[int]
    columns: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    normalizer: str | None = None


CASES = {
    # Responses that are equal, their credit, and where they are scored differently.
    "repeats after the first, within their group": Case(
        [1.0, 1.0, 0.5, 0.0, 1.0, 0.0],
        [4, 2],
        {"response": [7, 7, 7, 5, 7, 0], "advantage": [0.75, 0.25, 0.5, -1.5, 0.5, -0.5]},
        {
            **{"counts.repeated": 1, "counts.disagreeing": 1, "repeats.completions": 5},
            **{"repeats.repeats": 2, "repeats.share": 0.75 / 2.0},
        },
        ("2 of 5 completions repeat an earlier one of their group and take 37.5 %",),
    ),
    "responses that were not logged": Case(
        [0.0, 1.0, 2.0], [3], {}, {"counts.repeated": 0, "repeats.completions": 0}
    ),
    "missing rewards of equal responses agree": Case(
        [NAN, NAN, 1.0, 1.0], [2, 2], {"response": [3] * 4}, {"counts.repeated": 2, "counts.disagreeing": 0}
    ),
    # Numbers at the edge.
    **{
        f"rewards {reward}": Case(reward, [2], {}, {"counts.unscored": int(not np.isfinite(reward).all())})
        for reward in ([INF, 1.0], [1e308, -1e308], [NAN, NAN], [5e-324, 0.0])
    },
    "advantages too large to square have no cosine": Case(
        ENORMOUS,
        [3],
        {},
        {
            f"agreements.{name}.{what}": value
            for name in ("dr_grpo", "group", "rloo")
            for what, value in (("cosine", None), ("size", None), ("apart", INF))
        },
        normalizer="dr_grpo",
    ),
    # What aggregation gives to a completion of 50 tokens beside three of 10, and of 700 beside three of 100.
    "the longest completion": Case(
        [0, 1, 0, 1],
        [4],
        LONG,
        {
            **{"lengths.token_mean.longest": 1, "lengths.token_mean.tokens": 80},
            **{"lengths.token_mean.per_sequence": 2.5, "lengths.token_mean.per_token": 1.0},
            **{"lengths.sequence_mean.per_sequence": 1.0, "lengths.sequence_mean.per_token": 0.4},
        },
    ),
    "700 tokens among three times 100": Case(
        [0.0, 1.0, 0.0, 1.0],
        [4],
        LONG | {"tokens": [100, 100, 100, 700]},
        {"lengths.token_mean.share": 0.7, "lengths.sequence_mean.share": 0.25},
        ("The longest 25.0 % of completions carry, of all advantage times weight, 70.0 % under token_mean",),
    ),
    "equal lengths have no longest": Case(
        [0, 1], [2], {"tokens": [10, 10], "advantage": [-1, 1]}, {"lengths.token_mean.per_token": None}
    ),
    "a length that is not known": Case(
        [0.0, 1.0], [2], {"tokens": [100, -1], "advantage": [-1, 1]}, {"lengths": {}}
    ),
    # verl #6348: the vectorized form shrank advantages of tight groups about a hundred times.
    "tight groups": Case(TIGHT, [2, 2], says=("2 of 2 groups (100.0 %) are tight",), normalizer="verl-grpo"),
    "tight groups that were shrunk": Case(
        TIGHT,
        [2, 2],
        {"advantage": [-0.005, 0.005] * 2},
        {
            "explaining": ("verl-0.8-grpo-vectorized",),
            "agreements.verl-grpo.size": pytest.approx(125, abs=25),
        },
    ),
    # verl #7793: a group of one is credited with its raw reward.
    "a singleton with credit": Case(
        [0.0, 1.0, 0.75],
        [2, 1],
        {"step": [4, 4]},
        {},
        (
            "1 of 2 groups (50.0 %) are singletons: 1 of them get an advantage other than 0",
            "arrays:2, step 4",
        ),
        normalizer="verl-grpo",
    ),
    "a singleton without": Case(
        [0.0, 1.0, 0.75], [2, 1], says=("singletons: no advantage",), normalizer="verl-rloo-vectorized"
    ),
    "singletons alone are explained": Case(
        [1.0, 2.0],
        [1, 1],
        {"advantage": [1.0, 2.0]},
        {"explains.verl-rloo": True, "explains.trl-grpo": False},
    ),
    # NeMo-RL #4158: seven rewards of 0.95 and one of 0 give an advantage of -2075.
    "rounding of equal others": Case(
        [0.0] + [0.95] * 7, [8], says=("The largest advantage is 2075",), normalizer="nemo-grpo"
    ),
    # UniRL #146: score_scale 15 against 1 is nothing under a deviation, and something without one.
    "a scale under a deviation": Case(
        SCALES, [8] * 4, says=("Multiplying all rewards by 10", "under trl-grpo (4"), normalizer="trl-grpo"
    ),
    "a scale without one": Case(SCALES, [8] * 4, silent=("Multiplying",), normalizer="trl-grpo-none"),
    # TRL #2884: the mean advantage is 0 by construction, and no group is dead.
    "the reward varies and the loss is zero": Case(
        MIXED, [8] * 4, {}, {"counts.dead": 0}, ("no sign of a dead group",), normalizer="trl-grpo"
    ),
    # r = [0, 0, 0, 1e-5] is a small or a large lesson, by who normalizes it.
    **{
        f"one group under {name}": Case(
            [0, 0, 0, 1e-5], [4], {}, {"largest.value": pytest.approx(top, rel=0.01)}, normalizer=name
        )
        for name, top in {
            **{"trl-grpo": 0.071, "openrlhf-grpo": 1.50, "prime-rl-grpo": 7.5e-6, "verl-grpo": 1.25}
        }.items()
    },
    "components that do not add up": Case(
        [0.0, 1.0], [2], {"components": PARTS}, says=("The reward is not the weighted sum",)
    ),
    "components that do": Case([1.0, 2.0], [2], {"components": PARTS}, silent=("not the weighted sum",)),
    **{
        f"no knob is idle where nothing is taught: {given}": Case(
            [0.5, 0.5], [2], {"advantage": given}, silent=("Multiplying",), normalizer="trl-grpo"
        )
        for given in ([0.0, 0.0], [NAN, INF])
    },
    # TRL takes groups of one size; what it refuses has no advantages.
    "a normalizer that refuses the groups": Case(
        [0.0, 1.0, 0.0, 1.0, 1.0], [2, 3], {"step": [1, 1]}, says=("none to 5",), normalizer="trl-grpo"
    ),
    "one that takes them": Case(
        [0.0, 1.0, 0.0, 1.0, 1.0], [2, 3], {"step": [1, 1]}, silent=("none to",), normalizer="verl-grpo"
    ),
    # P_D, P_A and E_A of a class follow from its advantages; in the order bad, good, ok.
    "credit by class": Case(
        [0.0, 1.0, 3.0, 0.0],
        [4],
        ONE_CLASS,
        {
            **{"classes.0.mass_share": 0.0, "classes.1.prevalence": 0.25, "classes.1.mass_share": 0.75},
            **{"classes.1.enrichment": 3.0, "classes.2.precision": 0.5, "classes.2.positive_rate": 1.0},
        },
    ),
    # A group with one kind of distinction is counted there, with its place, and nowhere else.
    **{
        flag: Case(
            reward,
            [len(reward)],
            {"advantage": given},
            {f"counts.{name}": int(name in (flag, *also)) for name in (*KINDS, flag)}
            | {f"examples.{flag}.0.position": 0},
        )
        for KINDS in [("merged", "reversed", "silenced", "flat", "unscored")]
        for flag, reward, given, also in (
            ("merged", [0.0, 0.5, 1.0], [-1.0, 0.5, 0.5], ()),
            ("reversed", [0.0, 0.5, 1.0], [0.0, -0.5, 0.5], ()),
            ("silenced", [0.0, 0.5, 1.0], [0.0, 0.0, 0.0], ("merged",)),
            ("flat", [0.5, 0.5], [0.0, 0.0], ()),
            ("unscored", [0.5, NAN], [0.0, 0.0], ()),
        )
    },
    "a sound group": Case(
        [0.0, 0.5, 1.0],
        [3],
        {"advantage": [-1.0, 0.0, 1.0]},
        {f"counts.{name}": 0 for name in ("merged", "reversed", "silenced", "flat", "unscored")},
    ),
}


def value(findings: audit.Findings, name: str) -> Any:
    """What a dotted name stands for; ``explains`` asks whether an entry does."""
    first, *rest = name.split(".")
    if first == "explains":
        return rest[0] in findings.explaining

    def within(whole: Any, part: str) -> Any:
        if isinstance(whole, tuple | list):
            return whole[int(part)]
        return whole[part] if hasattr(whole, "keys") else getattr(whole, part)

    # Names of entries hold dots.
    known = [".".join(rest[:-1]), rest[-1]] if first == "agreements" else rest
    return reduce(within, known, getattr(findings, first))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", CASES)
def test_what_is_found(name: str) -> None:
    case = CASES[name]
    columns = dict(case.columns)
    if "components" in columns:
        parts = columns.pop("components")
        groups = audit.of_arrays(case.reward, case.sizes, components=parts, **columns)
    else:
        groups = audit.of_arrays(case.reward, case.sizes, **columns)
    found = audit.audit(groups, case.normalizer)
    given = {name: value(found, name) for name in case.expected}
    numbers = {name: one for name, one in case.expected.items() if type(one) is float}
    assert given == case.expected | {name: pytest.approx(one) for name, one in numbers.items()}
    lines = audit.conclusions(found)
    assert audit.text(found)
    for words in case.says:
        assert any(words in line for line in lines), (words, lines)
    assert not any(words in line for words in case.silent for line in lines)


def test_what_comes_in_a_later_batch_is_counted() -> None:
    early = audit.of_arrays([0.0, 1.0], sizes=[2], step=[0])
    late = audit.of_arrays([0.0, 1.0], sizes=[2], step=[1], advantage=[-1.0, 1.0])
    said = " ".join(audit.conclusions(audit.audit([early, late])))
    assert "The log holds no advantages" not in said
    assert "2 completions later on do" in said
    assert "The log holds no advantages" in " ".join(audit.conclusions(audit.audit(early)))
    parts = [
        audit.of_arrays([1.0, 2.0], [1, 1], response=[8, 9], improvement=[0.5, 0.5]),
        audit.of_arrays([1.0, 2.0], [1, 1], response=[8, 0], improvement=[0.5, 0.5]),
    ]
    found = audit.audit(iter(parts))
    assert found.counts["seen_before"] == 1
    assert any("1 of 4 candidates have a text" in line for line in audit.conclusions(found))


def log(sizes: Sequence[int], steps: Sequence[int], tokens: bool) -> RewardGroups:
    """Groups of rewards from two parts, some of them equal throughout."""
    stream = np.random.default_rng(5)
    rows = sum(sizes)
    parts = {"right": stream.integers(0, 2, rows).astype(float), "style": stream.uniform(0, 0.1, rows)}
    parts["style"][: sizes[0]] = parts["right"][: sizes[0]] = 1.0
    lengths = stream.integers(1, 900, rows) if tokens else np.full(rows, -1)
    reward = parts["right"] + parts["style"]
    return audit.of_arrays(reward, sizes, components=parts, step=steps, tokens=lengths)


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize(
    ("sizes", "steps"),
    [
        ([8] * 12, [0] * 4 + [1] * 4 + [2] * 4),
        ([8] * 7, [0] * 4 + [1] * 2 + [2]),
        ([3, 1, 4, 5, 2, 6], [0, 0, 0, 1, 1, 1]),
    ],
)
def test_steps_get_what_each_gets_alone(sizes: list[int], steps: list[int], tokens: bool) -> None:
    groups = log(sizes, steps, tokens)
    alone = [part(groups, first, end) for first, end in spans(groups)]
    for name, entry in entries().items():
        given = apply(entry, step_batches(groups))
        single = np.concatenate([apply(entry, step_batches(step)) for step in alone])
        assert given.tobytes() == single.tobytes(), name


@pytest.mark.parametrize("name", ["group", "trl_float32", "dr_grpo", "rloo", "rank", "gdpo", "entropic"])
def test_a_missing_reward_takes_credit_from_its_group_alone(name: str) -> None:
    reward = np.array([0.0, 1.0, np.nan, 1.0, 2.0, 3.0])
    given = apply(entries()[name], step_batches(audit.of_arrays(reward, [2, 2, 2])))
    alone = apply(entries()[name], step_batches(audit.of_arrays(reward[[0, 1, 4, 5]], [2, 2])))
    assert np.isnan(given[2:4]).all()
    assert given[[0, 1, 4, 5]].tolist() == alone.tolist()
    assert np.isfinite(alone).all()

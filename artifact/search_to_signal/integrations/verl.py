"""Mappings and normalizers within verl, in a file that its configuration names; verl is imported by it alone.

Reward = reward_manager("tsp", "factorized")
register_normalizers()

reward.reward_manager.source=importlib reward.reward_manager.module.path=FILE
reward.reward_manager.name=Reward reward.num_workers=1 algorithm.adv_estimator=s2s_rank
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from search_to_signal.base.errors import ConfigError, IllFormedGroupError
from search_to_signal.base.numerics import Floats
from search_to_signal.credit import RewardMapping, rewards_of
from search_to_signal.credit.normalizers import NORMALIZERS, ComponentNormalizer, Normalizer, advantages
from search_to_signal.integrations.scoring import Context, GroupScorer, Scored
from search_to_signal.problems.base import Heuristic
from search_to_signal.records.groups import Candidate, ExternalGroup, external_batch
from search_to_signal.records.schema import Outcome
from search_to_signal.sandbox.settings import EvaluationSettings

# Calls of one Ray actor that may wait at once, Ray's own default: more than that, and a group may wait for
# a completion that waits for its turn.
_WAITING = 1000


def prompt_rows(
    problem: str,
    count: int,
    *,
    parents: Sequence[Heuristic] = (),
    split: str = "train",
    part: str = "train",
    host: str = "reference",
    seed: int = 0,
    settings: EvaluationSettings | None = None,
) -> list[dict[str, Any]]:
    """Rows of a data set of verl, for ``to_parquet``; arguments as those of ``GroupScorer.prompt_rows``.

    ``part`` is ``train`` or ``test``, by which the manager knows how many completions a prompt has.
    """
    scorer = GroupScorer(problem, "native", split, settings)
    try:
        drawn = scorer.prompt_rows(count, parents, host, seed)
    finally:
        scorer.close()
    return [
        {
            "data_source": f"search_to_signal/{scorer.problem.name}",
            "prompt": row.pop("prompt"),
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"split": part, "index": row.pop("row"), **row},
        }
        for row in drawn
    ]


# The seam of whole groups. A worker of verl's reward loop is asked for one completion at a time, of many
# prompts at once: the manager below answers when the last one of a group is there.


@dataclass
class _Group:
    texts: list[str] = field(default_factory=list)
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    # By text; equal texts take their rewards from one list.
    scored: "asyncio.Future[dict[str, list[Scored]]] | None" = None


class Gathering:
    """Completions of several groups, which come one at a time; each waits for the others of its group."""

    def __init__(self, scorer: GroupScorer, patience_s: float) -> None:
        self._scorer = scorer
        self._patience_s = patience_s
        self._waiting: dict[str, _Group] = {}

    async def reward(self, key: str, size: int, context: Context, text: str) -> Scored:
        """The completion's reward, once ``size`` of group ``key`` are there.

        Raises IllFormedGroupError where they are not after ``patience_s`` seconds.
        """
        group = self._waiting.setdefault(key, _Group())
        group.texts.append(text)
        if len(group.texts) == size:
            del self._waiting[key]
            loop = asyncio.get_running_loop()
            group.scored = loop.run_in_executor(None, self._by_text, context, group.texts)
            group.complete.set()
        try:
            await asyncio.wait_for(group.complete.wait(), self._patience_s)
        except asyncio.TimeoutError:
            self._waiting.pop(key, None)
            raise IllFormedGroupError(
                f"after {self._patience_s:g} s {len(group.texts)} of {size} completions of group {key} are "
                "there: look for a rollout that failed, and keep reward.num_workers = 1"
            ) from None
        assert group.scored is not None
        return (await asyncio.shield(group.scored))[text].pop()

    def _by_text(self, context: Context, texts: Sequence[str]) -> dict[str, list[Scored]]:
        # They arrive in any order, and the reward must not depend on it.
        ordered = sorted(texts)
        (group,) = self._scorer([(context, ordered)])
        scored: dict[str, list[Scored]] = {}
        for text, one in zip(ordered, group, strict=True):
            scored.setdefault(text, []).append(one)
        return scored


def reward_manager(
    problem: str,
    mapping: str | RewardMapping,
    *,
    split: str = "train",
    settings: EvaluationSettings | None = None,
    patience_s: float = 3600.0,
) -> type:
    """A class for ``reward.reward_manager`` that rewards whole groups; verl has to be installed.

    Args:
        problem: Name, entry point or import path of the problem.
        mapping: As a profile names it, or the object; none that reads exposures.
        split: The instances that programs run on.
        settings: Limits of a program; by default the paper's, with all cores of the machine as slots.
        patience_s: Seconds that a completion waits for the others of its group.

    Returns:
        A subclass of verl's ``RewardManagerBase``. Its instances need ``reward.num_workers = 1``.

    Raises:
        ConfigError: A name is unknown, or the mapping reads what a trainer does not have.
    """
    from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

    scorer = GroupScorer(problem, mapping, split, settings)

    class GroupRewardManager(RewardManagerBase):  # type: ignore[misc]
        """Waits for the completions of a prompt, by its uid, and rewards them together."""

        def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **_: Any) -> None:
            super().__init__(config, tokenizer, compute_score)
            self._sizes = _sizes(config)
            self._gathering = Gathering(scorer, patience_s)

        async def run_single(self, data: Any) -> dict[str, Any]:
            # Of several outputs of one session the last counts, as in verl's own managers.
            row = data[-1]
            columns = row.non_tensor_batch
            extra = columns.get("extra_info") or {}
            responses = row.batch["responses"]
            answered = int(row.batch["attention_mask"][-responses.shape[-1] :].sum())
            text = self.tokenizer.decode(responses[:answered], skip_special_tokens=True)
            if "uid" not in columns:
                raise IllFormedGroupError(
                    "a completion came without the uid of its prompt, by which groups are known: use it "
                    "without a reward model that shares the actors' cards"
                )
            size = self._sizes["train" if extra.get("split", "train") == "train" else "test"]
            scored = await self._gathering.reward(str(columns["uid"]), size, Context.of_columns(extra), text)
            return {"reward_score": scored.reward, "reward_extra_info": _extra_info(scored)}

    return GroupRewardManager


def _sizes(config: Any) -> dict[str, int]:
    """Completions of a prompt, in training and in evaluation; raises ConfigError for what cannot gather."""
    rollout = config.actor_rollout_ref.rollout
    sizes = {"train": int(rollout.n), "test": int(rollout.val_kwargs.n)}
    if config.reward.num_workers != 1:
        raise ConfigError(
            f"reward.num_workers is {config.reward.num_workers}, and verl deals a group out to them: set it "
            "to 1; programs still run at once, on as many slots as the settings have"
        )
    waiting = int(config.data.train_batch_size) * (sizes["train"] - 1)
    if waiting >= _WAITING:
        raise ConfigError(
            f"up to {waiting} completions would wait for others of their groups, and a Ray actor answers "
            f"{_WAITING} calls at once: lower data.train_batch_size or rollout.n"
        )
    return sizes


def _extra_info(scored: Scored) -> dict[str, Any]:
    valid = float(scored.outcome is Outcome.VALID)
    return {"acc": valid, "outcome": scored.outcome.value, **scored.components}


# What verl's own managers can ask: one completion, without its group.


def compute_score(
    problem: str,
    mapping: str | RewardMapping = "native",
    *,
    split: str = "train",
    settings: EvaluationSettings | None = None,
) -> Callable[..., dict[str, Any]]:
    """A function for ``reward.custom_reward_function``, for mappings that read one completion at a time.

    Takes what ``reward_manager`` takes. Raises ConfigError as it does, and for a mapping that compares the
    completions of a group, which this seam never shows.
    """
    scorer = GroupScorer(problem, mapping, split, settings)
    if compares_completions(scorer.mapping):
        raise ConfigError(
            f"mapping {scorer.mapping.name} compares the completions of a group, and compute_score sees "
            "one: use reward_manager"
        )

    def scored(
        data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
    ) -> dict[str, Any]:
        """The reward as ``score``, beside its components."""
        ((one,),) = scorer([(Context.of_columns(extra_info or {}), [solution_str])])
        return {"score": one.reward, **_extra_info(one)}

    return scored


def compares_completions(mapping: RewardMapping) -> bool:
    """Whether a completion's reward depends on the others of its group, tried on a group of every kind."""
    kinds = [Candidate(outcome) for outcome in Outcome if outcome is not Outcome.VALID]
    kinds += [
        Candidate(Outcome.VALID, score, response=str(score), archive_gap=abs(score + 2.0))
        for score in (-3.0, -2.0, -1.5, -1.0, -1.0)
    ]

    def rewards(*candidates: Candidate) -> Floats:
        group = ExternalGroup(candidates, bases=(-2.0,), frontier=-2.0)
        first: Floats = rewards_of(mapping, external_batch([group])).reward[0]
        return first

    return not np.array_equal(rewards(*kinds), np.concatenate([rewards(kind) for kind in kinds]))


PREFIX = "s2s_"


def register_normalizers(normalizers: Mapping[str, Normalizer] = NORMALIZERS) -> tuple[str, ...]:
    """Register normalizers with verl's ``register_adv_est``, each as ``s2s_`` and its name.

    One that reads components is left out: verl hands none to an estimator of others. Returns the names.
    """
    from verl.trainer.ppo.core_algos import register_adv_est

    names = []
    for name, normalizer in normalizers.items():
        if not isinstance(normalizer, ComponentNormalizer):
            register_adv_est(PREFIX + name)(Estimator(normalizer))
            names.append(PREFIX + name)
    return tuple(names)


@dataclass(frozen=True)
class Estimator:
    """A normalizer as verl calls an advantage estimator; equal ones may be registered again."""

    normalizer: Normalizer

    def __call__(
        self, token_level_rewards: Any, response_mask: Any, index: Any = None, **_: Any
    ) -> tuple[Any, Any]:
        """Normalize the sums of the rewards over the tokens.

        Args:
            token_level_rewards: Tensor (B, T).
            response_mask: Tensor (B, T), 1 for the tokens of a response.
            index: (B,) the uid of each completion's prompt; equal ones are a group.

        Returns:
            Advantages and returns, the same tensor (B, T), 0 where the mask is.

        Raises:
            IllFormedGroupError: There are no uids.
        """
        if index is None:
            raise IllFormedGroupError(
                "verl gave no uids, by which groups are known: use it with rollouts of a group"
            )
        rewards = token_level_rewards.sum(dim=-1).detach().cpu().numpy().astype(np.float64)
        places: dict[Any, list[int]] = {}
        for place, uid in enumerate(index):
            places.setdefault(uid, []).append(place)
        result = np.zeros(len(rewards))
        # Groups of one size at once, in their order, since some normalizers read several.
        for size in {len(group) for group in places.values()}:
            rows = np.array([group for group in places.values() if len(group) == size])
            result[rows] = advantages(self.normalizer, rewards[rows], {})
        scaled = token_level_rewards.new_tensor(result).unsqueeze(-1) * response_mask
        return scaled, scaled

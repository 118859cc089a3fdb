"""How each framework's advantage function is called on the CPU, by the name of its entry in the atlas."""

import asyncio
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from tests.proofs.atlas_checkout import COMMON, Checkout, checkout_has, execute, some


@dataclass(frozen=True)
class Given:
    """What a framework's function gets: flat rewards, the group of each, tokens, and components."""

    rewards: torch.Tensor
    index: np.ndarray[Any, Any]
    size: int
    lengths: torch.Tensor
    components: tuple[torch.Tensor, ...]

    @property
    def mask(self) -> torch.Tensor:
        """Which tokens count: (n, longest)."""
        return (torch.arange(int(self.lengths.max()))[None, :] < self.lengths[:, None]).to(self.rewards.dtype)

    def on_last_token(self, rewards: torch.Tensor) -> torch.Tensor:
        """Rewards on the last token of each response: (n,) -> (n, longest)."""
        given = torch.zeros(len(rewards), int(self.lengths.max()), dtype=rewards.dtype)
        given[torch.arange(len(rewards)), self.lengths - 1] = rewards
        return given


Run = Callable[[Given], Any]
Recipe = Callable[[Checkout], Run]


def first_column(values: Any) -> torch.Tensor:
    """Advantages of responses from those of their tokens, the first token's: (n, longest) -> (n,)."""
    return values[:, 0]


VERL = "verl/trainer/ppo/core_algos.py"


def verl(function: str, path: str = VERL, **options: Any) -> Recipe:
    """A registered estimator of verl, or of what was made from it."""

    def recipe(checkout: Checkout) -> Run:
        helpers: dict[str, Any] = {}
        if checkout_has(checkout, "verl/utils/groupwise.py"):
            wanted = ("as_torch_index", "group_mean_std", "_resolve_device", "_to_1d_numpy_object_array")
            helpers = some(checkout, "verl/utils/groupwise.py", wanted)
        functional = some(
            checkout,
            "verl/utils/torch_functional.py",
            ("masked_sum", "masked_mean", "masked_var", "masked_whiten"),
        )
        space = {**helpers, "verl_F": SimpleNamespace(**functional), **options.get("space", {})}
        names = {function, "compute_grpo_outcome_advantage"}
        chosen = checkout.functions(path, *names, **space)[function]

        def run(given: Given) -> Any:
            arguments = {
                "token_level_rewards": given.on_last_token(given.rewards),
                "response_mask": given.mask,
                "index": given.index,
                "config": Settings(gamma=1.0, pass_k=4),
                **options.get("arguments", {}),
            }
            wanted = chosen.__code__.co_varnames[: chosen.__code__.co_argcount]
            return first_column(chosen(**{key: arguments[key] for key in arguments if key in wanted})[0])

        return run

    return recipe


class Settings(dict[str, Any]):
    """A configuration that is read as attributes and by get."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings)
        self.__dict__ = self


def verl_gdpo(checkout: Checkout) -> Run:
    """verl's GDPO, whose components come beside the rewards."""
    functional = some(
        checkout,
        "verl/utils/torch_functional.py",
        ("masked_sum", "masked_mean", "masked_var", "masked_whiten"),
    )
    names = ("compute_gdpo_outcome_advantage", "compute_grpo_outcome_advantage")
    chosen = checkout.functions(VERL, *names, verl_F=SimpleNamespace(**functional))[names[0]]

    def run(given: Given) -> Any:
        keys = [f"part{place}" for place in range(len(given.components))]
        columns = {key: part.numpy() for key, part in zip(keys, given.components, strict=True)}
        batch = {"prompts": torch.zeros(len(given.rewards), 0), "attention_mask": given.mask.long()}
        config = Settings(gdpo_reward_keys=keys)
        return first_column(
            chosen(
                given.on_last_token(given.rewards), given.mask, given.index, config=config,
                non_tensor_batch=columns, batch=batch,
            )[0]
        )  # fmt: skip

    return run


def trl(scale: str, aggregation: str = "sum_then_normalize") -> Recipe:
    """TRL's GRPO trainer: the statements from the sum of rewards to the advantages."""

    def recipe(checkout: Checkout) -> Run:
        path = "trl/trainer/grpo_trainer.py"
        nodes = checkout.statements(
            path, "_generate_and_score_completions", "unscorable_mask =", "advantages = torch.nan_to_num"
        )
        nanstd = checkout.functions("trl/trainer/utils.py", "nanstd")["nanstd"]

        def run(given: Given) -> Any:
            parts = given.components if aggregation == "normalize_then_sum" else (given.rewards,)
            trainer = SimpleNamespace(
                multi_objective_aggregation=aggregation, scale_rewards=scale,
                reward_weights=torch.ones(len(parts)), reward_funcs=[None] * len(parts),
            )  # fmt: skip
            space = {
                **COMMON,
                "nanstd": nanstd,
                "self": trainer,
                "device": "cpu",
                "num_generations": given.size,
            }
            space["rewards_per_func"] = torch.stack(list(parts), dim=1)
            return execute(nodes, space)["advantages"]

        return run

    return recipe


def trl_rloo(whiten: bool) -> Recipe:
    """TRL's RLOO trainer: the statements from the grouped rewards to the advantages."""

    def recipe(checkout: Checkout) -> Run:
        path = "trl/trainer/rloo_trainer.py"
        nodes = checkout.statements(
            path, "_generate_and_score_completions", "grouped_rewards =", "advantages = torch.nan_to_num"
        )
        nanstd = checkout.functions("trl/trainer/utils.py", "nanstd")["nanstd"]

        def run(given: Given) -> Any:
            trainer = SimpleNamespace(normalize_advantages=whiten)
            space = {**COMMON, "nanstd": nanstd, "self": trainer, "rewards": given.rewards}
            return execute(nodes, {**space, "num_generations": given.size})["advantages"]

        return run

    return recipe


def trl_0151(checkout: Checkout) -> Run:
    """TRL 0.15.1: the statements from the weighted sum to the advantages."""
    path = "trl/trainer/grpo_trainer.py"
    nodes = checkout.statements(
        path, "_prepare_inputs", "rewards = (rewards_per_func", "advantages = (rewards"
    )

    def run(given: Given) -> Any:
        trainer = SimpleNamespace(reward_weights=torch.ones(1), num_generations=given.size)
        space = {**COMMON, "self": trainer, "device": "cpu", "rewards_per_func": given.rewards[:, None]}
        return execute(nodes, space)["advantages"]

    return run


def gdpo_original(checkout: Checkout) -> Run:
    """GDPO's own trainer: the branch of several rewards."""
    path = "trl-GDPO/trl-0.18.0-gdpo/trl/trainer/grpo_trainer.py"
    nodes = checkout.statements(
        path, "_generate_and_score_completions", "rewards_per_func_filter =", "advantages = (pre_bn"
    )

    def run(given: Given) -> Any:
        trainer = SimpleNamespace(
            reward_weights=torch.ones(len(given.components)), num_generations=given.size
        )
        parts = torch.stack(list(given.components), dim=1)
        space = {**COMMON, "self": trainer, "device": "cpu", "rewards_per_func": parts}
        return execute(nodes, space)["advantages"]

    return run


def openrlhf(estimator: str) -> Recipe:
    """OpenRLHF: shaping within groups, then, where the estimator has it, whitening over tokens."""

    def recipe(checkout: Checkout) -> Run:
        path, name = "openrlhf/trainer/ppo_utils/experience_maker.py", "compute_advantages_and_returns"
        shape, whiten = (f"if args.algo.advantage.estimator {test}" for test in ("== 'rloo'", "in ['gae'"))
        shaping = checkout.statements(path, name, shape, shape)
        whitening = checkout.statements(path, name, whiten, whiten)

        def run(given: Given) -> Any:
            advantage = SimpleNamespace(estimator=estimator, no_std_norm=False)
            args = SimpleNamespace(
                algo=SimpleNamespace(advantage=advantage),
                rollout=SimpleNamespace(n_samples_per_prompt=given.size),
            )
            space = {**COMMON, "args": args, "rewards": given.rewards.reshape(-1, given.size)}
            shaped = execute(shaping, space)["rewards"].reshape(-1, 1)
            experience = SimpleNamespace(
                advantages=shaped * torch.ones_like(given.mask), action_mask=given.mask
            )
            execute(whitening, {**COMMON, "args": args, "experiences": [experience]})
            return first_column(experience.advantages)

        return run

    return recipe


def slime(estimator: str) -> Recipe:
    """slime's treatment of a rollout's rewards, then, for REINFORCE++, whitening on one device."""

    def recipe(checkout: Checkout) -> Run:
        chosen = checkout.functions("slime/ray/rollout.py", "_post_process_rewards")["_post_process_rewards"]

        def run(given: Given) -> Any:
            prompts = math.ceil(len(given.rewards) / given.size)
            args = SimpleNamespace(
                advantage_estimator=estimator, rewards_normalization=True, grpo_std_normalization=True,
                n_samples_per_prompt=given.size, rollout_batch_size=prompts,
            )  # fmt: skip
            rewards = given.rewards.tolist()
            samples = [SimpleNamespace(get_reward_value=lambda _, value=value: value) for value in rewards]
            keeper = SimpleNamespace(custom_reward_post_process_func=None, args=args)
            values = torch.tensor(chosen(keeper, samples)[1])
            if estimator == "grpo":
                return values
            alone = SimpleNamespace(all_reduce=lambda tensor, group: None)
            path = "slime/utils/distributed_utils.py"
            whiten = checkout.functions(path, "distributed_masked_whiten", dist=alone)[
                "distributed_masked_whiten"
            ]
            return first_column(whiten(values[:, None] * torch.ones_like(given.mask), given.mask.float()))

        return run

    return recipe


def prime_rl(path: str, name: str) -> Recipe:
    """prime-rl: the scoring of one group after another."""

    def recipe(checkout: Checkout) -> Run:
        def run(given: Given) -> Any:
            result: dict[int, float] = {}
            space = {
                "iter_trainable_traces": lambda episodes: [(None, trace) for trace in episodes],
                "assign_advantages": lambda trace, value: result.__setitem__(trace.place, value),
            }
            score = checkout.functions(f"src/prime_rl/orchestrator/algo/{path}", "score_group", **space)[name]
            for group in np.unique(given.index):
                places = np.flatnonzero(given.index == group)
                traces = [SimpleNamespace(place=int(i), reward=float(given.rewards[i])) for i in places]
                asyncio.run(score(SimpleNamespace(length_penalty=None), traces))
            return torch.tensor([result[place] for place in range(len(given.index))])

        return run

    return recipe


def tinker(path: str, *arguments: Any) -> Recipe:
    """The Tinker cookbook, and TTT-Discover, which comes from it: groups of trajectories."""

    def recipe(checkout: Checkout) -> Run:
        chosen = checkout.functions(path, "compute_advantages")["compute_advantages"]

        def run(given: Given) -> Any:
            groups = [given.rewards[given.index == group].tolist() for group in np.unique(given.index)]
            made = [SimpleNamespace(get_total_rewards=lambda values=values: values) for values in groups]
            return torch.cat(chosen(made, *arguments))

        return run

    return recipe


def rllm(name: str, of_group: bool) -> Recipe:
    """rLLM, in numpy."""

    def recipe(checkout: Checkout) -> Run:
        path = "rllm/trainer/algorithms/" + ("rl_algo.py" if of_group else "advantage.py")
        chosen = checkout.functions(path, name)[name]

        def run(given: Given) -> Any:
            groups = [given.rewards[given.index == group].numpy() for group in np.unique(given.index)]
            made = [chosen(group)[0] for group in groups] if of_group else chosen(groups, None)[0]
            return torch.as_tensor(np.concatenate(made))

        return run

    return recipe


def nemo(name: str, **settings: Any) -> Recipe:
    """NeMo-RL's estimators."""

    def recipe(checkout: Checkout) -> Run:
        helper = "calculate_baseline_and_std_per_prompt"
        baseline = checkout.functions("nemo_rl/algorithms/utils.py", helper)[helper]
        keys = {"get_gdpo_reward_component_keys": lambda batch: list(batch)}
        space = {helper: baseline, **keys}
        chosen = checkout.functions("nemo_rl/algorithms/advantage_estimator.py", name, **space)[name]

        def run(given: Given) -> Any:
            config = Settings(**{"reward_weights": None, "normalize_rewards": True, "minus_baseline": True,
                                 "use_leave_one_out_baseline": True, **settings})  # fmt: skip
            loss = Settings(
                use_kl_in_reward=False, reference_policy_kl_penalty=0.0, reference_policy_kl_type="k1"
            )
            prompts = torch.as_tensor(given.index)[:, None]
            parts = {f"part{place}": part.clone() for place, part in enumerate(given.components)}
            made = chosen(config, loss).compute_advantage(
                prompts, given.rewards, given.mask, repeated_batch=parts
            )
            return first_column(made)

        return run

    return recipe


def understand_r1_zero(critic: str) -> Recipe:
    """The repository of Dr. GRPO."""

    def recipe(checkout: Checkout) -> Run:
        name = "compute_monte_carlo_advantages"
        chosen = checkout.functions("train_zero_math.py", name)[name]

        def run(given: Given) -> Any:
            args = SimpleNamespace(num_samples=given.size, critic_type=critic)
            return chosen(SimpleNamespace(args=args), given.rewards[:, None], None)

        return run

    return recipe


def skyrl(name: str) -> Recipe:
    """SkyRL's estimators."""

    def recipe(checkout: Checkout) -> Run:
        path = "skyrl/backends/skyrl_train/utils/ppo_utils.py"
        mean = checkout.functions(
            "skyrl/backends/skyrl_train/utils/torch_utils.py", "masked_mean", Optional=None
        )
        silent = SimpleNamespace(logger=SimpleNamespace(warning=lambda text: None))
        sys.modules.setdefault("loguru", silent)  # type: ignore[arg-type]
        space = checkout.functions(path, "masked_var", "masked_whiten", name, masked_mean=mean["masked_mean"])

        def run(given: Given) -> Any:
            rewards = given.on_last_token(given.rewards)
            return first_column(space[name](rewards, given.mask, index=given.index, gamma=1.0)[0])

        return run

    return recipe


def passk_training(checkout: Checkout) -> Run:
    """Pass@k training with K = 4."""
    from scipy.special import comb

    names = ("calc_adv", "compute_advantage")
    chosen = checkout.functions("code/passk_adv.py", *names, comb=comb, print=lambda text: None)[
        "compute_advantage"
    ]
    return lambda given: first_column(
        chosen(given.on_last_token(given.rewards), given.mask, given.index, 4)[0]
    )


def rs_grpo(checkout: Checkout) -> Run:
    """RS-GRPO, with the name defined that its file leaves out."""
    name = "compute_rs_grpo_advantage"
    chosen = checkout.functions("codes/risk_sensitive_adv.py", name, pass_at_1_scores={})[name]
    return lambda given: first_column(chosen(given.on_last_token(given.rewards), given.mask, given.index)[0])


def rearrange(scores: torch.Tensor, pattern: str, n: int) -> torch.Tensor:
    """What maxrl takes from einops."""
    assert pattern == "(m n) -> m n"
    return scores.reshape(-1, n)


RECIPES: Mapping[str, Recipe] = {
    "trl-0.15.1-grpo": trl_0151,
    "trl-grpo": trl("group"),
    "trl-grpo-batch": trl("batch"),
    "trl-grpo-none": trl("none"),
    "trl-gdpo": trl("group", "normalize_then_sum"),
    "trl-rloo": trl_rloo(False),
    "trl-rloo-normalized": trl_rloo(True),
    "gdpo-original": gdpo_original,
    "verl-grpo": verl("compute_grpo_outcome_advantage"),
    "verl-dr-grpo": verl("compute_grpo_outcome_advantage", arguments={"norm_adv_by_std_in_grpo": False}),
    "verl-grpo-vectorized": verl("compute_grpo_vectorized_outcome_advantage"),
    "verl-0.8-grpo-vectorized": verl("compute_grpo_vectorized_outcome_advantage"),
    "verl-0.8-dr-grpo": verl("compute_grpo_outcome_advantage", arguments={"norm_adv_by_std_in_grpo": False}),
    "verl-gdpo": verl_gdpo,
    "verl-rloo": verl("compute_rloo_outcome_advantage"),
    "verl-rloo-vectorized": verl("compute_rloo_vectorized_outcome_advantage"),
    "verl-opo": verl("compute_opo_outcome_advantage"),
    "verl-reinforce-plus-plus": verl("compute_reinforce_plus_plus_outcome_advantage"),
    "verl-reinforce-plus-plus-baseline": verl("compute_reinforce_plus_plus_baseline_outcome_advantage"),
    "verl-grpo-passk": verl("compute_grpo_passk_outcome_advantage"),
    "verl-gpg": verl("compute_gpg_outcome_advantage"),
    "openrlhf-grpo": openrlhf("group_norm"),
    "openrlhf-dr-grpo": openrlhf("dr_grpo"),
    "openrlhf-rloo": openrlhf("rloo"),
    "openrlhf-reinforce-baseline": openrlhf("reinforce_baseline"),
    "slime-grpo": slime("grpo"),
    "slime-reinforce-plus-plus-baseline": slime("reinforce_plus_plus_baseline"),
    "thetaevolve-grpo": slime("grpo"),
    "prime-rl-grpo": prime_rl("grpo.py", "score_group"),
    "prime-rl-maxrl": prime_rl("max_rl.py", "score_group"),
    "tinker-group": tinker("tinker_cookbook/rl/data_processing.py"),
    "discover-entropic": tinker("tinker_cookbook/rl/train.py", "entropic", 2.0),
    "discover-entropic-adaptive": tinker("tinker_cookbook/rl/train.py", "entropic_adaptive_beta", 2.0),
    "rllm-grpo": rllm("calculate_grpo_advantages_per_group", True),
    "rllm-rloo": rllm("calculate_rloo_advantages_per_group", True),
    "rllm-reinforce-plus-plus-baseline": rllm("calculate_reinforce_plus_plus_baseline_advantages", False),
    "rllm-prpo": rllm("calculate_prpo_advantages", False),
    "nemo-grpo": nemo("GRPOAdvantageEstimator"),
    "nemo-grpo-with-self": nemo("GRPOAdvantageEstimator", use_leave_one_out_baseline=False),
    "nemo-gdpo": nemo("GDPOAdvantageEstimator"),
    "nemo-reinforce-plus-plus": nemo("ReinforcePlusPlusAdvantageEstimator"),
    "understand-r1-zero-dr-grpo": understand_r1_zero("drgrpo"),
    "understand-r1-zero-grpo": understand_r1_zero("grpo"),
    "skyrl-grpo": skyrl("compute_grpo_outcome_advantage"),
    "skyrl-rloo": skyrl("compute_rloo_outcome_advantage"),
    "skyrl-maxrl": skyrl("compute_maxrl_advantage"),
    "skyrl-reinforce-plus-plus": skyrl("compute_reinforce_plus_plus_outcome_advantage"),
    "maxrl": verl("compute_maxrl_outcome_advantage"),
    "maxrl-pkpo": verl("compute_pkpo_outcome_advantage", space={"rearrange": rearrange}),
    "passk-training": passk_training,
    "rs-grpo": rs_grpo,
    "riskpo-rvar": verl("compute_grpo_rvar_outcome_advantage"),
}

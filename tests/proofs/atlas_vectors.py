"""Record vectors for the atlas from the frameworks' own advantage functions, or name where they drifted.

    python -m tests.proofs.atlas_vectors verl /path/to/verl/repo.git [--commit REVISION] [--write]
    python -m tests.proofs.atlas_vectors --list

Takes a git directory, cuts the one function (or the statements) that makes advantages out of the source at
the commit, and runs it on the CPU with torch, numpy and nothing else of the framework. Without --write it
compares with spec/vectors/atlas/SOURCE.json and names each case that differs: a drift of the framework since
the recorded commit. With --write it records. The source itself is never kept.
"""

import __future__

import argparse
import ast
import asyncio
import json
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from search_to_signal.audit.atlas import entries, sources

VECTORS = Path(__file__).parents[2] / "spec" / "vectors" / "atlas"
Groups = Sequence[Sequence[float]]

# Even groups, then uneven ones: ordinary, tied, tight, negative, flat, two, and what a loader may hand over.
EVEN: Mapping[str, Groups] = {
    "ordinary": [[0.25, -1.5, 2.0, 0.5], [1.0, 0.0, 0.0, 1.0]],
    "eight": [[0.1, 0.7, -0.3, 0.9, 0.2, 0.2, 1.4, -2.0]],
    "two": [[0.0, 1.0], [-3.0, -1.0]],
    "winner by 1e-5": [[0.0, 0.0, 0.0, 1e-5]],
    "negative mean": [[-1.0, -0.9, -0.85, 0.1]],
    "flat": [[0.5, 0.5, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0]],
    "flat beside varied": [[0.5, 0.5, 0.5, 0.5], [0.0, 1.0, 2.0, 4.0]],
    "far from zero": [[100.0, 101.0, 102.0, 104.0]],
    "binary": [[0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]],
    "nan": [[0.0, 1.0, math.nan, 3.0], [0.0, 1.0, 2.0, 4.0]],
    "singletons": [[0.75], [-2.0]],
}
UNEVEN: Mapping[str, Groups] = {
    "uneven": [[0.0, 1.0, 0.5], [2.0, -1.0], [0.25, 0.5, 0.75, 3.0]],
    "singleton beside others": [[3.0], [0.0, 1.0, 2.0, 4.0]],
}
BINARY = ("binary",)
# Functions that cast to float32 themselves, so that nothing can be learned of them in float64.
SINGLE = (
    "openrlhf-reinforce-baseline",
    "prime-rl-grpo",
    "prime-rl-maxrl",
    "rs-grpo",
    "slime-grpo",
    "slime-reinforce-plus-plus-baseline",
    "thetaevolve-grpo",
    "verl-0.8-grpo-vectorized",
    "verl-gdpo",
    "verl-grpo-vectorized",
)


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
Recipe = Callable[["Checkout"], Run]


class Checkout:
    """The files of a git directory at one commit."""

    def __init__(self, directory: Path, commit: str) -> None:
        self.directory = directory
        self.commit = self._git("rev-parse", f"{commit}^{{commit}}").strip()

    def _git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.directory), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def tree(self, path: str) -> ast.Module:
        """The syntax tree of a file."""
        return ast.parse(self._git("show", f"{self.commit}:{path}"))

    def functions(self, path: str, *names: str, **space: Any) -> dict[str, Any]:
        """Functions and classes of a file by name, without their decorators, and what they are run with."""
        found = [node for node in ast.walk(self.tree(path)) if getattr(node, "name", None) in names]
        for node in found:
            node.decorator_list = []  # type: ignore[attr-defined]
        missing = set(names) - {node.name for node in found}  # type: ignore[attr-defined]
        if missing:
            raise SystemExit(f"{path} has no {', '.join(sorted(missing))} at {self.commit}: read it again")
        return execute(found, {**COMMON, **space})

    def statements(self, path: str, function: str, first: str, last: str) -> list[ast.stmt]:
        """The statements of a function from the first that begins with ``first`` to the first after that
        begins with ``last``, as they are unparsed."""
        for node in ast.walk(self.tree(path)):
            if getattr(node, "name", None) != function:
                continue
            for body in bodies(node):
                text = [ast.unparse(statement) for statement in body]
                starts = [place for place, line in enumerate(text) if line.startswith(first)]
                ends = [place for place, line in enumerate(text) if line.startswith(last)]
                if starts and [end for end in ends if end >= starts[0]]:
                    return list(body[starts[0] : min(end for end in ends if end >= starts[0]) + 1])
        raise SystemExit(
            f"{path}: {function} no longer goes from {first!r} to {last!r} at {self.commit}: read it again"
        )


COMMON = {"torch": torch, "np": np, "math": math, "defaultdict": defaultdict}


def bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements within a node."""
    for inner in ast.walk(node):
        for name in ("body", "orelse"):
            body = getattr(inner, name, None)
            if isinstance(body, list):
                yield body


def execute(nodes: Sequence[ast.AST], space: dict[str, Any]) -> dict[str, Any]:
    """Run statements in a namespace, annotations unread; returns the namespace."""
    module = ast.fix_missing_locations(ast.Module(body=list(nodes), type_ignores=[]))  # type: ignore[arg-type]
    flags = __future__.annotations.compiler_flag
    exec(compile(module, "<framework>", "exec", flags=flags), space)
    return space


def first_column(values: Any) -> torch.Tensor:
    """Advantages of responses from those of their tokens, the first token's: (n, longest) -> (n,)."""
    return values[:, 0]


# --- how each framework's function is called ---

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


def checkout_has(checkout: Checkout, path: str) -> bool:
    """Whether a file is there."""
    try:
        checkout.tree(path)
    except subprocess.CalledProcessError:
        return False
    return True


def some(checkout: Checkout, path: str, names: Sequence[str]) -> dict[str, Any]:
    """The functions of these names that a file has, with its module-level imports of os, re and typing."""
    tree = checkout.tree(path)
    there = [name for name in names if any(getattr(node, "name", None) == name for node in ast.walk(tree))]
    import os
    import typing

    return checkout.functions(path, *there, os=os, Any=Any, Optional=typing.Optional)


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


def given_of(groups: Groups, precision: torch.dtype, components: bool) -> Given:
    """A case as tensors. Lengths run 3, 1, 4, 1, 5, ...; the second component is squares, backwards."""
    flat = [value for group in groups for value in group]
    digits = (3, 1, 4, 1, 5, 9, 2, 6, 5)
    rewards = torch.tensor(flat, dtype=precision)
    parts = (rewards, rewards.flip(0) ** 2) if components else ()
    return Given(
        rewards=rewards.clone(),
        index=np.repeat(np.arange(len(groups)), [len(group) for group in groups]),
        size=max(len(group) for group in groups),
        lengths=torch.tensor([digits[place % len(digits)] for place in range(len(flat))]),
        components=tuple(part.clone() for part in parts),
    )


def cases_of(name: str, checkout: Checkout) -> Iterator[dict[str, Any]]:
    """Every case of an entry, as its framework's function answers it in float32 and float64."""
    run, entry = RECIPES[name](checkout), entries()[name]
    cases = {**EVEN, **({} if entry.uneven == "refused" else UNEVEN)}
    for case, groups in cases.items():
        if entry.domain == "binary" and case not in BINARY:
            continue
        answers: dict[str, Any] = {}
        for precision in (torch.float32, torch.float64)[: 1 if name in SINGLE else 2]:
            torch.set_default_dtype(precision)
            given = given_of(groups, precision, entry.components)
            try:
                made = run(given)
            except (ValueError, RuntimeError, ZeroDivisionError, IndexError) as error:
                answers["refused"] = f"{type(error).__name__}"
                break
            if made.dtype == precision or precision == torch.float32:
                answers[str(precision).removeprefix("torch.")] = listed(made)
        torch.set_default_dtype(torch.float32)
        parts = {f"part{place}": listed(part) for place, part in enumerate(given.components)}
        lengths = given.lengths.tolist()
        whole = [listed(torch.tensor(group, dtype=torch.float64)) for group in groups]
        yield {
            "entry": name,
            "case": case,
            "groups": whole,
            "lengths": lengths,
            "components": parts,
            **answers,
        }


def listed(values: Any) -> list[float | None]:
    """Numbers as JSON has them: NaN is null."""
    numbers = [float(value) for value in values]
    return [None if math.isnan(number) else number for number in numbers]


def recorded(source: str, checkout: Checkout) -> dict[str, Any]:
    """The document of a source: what was run, and every case."""
    names = [name for name in RECIPES if entries()[name].source == source]
    if not names:
        raise SystemExit(f"nothing is run of {source!r}: use one of {', '.join(runnable())}")
    return {
        "source": source,
        "repository": sources()[source].repository,
        "commit": checkout.commit,
        "functions": {name: f"{entries()[name].path}:{entries()[name].function}" for name in names},
        "torch": torch.__version__.split("+")[0],
        "cases": [case for name in names for case in cases_of(name, checkout)],
    }


def runnable() -> list[str]:
    """The sources that something is run of."""
    return sorted({entries()[name].source for name in RECIPES})


def drift(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two documents, a line for each case."""
    before = {(case["entry"], case["case"]): case for case in old["cases"]}
    after = {(case["entry"], case["case"]): case for case in new["cases"]}
    keys = ("refused", "float32", "float64")
    found = []
    for entry, case in {**before, **after}:
        was, now = (cases.get((entry, case), {}) for cases in (before, after))
        found += [
            f"{entry}, {case}: {key} was {was.get(key)}, is {now.get(key)}"
            for key in keys
            if not alike(was.get(key), now.get(key))
        ]
    return found


def alike(was: Any, now: Any) -> bool:
    """Whether two answers are one up to what another processor or torch may round differently."""
    if not isinstance(was, list) or not isinstance(now, list) or len(was) != len(now):
        return bool(was == now)
    # NaN is null here, and None becomes NaN.
    pair = np.array([was, now], dtype=np.float64)
    return bool(np.allclose(pair[0], pair[1], rtol=1e-5, atol=1e-9, equal_nan=True))


def main() -> int:
    """Record or compare one source."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("source", nargs="?", help="a key of [sources] in entries.toml")
    parser.add_argument("directory", nargs="?", type=Path, help="the git directory of its repository")
    parser.add_argument("--commit", help="the commit to run; that of entries.toml unless given")
    parser.add_argument("--write", action="store_true", help="record instead of comparing")
    parser.add_argument("--list", action="store_true", help="the sources that can be run")
    arguments = parser.parse_args()
    if arguments.list or arguments.directory is None:
        print("\n".join(runnable()))
        return 0
    torch.set_num_threads(1)
    commit = arguments.commit or sources()[arguments.source].commit
    document = recorded(arguments.source, Checkout(arguments.directory, commit))
    path = VECTORS / f"{arguments.source}.json"
    if arguments.write:
        path.parent.mkdir(exist_ok=True)
        cases = ",\n".join(json.dumps(case) for case in document.pop("cases"))
        head = json.dumps(document, indent=1).removesuffix("\n}")
        path.write_text(f'{head},\n "cases": [\n{cases}\n]}}\n', encoding="utf-8")
        return 0
    found = drift(json.loads(path.read_text(encoding="utf-8")), document)
    print("\n".join(found) or f"{arguments.source}: no drift from the recorded vectors")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

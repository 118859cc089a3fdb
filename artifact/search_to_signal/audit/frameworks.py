"""What a finding's remedy is called in each framework.

Names are those of published configurations and launch scripts of each; a version may have others.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class OptionNames:
    """Of one framework: ``filter`` leaves tied groups out, ``size`` is the group size, ``cap`` the longest
    completion, ``weights`` weigh the parts of a reward. ``scales`` are settings of the division by a
    deviation, each with the entry of the atlas that it stands for."""

    filter: str
    size: str
    cap: str
    weights: str
    scales: Mapping[str, str]


ANY = OptionNames(
    filter="sample on until the batch is full of groups that differ (verl: algorithm.filter_groups, "
    "OpenRLHF: --dynamic_filtering, slime: --dynamic-sampling-filter-path, SkyRL: "
    "dynamic_sampling.type=filter), or drop the prompts that groups.csv shows as always tied",
    size="group size",
    cap="the limit on the length of a completion",
    weights="the weights of the rewards",
    scales={"no division by the deviation": "dr_grpo"},
)
_TRL = OptionNames(
    filter="GRPOConfig has no dynamic sampling: drop from the data set the prompts that groups.csv shows as "
    "always tied",
    size="num_generations",
    cap="max_completion_length (mask_truncated_completions=True leaves cut completions out of the loss)",
    weights="reward_weights",
    scales={'scale_rewards="none"': "trl-grpo-none", 'scale_rewards="batch"': "trl-grpo-batch"},
)
OPTIONS: Mapping[str, OptionNames] = {
    "TRL": _TRL,
    "unsloth": _TRL,
    "verl": OptionNames(
        filter="algorithm.filter_groups.enable=True with algorithm.filter_groups.metric and "
        "max_num_gen_batches (DAPO's trainer)",
        size="actor_rollout_ref.rollout.n",
        cap="data.max_response_length",
        weights="the weights within custom_reward_function",
        scales={"algorithm.norm_adv_by_std_in_grpo=False": "verl-dr-grpo"},
    ),
    "OpenRLHF": OptionNames(
        filter="--dynamic_filtering --dynamic_filtering_reward_range 0 1",
        size="--n_samples_per_prompt",
        cap="--generate_max_len",
        weights="the weights within the reward function of --remote_rm_url",
        scales={"--advantage_estimator dr_grpo": "openrlhf-dr-grpo"},
    ),
    "slime": OptionNames(
        filter="--dynamic-sampling-filter-path "
        "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std with a larger "
        "--over-sampling-batch-size",
        size="--n-samples-per-prompt",
        cap="--rollout-max-response-len",
        weights="the weights within --custom-rm-path",
        scales={"--disable-grpo-std-normalization": "dr_grpo"},
    ),
    "SkyRL": OptionNames(
        filter="trainer.algorithm.dynamic_sampling.type=filter with max_sample_batches",
        size="generator.n_samples_per_prompt",
        cap="generator.sampling_params.max_generate_length",
        weights="the weights within the environment's reward",
        scales={"trainer.algorithm.grpo_norm_by_std=false": "dr_grpo"},
    ),
    "NeMo-RL": OptionNames(
        filter="grpo.use_dynamic_sampling=true with grpo.batch_multiplier and "
        "grpo.dynamic_sampling_max_gen_batches",
        size="grpo.num_generations_per_prompt",
        cap="policy.max_total_sequence_length (grpo.overlong_filtering=true leaves cut completions out)",
        weights="the weights within the environment's reward",
        scales={"grpo.normalize_rewards=false": "rloo"},
    ),
    "Tinker cookbook": OptionNames(
        filter="remove_constant_reward_groups=True, and more groups_per_batch",
        size="group_size",
        cap="max_tokens",
        weights="the weights within the environment's reward",
        scales={},
    ),
}


def offered() -> frozenset[str]:
    """Every entry that a setting of some framework stands for."""
    return frozenset(name for options in (ANY, *OPTIONS.values()) for name in options.scales.values())


def options_of(framework: str) -> OptionNames:
    """The options of a framework by the name that the atlas gives it, in general words for others."""
    return OPTIONS.get(framework, ANY)

"""What a finding's remedy is called in each framework.

Names are those of published configurations and launch scripts of each; a version may have others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class OptionNames:
    """Of one framework: ``filter`` leaves tied groups out, ``size`` is the group size, ``cap`` the longest
    completion, ``weights`` weigh the parts of a reward. ``scales`` are settings of the division by a
    deviation, each with the entry of the atlas that it stands for.
    ``kl`` weighs the divergence from the reference, ``clip`` is the upper bound of a ratio, ``norm`` the
    largest norm of a gradient; ``rollouts`` writes rollouts. ``rules`` are settings of the loss by the rule
    of aggregation that they stand for (``token_weights``), ``cut`` leaves cut completions out of the loss."""

    filter: str
    size: str
    cap: str
    weights: str
    scales: Mapping[str, str]
    kl: str = "weight of the KL term"
    clip: str = "upper bound of the ratio"
    norm: str = "the largest norm of the gradient (clipping), or a lower learning rate"
    rollouts: str = "live.write in the trainer (docs/examples/trainer-hooks.md)"
    rules: Mapping[str, str] = field(default_factory=dict)
    cut: str = "mask their tokens in the loss"


ANY = OptionNames(
    filter="sample on until the batch is full of groups that differ (verl: algorithm.filter_groups, "
    "OpenRLHF: --dynamic_filtering, slime: --dynamic-sampling-filter-path, SkyRL: "
    "dynamic_sampling.type=filter), or drop the prompts that groups.csv shows as always tied",
    size="group size",
    cap="the limit on the length of a completion",
    weights="the weights of the rewards",
    scales={"no division by the deviation": "dr_grpo"},
    rollouts="log_completions=True (TRL, ms-swift), trainer.rollout_data_dir=DIR (verl), "
    "monitors.file (prime-rl), rollout.dump_to_file=true (AReaL), rollout_dump_dir (ROLL), or from any "
    "trainer by GroupRecorder or live.write",
)
_TRL = OptionNames(
    filter="GRPOConfig has no dynamic sampling: drop from the data set the prompts that groups.csv shows as "
    "always tied",
    size="num_generations",
    cap="max_completion_length (mask_truncated_completions=True leaves cut completions out of the loss)",
    weights="reward_weights",
    scales={'scale_rewards="none"': "trl-grpo-none", 'scale_rewards="batch"': "trl-grpo-batch"},
    kl="beta",
    clip="epsilon_high",
    norm="max_grad_norm",
    rollouts="GRPOConfig(log_completions=True, logging_steps=1)",
    rules={
        "token_mean": 'loss_type="dapo"',
        "sequence_mean": 'loss_type="grpo"',
        "constant_length": 'loss_type="dr_grpo"',
    },
    cut="mask_truncated_completions=True",
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
        kl="actor_rollout_ref.actor.kl_loss_coef",
        clip="actor_rollout_ref.actor.clip_ratio_high",
        norm="actor_rollout_ref.actor.grad_clip",
        rollouts="trainer.rollout_data_dir=DIR",
        rules={
            "token_mean": "actor_rollout_ref.actor.loss_agg_mode=token-mean",
            "sequence_mean": "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean",
            "constant_length": "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",
        },
    ),
    "OpenRLHF": OptionNames(
        filter="--dynamic_filtering --dynamic_filtering_reward_range 0 1",
        size="--n_samples_per_prompt",
        cap="--generate_max_len",
        weights="the weights within the reward function of --remote_rm_url",
        scales={"--advantage_estimator dr_grpo": "openrlhf-dr-grpo"},
        kl="--init_kl_coef",
        clip="--eps_clip_low_high",
        norm="--max_norm",
    ),
    "slime": OptionNames(
        filter="--dynamic-sampling-filter-path "
        "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std with a larger "
        "--over-sampling-batch-size",
        size="--n-samples-per-prompt",
        cap="--rollout-max-response-len",
        weights="the weights within --custom-rm-path",
        scales={"--disable-grpo-std-normalization": "dr_grpo"},
        kl="--kl-loss-coef (with --use-kl-loss)",
        clip="--eps-clip-high",
        norm="--clip-grad",
        rollouts="--save-debug-rollout-data DIR/{rollout_id}.pt",
        rules={"token_mean": "--calculate-per-token-loss"},
    ),
    "SkyRL": OptionNames(
        filter="trainer.algorithm.dynamic_sampling.type=filter with max_sample_batches",
        size="generator.n_samples_per_prompt",
        cap="generator.sampling_params.max_generate_length",
        weights="the weights within the environment's reward",
        scales={"trainer.algorithm.grpo_norm_by_std=false": "dr_grpo"},
        kl="trainer.algorithm.kl_loss_coef",
        clip="trainer.algorithm.eps_clip_high",
        norm="trainer.policy.optimizer_config.max_grad_norm",
        rules={
            "token_mean": "trainer.algorithm.loss_reduction=token_mean",
            "sequence_mean": "trainer.algorithm.loss_reduction=sequence_mean",
        },
        cut="generator.apply_overlong_filtering=true",
    ),
    "NeMo-RL": OptionNames(
        filter="grpo.use_dynamic_sampling=true with grpo.batch_multiplier and "
        "grpo.dynamic_sampling_max_gen_batches",
        size="grpo.num_generations_per_prompt",
        cap="policy.max_total_sequence_length (grpo.overlong_filtering=true leaves cut completions out)",
        weights="the weights within the environment's reward",
        scales={"grpo.normalize_rewards=false": "rloo"},
        kl="loss_fn.reference_policy_kl_penalty",
        clip="loss_fn.ratio_clip_max",
        norm="policy.max_grad_norm",
        rollouts="the train_data_step*.jsonl in logger.log_dir, which NeMo-RL writes anyway",
        rules={
            "token_mean": "loss_fn.token_level_loss=true",
            "sequence_mean": "loss_fn.token_level_loss=false",
        },
        cut="grpo.overlong_filtering=true",
    ),
    "prime-rl": replace(
        ANY,
        kl="trainer.loss.kl_tau",
        clip="trainer.loss.dppo_mask_high",
        norm="trainer.optim.max_norm",
        rollouts="monitors.file",
    ),
    "Tinker cookbook": OptionNames(
        filter="remove_constant_reward_groups=True, and more groups_per_batch",
        size="group_size",
        cap="max_tokens",
        weights="the weights within the environment's reward",
        scales={},
        kl="kl_penalty_coef",
        rollouts="the rollout summaries in log_path, which it writes anyway",
    ),
}


def offered() -> frozenset[str]:
    """Every entry that a setting of some framework stands for."""
    return frozenset(name for options in (ANY, *OPTIONS.values()) for name in options.scales.values())


def options_of(framework: str) -> OptionNames:
    """The options of a framework by the name that the atlas gives it, in general words for others."""
    return OPTIONS.get(framework, ANY)

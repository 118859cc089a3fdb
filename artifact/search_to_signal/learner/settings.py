"""The knobs of the learner; the defaults are the paper's (supplement, table of parameters).

LoRA and optimizer have theirs in ``[learner]`` for every rule; what else a rule reads is ``[rule_settings]``.
"""

import math
from typing import Annotated, Literal

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.settings import Range, Settings

# The linear layers that get an adapter (paper, table of parameters).
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class LearnerSettings(Settings, frozen=True, kw_only=True):
    """LoRA, the optimizer, and the policy-reference KL coefficient ``kl`` of the GRPO loss.

    ``zero_advantage`` says what the opportunity of a group without credit is used for: ``kl`` steps on the
    KL term alone, as TRL does, with momentum and weight decay acting as in any step; ``skip`` leaves adapter
    and optimizer as they are. ``adamw_8bit`` and ``load_in_4bit``, the paper's, need a GPU and bitsandbytes;
    ``sgd`` is a control that has neither momentum nor weight decay. ``gradient_checkpointing`` trades time
    for memory, and reads one completion at a time. ``logit_temperature`` divides the logits before tokens are
    scored: 1, as TRL does, or the sampling temperature (D24). ``truncated`` says what becomes of a completion
    that was cut at the limit: it counts ``whole``, as in TRL, or is left out of the loss, whose mean stays
    that over the group; a group of nothing else is then no step (D25). Its advantage counts either way.
    ``credit`` says which tokens the gradient of credit and KL comes from: ``both`` are all of a completion,
    else those of its ``rationale`` or its ``code`` alone; the loss stays the mean over all tokens (D43).
    """

    TABLE = "learner"
    lora_rank: Annotated[int, Range(1, 4096)] = 32
    lora_alpha: Annotated[int, Range(1, 1_000_000)] = 64
    optimizer: Literal["adamw", "adamw_8bit", "sgd"] = "adamw"
    learning_rate: Annotated[float, Range(0, 10)] = 5e-5
    adam_beta1: Annotated[float, Range(0, 1, below=True)] = 0.9
    adam_beta2: Annotated[float, Range(0, 1, below=True)] = 0.99
    weight_decay: Annotated[float, Range(0, 10)] = 0.1
    max_grad_norm: Annotated[float, Range(0, math.inf)] = 0.1
    kl: Annotated[float, Range(0, 1000)] = 0.04
    zero_advantage: Literal["kl", "skip"] = "kl"
    logit_temperature: Annotated[float, Range(0, 100, above=True)] = 1.0
    truncated: Literal["whole", "exclude"] = "whole"
    credit: Literal["both", "rationale", "code"] = "both"
    load_in_4bit: bool = False
    gradient_checkpointing: bool = False


_EVERY_RULE = (
    *("lora_rank", "lora_alpha", "optimizer", "learning_rate", "adam_beta1", "adam_beta2"),
    *("weight_decay", "max_grad_norm", "load_in_4bit"),
)


def refuse_unread(settings: LearnerSettings, rule: str, *read: str) -> None:
    """Raise ConfigError for a changed setting that the rule does not read; some are read by every rule."""
    plain = LearnerSettings()
    for name in settings.__struct_fields__:
        if name not in (*_EVERY_RULE, *read) and getattr(settings, name) != getattr(plain, name):
            raise ConfigError(
                f"learner.{name} is set, and the learning rule {rule} does not read it: remove it"
            )


class GrpoSettings(Settings, frozen=True, kw_only=True):
    """Of GRPO, beside ``[learner]``: what one step is made of. The defaults are the paper's.

    A step is on ``prompts_per_step`` groups, whose losses are averaged, and consists of so many ``updates``.
    The ratio of a token to the policy that sampled its group is clipped at 1 +- ``epsilon``, as in PPO; in
    the first update it is 1, and nothing is clipped. A group whose advantages are all zero is dropped from
    the step and another is drawn in its place, at most ``redraws`` times in a row.
    """

    TABLE = "rule_settings"
    updates: Annotated[int, Range(1, 1000)] = 1
    epsilon: Annotated[float | None, Range(0, 1e6, above=True)] = None
    prompts_per_step: Annotated[int, Range(1, 1024)] = 1
    redraws: Annotated[int, Range(0, 1024)] = 0

"""The knobs of the learner; the defaults are the paper's (supplement, table of parameters)."""

from typing import Literal

import msgspec

from search_to_signal.errors import ConfigError


class LearnerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """LoRA, the optimizer, and the policy-reference KL coefficient ``kl`` of the GRPO loss.

    ``zero_advantage`` says what the opportunity of a group without credit is used for: ``kl`` steps on the
    KL term alone, as TRL does, with momentum and weight decay acting as in any step; ``skip`` leaves adapter
    and optimizer as they are. ``adamw_8bit`` and ``load_in_4bit``, the paper's, need a GPU and bitsandbytes;
    ``sgd`` is a control that has neither momentum nor weight decay. ``gradient_checkpointing`` trades time
    for memory, and reads one completion at a time. ``logit_temperature`` divides the logits before tokens are
    scored: 1, as TRL does, or the sampling temperature (D24). ``truncated`` says what becomes of a completion
    that was cut at the limit: it counts ``whole``, as in TRL, or is left out of the loss, whose mean stays
    that over the group; a group of nothing else is then no step (D25). Its advantage counts either way.
    """

    lora_rank: int = 32
    lora_alpha: int = 64
    optimizer: Literal["adamw", "adamw_8bit", "sgd"] = "adamw"
    learning_rate: float = 5e-5
    adam_beta1: float = 0.9
    adam_beta2: float = 0.99
    weight_decay: float = 0.1
    max_grad_norm: float = 0.1
    kl: float = 0.04
    zero_advantage: Literal["kl", "skip"] = "kl"
    logit_temperature: float = 1.0
    truncated: Literal["whole", "exclude"] = "whole"
    load_in_4bit: bool = False
    gradient_checkpointing: bool = False

    def __post_init__(self) -> None:
        """Refuse what no logit can be divided by; raises ConfigError."""
        if not self.logit_temperature > 0:
            raise ConfigError(f"learner.logit_temperature is {self.logit_temperature}: give a number above 0")

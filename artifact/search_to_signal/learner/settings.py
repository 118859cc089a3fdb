"""The knobs of the learner; the defaults are the paper's (supplement, table of parameters)."""

import msgspec


class LearnerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """LoRA, AdamW and the policy-reference KL coefficient ``kl`` of the GRPO loss."""

    lora_rank: int = 32
    lora_alpha: int = 64
    learning_rate: float = 5e-5
    adam_beta1: float = 0.9
    adam_beta2: float = 0.99
    weight_decay: float = 0.1
    max_grad_norm: float = 0.1
    kl: float = 0.04

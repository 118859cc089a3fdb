"""The knobs of DPO in rounds, by EvoTune's names; LoRA and the optimizer have theirs in ``[learner]``."""

from typing import Annotated, Literal

import msgspec

from search_to_signal.config import Range, check_ranges
from search_to_signal.rewards.pair_rounds import Many, RoundSettings


class DpoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A round every ``finetuning_frequency`` groups, on pairs whose choice is above a percentile (D54).

    The threshold is the (100 - ``percentile``)-th percentile of the valid scores since the last round. The
    defaults are EvoTune's (CLAIRE-Labo/EvoTune, configs/train/dpo.yaml).
    """

    finetuning_frequency: Many = 400
    percentile: Annotated[float, Range(0, 100)] = 70.0
    beta: Annotated[float, Range(0, 1000, above=True)] = 0.4
    f_divergence_type: Literal["reverse_kl", "js_divergence", "alpha_divergence"] = "alpha_divergence"
    f_alpha_divergence_coef: Annotated[float, Range(0, 1000, above=True)] = 1.0
    num_train_epochs: Annotated[int, Range(1, 1000)] = 2
    per_device_train_batch_size: Many = 2
    gradient_accumulation_steps: Many = 16
    lr_scheduler_type: Literal["cosine", "constant"] = "cosine"

    def __post_init__(self) -> None:
        """Refuse numbers out of their ranges; raises ConfigError."""
        check_ranges(self, "rule_settings")

    @property
    def rounds(self) -> RoundSettings:
        """What rounds are cut by."""
        return msgspec.convert(msgspec.structs.asdict(self), RoundSettings)

"""The knobs of DPO in rounds, by EvoTune's names; LoRA and the optimizer have theirs in ``[learner]``."""

from typing import Annotated, Literal

from search_to_signal.config import Range
from search_to_signal.rewards.pair_rounds import RoundSettings


class DpoSettings(RoundSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When rounds are, and TRL's loss on their pairs (D54).

    The defaults are EvoTune's (CLAIRE-Labo/EvoTune, configs/train/dpo.yaml).
    """

    beta: Annotated[float, Range(0, 1000, above=True)] = 0.4
    f_divergence_type: Literal["reverse_kl", "js_divergence", "alpha_divergence"] = "alpha_divergence"
    f_alpha_divergence_coef: Annotated[float, Range(0, 1000, above=True)] = 1.0
    lr_scheduler_type: Literal["cosine", "constant"] = "cosine"

"""The optimizer that the settings name."""

from collections.abc import Sequence
from types import ModuleType

import torch

from search_to_signal.learner.quantization import bitsandbytes
from search_to_signal.learner.settings import LearnerSettings


def build_optimizer(parameters: Sequence[torch.Tensor], settings: LearnerSettings) -> torch.optim.Optimizer:
    """A fresh optimizer at a constant rate; raises ConfigError for adamw_8bit where it cannot run."""
    if settings.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=settings.learning_rate)
    library: ModuleType = torch.optim
    name = "AdamW"
    if settings.optimizer == "adamw_8bit":
        library, name = bitsandbytes("learner.optimizer = 'adamw_8bit'").optim, "AdamW8bit"
    optimizer: torch.optim.Optimizer = getattr(library, name)(
        parameters,
        lr=settings.learning_rate,
        betas=(settings.adam_beta1, settings.adam_beta2),
        weight_decay=settings.weight_decay,
    )
    return optimizer

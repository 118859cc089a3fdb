"""The optimizer that the settings name, and the step that every rule makes with it."""

from collections.abc import Sequence
from types import ModuleType

import torch

from search_to_signal.errors import NotFiniteError
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


def clipped_step(
    optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], max_grad_norm: float, taken: str
) -> float:
    """Step by the gradient, clipped, and clear it; returns its norm before clipping.

    Raises NotFiniteError, with no weight moved, for one that is not finite; ``taken`` says what it came from.
    """
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
    finite = bool(torch.isfinite(norm))
    if finite:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if not finite:
        raise NotFiniteError(f"the gradient is not finite: lower the learning rate or inspect the {taken}")
    return float(norm)

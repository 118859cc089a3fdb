"""One optimizer step of an adapter, and its state as a file."""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

from search_to_signal.base.errors import LearnerError, NotFiniteError
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.device import bitsandbytes

# The optimizer that the settings name, and the step that every rule makes with it.


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


# Everything that optimizer steps change, as the bytes of one safetensors file.

_PARAMETER, _MOMENT, _NUMBER = "parameter:", "moment:", "number:"


def dump_state(parameters: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer) -> bytes:
    """The trained parameters by name, and the optimizer's state by parameter number."""
    tensors = {f"{_PARAMETER}{name}": tensor for name, tensor in parameters.items()}
    for number, slots in optimizer.state_dict()["state"].items():
        for name, value in slots.items():
            # Some optimizers keep plain numbers as well as tensors, and get them back as such.
            plain = not isinstance(value, torch.Tensor)
            key = f"{_NUMBER if plain else _MOMENT}{number}:{name}"
            tensors[key] = torch.from_numpy(np.asarray(value)) if plain else value
    # Copies, because some optimizers share one table between all parameters and the format forbids that.
    return save({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()})


def load_state(data: bytes, parameters: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer) -> None:
    """Put back what ``dump_state`` took; raises LearnerError when it belongs to another adapter."""
    tensors = load(data)
    shapes = {f"{_PARAMETER}{name}": tensor.shape for name, tensor in parameters.items()}
    stored_shapes = {name: tensor.shape for name, tensor in tensors.items() if name.startswith(_PARAMETER)}
    if stored_shapes != shapes:
        raise LearnerError("the checkpoint belongs to another run: go on with that run")
    with torch.no_grad():
        for name, tensor in parameters.items():
            tensor.copy_(tensors[f"{_PARAMETER}{name}"])
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        kind, _, rest = key.partition(":")
        number, _, name = rest.partition(":")
        if f"{kind}:" != _PARAMETER:
            value = tensor.item() if f"{kind}:" == _NUMBER else tensor.clone()
            state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})

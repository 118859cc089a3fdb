"""Everything that optimizer steps change, as the bytes of one safetensors file."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

from search_to_signal.errors import LearnerError

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
        raise LearnerError(
            "the checkpoint holds another adapter than this run's: go on with the run it is of"
        )
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

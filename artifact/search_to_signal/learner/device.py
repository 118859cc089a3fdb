"""Where pretraining computes: a CPU or a CUDA device, either of them deterministically."""

import os
from typing import Literal

import torch

from search_to_signal.errors import ConfigError

Device = Literal["cpu", "cuda"]


def prepare_device(device: Device) -> None:
    """Make the device give the same bits every time; raises ConfigError for one that this machine lacks."""
    if device == "cpu":
        return
    if not torch.cuda.is_available():
        raise ConfigError(
            'this recipe trains on device "cuda", which this machine lacks: set device = "cpu" in a copy '
            "of it (a model of the same recipe with other bytes, after hours)"
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)


def processor(device: Device) -> str:
    """What the device is, for people."""
    return torch.cuda.get_device_name() if device == "cuda" else "CPU"


def torch_version() -> str:
    """The version of torch with the CUDA that it was built for."""
    return str(torch.__version__)

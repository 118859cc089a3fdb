"""The device that a model is pretrained on, made deterministic."""

import os

import torch

from search_to_signal.errors import ConfigError


def prepare(device: str, threads: int) -> None:
    """Make a device deterministic; raises ConfigError for a GPU that this machine lacks."""
    torch.set_num_threads(threads)
    if device == "cpu":
        return
    if not torch.cuda.is_available():
        raise ConfigError(
            'this recipe trains on device "cuda", which this machine lacks: set device = "cpu" in a copy '
            "of it (a model of the same recipe with other bytes, after hours)"
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)


def processor(device: str, threads: int) -> str:
    """What a model was trained on, in words."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


def torch_version() -> str:
    """The version of torch that runs."""
    return str(torch.__version__)

"""Tiny models gain nothing from threads, and lose much to them on a busy machine."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "oracles"))

torch.set_num_threads(1)

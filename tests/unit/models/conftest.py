"""Tiny models gain nothing from threads, and lose much to them on a busy machine."""

import torch

torch.set_num_threads(1)

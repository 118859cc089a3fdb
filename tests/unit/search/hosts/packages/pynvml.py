"""Stands in for the GPU library that the released host asks while it is imported: one card, nothing free."""

from typing import NamedTuple


class Memory(NamedTuple):
    """Bytes of a card."""

    free: int = 0


def nvmlInit() -> None:
    """Begin."""


def nvmlDeviceGetCount() -> int:
    """One card."""
    return 1


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    """What stands for a card."""
    return index


def nvmlDeviceGetMemoryInfo(handle: int) -> Memory:
    """What is free of it."""
    return Memory()


def nvmlShutdown() -> None:
    """End."""

"""Stands in for the GPU library that the released host asks while it is imported: one card, nothing free."""

from typing import NamedTuple


class Memory(NamedTuple):
    free: int = 0


def nvmlInit() -> None:
    """Begin."""


def nvmlDeviceGetCount() -> int:
    return 1


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetMemoryInfo(handle: int) -> Memory:
    return Memory()


def nvmlShutdown() -> None:
    """End."""

"""How the kernels are compiled: exact IEEE arithmetic, kept on disk where that is possible."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile for speed without changing a bit: no fast-math, no exceptions on division by zero.

    The machine code is cached next to the source or in the user's cache. numba raises RuntimeError when
    it can write to neither; then every process compiles for itself.
    """
    options = {"nogil": True, "error_model": "numpy"}
    try:
        kernel: F = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        kernel = numba.njit(**options)(function)
    return kernel

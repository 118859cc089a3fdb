"""The modules that heuristics find: a worker cannot open files, so what is not imported here is absent."""

import importlib
import warnings
from collections.abc import Sequence

_STANDARD = (
    "abc", "array", "bisect", "builtins", "cmath", "collections", "collections.abc", "contextlib", "copy",
    "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "gc", "hashlib", "heapq",
    "inspect", "io", "itertools", "json", "logging", "math", "numbers", "operator", "os", "pickle",
    "queue", "random", "re", "secrets", "statistics", "string", "struct", "sys", "textwrap", "threading",
    "time", "traceback", "types", "typing", "unicodedata", "warnings", "weakref", "encodings.ascii",
    "encodings.idna", "encodings.latin_1", "encodings.unicode_escape",
)  # fmt: skip
_NUMERIC = (
    "numpy", "numpy.core._dtype", "numpy.core._methods", "numpy.fft", "numpy.lib.stride_tricks",
    "numpy.linalg", "numpy.ma", "numpy.polynomial", "numpy.random", "numpy.typing", "scipy",
    "scipy.cluster.hierarchy", "scipy.cluster.vq", "scipy.interpolate", "scipy.linalg", "scipy.ndimage",
    "scipy.optimize", "scipy.sparse", "scipy.sparse.csgraph", "scipy.sparse.linalg", "scipy.spatial",
    "scipy.spatial.distance", "scipy.special", "scipy.stats",
)  # fmt: skip


def preload(modules: Sequence[str] = (*_STANDARD, *_NUMERIC)) -> None:
    """Import what heuristics use and touch the linear algebra once, so that workers start warm."""
    warnings.simplefilter("ignore")
    for module in modules:
        importlib.import_module(module)
    import numpy as np

    np.linalg.inv(np.eye(3)) @ np.ones(3)

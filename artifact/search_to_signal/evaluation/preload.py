"""The modules that heuristics find: a worker cannot open files, so what is not imported here is absent."""

import importlib
import warnings
from collections.abc import Sequence

_STANDARD = (
    "abc", "argparse", "array", "ast", "asyncio", "atexit", "base64", "binascii", "bisect", "builtins",
    "calendar", "cmath", "collections", "collections.abc", "colorsys", "concurrent.futures", "contextlib",
    "contextvars", "copy", "csv", "ctypes", "dataclasses", "datetime", "decimal", "difflib", "dis", "enum",
    "errno", "fcntl", "fractions", "functools", "gc", "getpass", "glob", "graphlib", "hashlib", "heapq",
    "hmac", "html", "http.client", "importlib", "inspect", "io", "itertools", "json", "keyword", "linecache",
    "locale", "logging", "marshal", "math", "mmap", "multiprocessing", "numbers", "operator", "os",
    "pathlib", "pickle", "platform", "pprint", "queue", "random", "re", "resource", "sched", "secrets",
    "select", "selectors", "shelve", "shlex", "shutil", "signal", "socket", "sqlite3", "statistics",
    "string", "struct", "subprocess", "sys", "tempfile", "textwrap", "threading", "time", "timeit",
    "traceback", "types", "typing", "typing_extensions", "unicodedata", "urllib.request", "uuid",
    "warnings", "weakref", "zlib", "encodings.ascii", "encodings.idna", "encodings.latin_1",
    "encodings.unicode_escape", "multiprocessing.shared_memory",
)  # fmt: skip
_NUMERIC = (
    "numpy", "numpy.core._dtype", "numpy.core._methods", "numpy.ctypeslib", "numpy.fft",
    "numpy.lib.stride_tricks", "numpy.linalg", "numpy.ma", "numpy.polynomial", "numpy.random",
    "numpy.typing", "scipy", "scipy.cluster.hierarchy", "scipy.cluster.vq", "scipy.interpolate",
    "scipy.linalg", "scipy.ndimage", "scipy.optimize", "scipy.sparse", "scipy.sparse.csgraph",
    "scipy.sparse.linalg", "scipy.spatial", "scipy.spatial.distance", "scipy.special", "scipy.stats",
)  # fmt: skip


def preload(modules: Sequence[str] = (*_STANDARD, *_NUMERIC)) -> None:
    """Import what heuristics use and touch the linear algebra once, so that workers start warm."""
    warnings.simplefilter("ignore")
    for module in modules:
        importlib.import_module(module)
    import numpy as np

    np.linalg.inv(np.eye(3)) @ np.ones(3)

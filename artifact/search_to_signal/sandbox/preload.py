"""The modules that heuristics find: a worker cannot open files, so what is not imported here is absent.

There are two sets, because a fork costs time for everything that was imported: the lean one has what
nearly all heuristics use, the wide one adds scipy and rarer parts of the standard library.
"""

import importlib
import importlib.util
import re
import warnings

# numpy 2 renamed its inner package; numpy 1.26 has the new name as well, with less in it.
_INNER = "numpy._core" if importlib.util.find_spec("numpy._core._methods") else "numpy.core"
LEAN = (
    "abc", "array", "bisect", "builtins", "cmath", "collections", "collections.abc", "contextlib", "copy",
    "ctypes", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "gc", "heapq",
    "inspect", "io", "itertools", "json", "logging", "math", "numbers", "operator", "os", "pickle", "queue",
    "random", "re", "resource", "secrets", "select", "signal", "socket", "statistics", "string", "struct",
    "sys", "textwrap", "threading", "time", "traceback", "types", "typing", "unicodedata", "warnings",
    "weakref", "encodings.ascii", "encodings.idna", "encodings.latin_1", "encodings.unicode_escape",
    "numpy", f"{_INNER}._dtype", f"{_INNER}._methods", "numpy.fft", "numpy.lib.stride_tricks",
    "numpy.linalg", "numpy.ma", "numpy.polynomial", "numpy.random", "numpy.typing",
)  # fmt: skip
WIDE = (
    "argparse", "ast", "asyncio", "atexit", "base64", "binascii", "calendar", "colorsys",
    "concurrent.futures", "contextvars", "csv", "difflib", "dis", "errno", "fcntl", "getpass", "glob",
    "graphlib", "hashlib", "hmac", "html", "http.client", "importlib", "importlib.util", "keyword",
    "linecache", "locale", "marshal", "mmap", "multiprocessing", "multiprocessing.shared_memory", "pathlib",
    "platform", "pprint", "sched", "selectors", "shelve", "shlex", "shutil", "sqlite3", "subprocess",
    "tempfile", "timeit", "urllib.request", "uuid", "zlib",
    "scipy", "scipy.cluster.hierarchy", "scipy.cluster.vq", "scipy.interpolate", "scipy.linalg",
    "scipy.ndimage", "scipy.optimize", "scipy.sparse", "scipy.sparse.csgraph", "scipy.sparse.linalg",
    "scipy.spatial", "scipy.spatial.distance", "scipy.special", "scipy.stats",
)  # fmt: skip
_WORDS = re.compile(r"\w+")
_WIDE_ROOTS = frozenset(name.partition(".")[0] for name in WIDE)


def needs_wide(code: str) -> bool:
    """Whether a module of the wide set is named anywhere in a program, by its text alone."""
    return not _WIDE_ROOTS.isdisjoint(_WORDS.findall(code))


def preload(wide: bool) -> None:
    """Import one of the sets and touch the linear algebra once, so that workers start warm."""
    warnings.simplefilter("ignore")
    for module in (*LEAN, *WIDE) if wide else LEAN:
        importlib.import_module(module)
    import numpy as np

    np.linalg.inv(np.eye(3)) @ np.ones(3)

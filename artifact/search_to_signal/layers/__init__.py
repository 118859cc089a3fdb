"""One folder or module per evidence layer, named by its key: profile and results in, records out.

A folder holds ``layer``, which runs it, and where they are needed ``checks``, which hold its records against
others, and ``again``, which computes them again where its ``MANIFEST`` is in the layer's directory.
"""

from importlib import import_module
from pathlib import Path
from typing import Any


def part(key: str, name: str) -> Any:
    """Return a module of a layer's folder; None where the layer has none of this name."""
    there = (Path(__file__).parent / key / f"{name}.py").is_file()
    return import_module(f"{__name__}.{key}.{name}") if there else None

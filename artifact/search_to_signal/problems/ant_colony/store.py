"""Noise on disk, in the user's cache directory. A file that is not what was written there is ignored."""

import contextlib
import hashlib
import json
import os
import platform
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Noise:
    """Noise of one colony shape, and whether torch was found to use it as the kernels do.

    exact (draws, ants, nodes) float64; coarse (draws, ants, width) uint16, the upper bits of 1 / exact.
    """

    exact: NDArray[np.float64]
    coarse: NDArray[np.uint16]
    agrees: bool


def directory() -> Path:
    """Where noise is kept: below XDG_CACHE_HOME, or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache"
    return Path(base) / "search-to-signal" / "noise"


def machine() -> str:
    """Short name of this kind of processor: the mathematics library may round differently on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    kind = sorted(
        {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    )
    return hashlib.sha256("\n".join([platform.machine(), *kind]).encode()).hexdigest()[:12]


def load(name: str) -> Noise | None:
    """Return the stored noise as read-only maps, or None when it is missing or not what was written."""
    try:
        note = json.loads((directory() / f"{name}.json").read_text())
        exact, coarse = _mapped(note["exact"]), _mapped(note["coarse"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if exact is None or coarse is None:
        return None
    return Noise(exact, coarse, bool(note["agrees"]))


def save(name: str, noise: Noise) -> None:
    """Store the noise; where the directory cannot be written, do nothing.

    Arrays are named by their content and the note goes last, each by an atomic rename, so that other
    processes see all of it or nothing.
    """
    with contextlib.suppress(OSError):
        directory().mkdir(parents=True, exist_ok=True)
        note = {"exact": _keep(noise.exact), "coarse": _keep(noise.coarse), "agrees": noise.agrees}
        _replace(f"{name}.json", lambda path: path.write_text(json.dumps(note)))


def _sha256(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _keep(array: Array) -> str:
    sha256 = _sha256(array)
    _replace(f"{sha256}.npy", lambda path: np.save(path, array))
    return sha256


def _replace(name: str, write: Any) -> None:
    handle, draft = tempfile.mkstemp(suffix=Path(name).suffix, dir=directory())
    os.close(handle)
    try:
        write(Path(draft))
        os.replace(draft, directory() / name)
    finally:
        Path(draft).unlink(missing_ok=True)


def _mapped(sha256: str) -> Array | None:
    array = np.load(directory() / f"{sha256}.npy", mmap_mode="r", allow_pickle=False)
    return array.view(np.ndarray) if _sha256(array) == sha256 else None

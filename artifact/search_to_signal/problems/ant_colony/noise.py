"""The exponential noise that decides every draw of the ants: drawn once by torch, then kept on disk.

Every instance starts its own generator from the same seed, so the k-th draw of any colony of that many
ants and nodes sees the same block of exponentials, whatever the instance and the heuristic.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Noise on disk, in the user's cache directory. A file that is not what was written there is ignored.

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


GENERATOR_SEED = 42
LANE = 64


@dataclass(frozen=True)
class Colony:
    """The shape of the noise: how many draws a run may need, of how many ants over how many nodes."""

    draws: int
    ants: int
    nodes: int


def torch_version() -> str:
    """Version of the installed torch, without importing it."""
    return importlib.metadata.version("torch")


@functools.cache  # a pure function of its argument on one machine; the arrays are read-only
def noise_for(colony: Colony) -> Noise:
    """Return the noise of a colony from memory, from the user's cache, or drawn now, which imports torch."""
    name = f"torch-{torch_version()}-{machine()}-{colony.draws}x{colony.ants}x{colony.nodes}"
    stored = load(name)
    if stored is not None:
        return stored
    drawn = draw_noise(colony)
    save(name, drawn)
    return drawn


def draw_noise(colony: Colony) -> Noise:
    """Draw the noise and try whether torch chooses and sums as the kernels do; imports torch."""
    from search_to_signal.problems.ant_colony import agreement

    exact = draw_exponentials(colony)
    noise = Noise(exact, coarsen(exact), agreement.kernels_agree(exact))
    noise.exact.setflags(write=False)
    noise.coarse.setflags(write=False)
    return noise


def draw_exponentials(colony: Colony) -> NDArray[np.float64]:
    """Let torch draw the (draws, ants, nodes) blocks that its multinomial would draw; imports torch."""
    import torch

    generator = torch.Generator().manual_seed(GENERATOR_SEED)
    blocks = np.empty((colony.draws, colony.ants, colony.nodes))
    for block in blocks:
        drawn = torch.empty(colony.ants, colony.nodes, dtype=torch.float64)
        block[...] = drawn.exponential_(1, generator=generator).numpy()
    return blocks


def coarsen(exact: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Round 1 / exact to nine significant bits: the upper 16 of the 31 bits of a positive float32.

    Columns are padded with zeros to whole vector lanes.
    """
    draws, ants, nodes = exact.shape
    coarse = np.zeros((draws, ants, -(-nodes // LANE) * LANE), np.uint16)
    for rows, block in zip(coarse, exact, strict=True):
        bits = (1.0 / block).astype(np.float32).view(np.uint32)
        rows[:, :nodes] = (bits + (1 << 14)) >> 15
    return coarse

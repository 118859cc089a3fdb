"""Stored adapters, compared with the checksums that runs recorded, without a model library."""

import hashlib
import json
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.records.checksums import SUMS, UNSHIPPED, read_sums
from search_to_signal.records.files import files_named, open_regular, read_regular, write_atomically
from search_to_signal.records.manifest import INTERRUPTED, Manifest
from search_to_signal.records.schema import StepRecord

ADAPTER = "adapter"
TENSORS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
FILES = (CONFIG, TENSORS)
_DTYPES = {"F16": "torch.float16", "F32": "torch.float32", "F64": "torch.float64"}
_LONGEST_HEADER = 1 << 24


def tensors_sha256(path: Path) -> str:
    """Return the SHA-256 over names, shapes and bytes of a file's tensors, in order of name.

    It equals the hash of learner.adapter. Raises RunDirectoryError for a file that is no safetensors file, or
    has bytes that belong to no tensor.
    """
    try:
        return digest_of(mapped_bytes(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunDirectoryError(f"{path} is not a valid safetensors file ({error}); restore it") from error


def mapped_bytes(path: Path) -> mmap:
    """The bytes of a file of tensors, which may be more than memory holds; raises ValueError for none."""
    with open_regular(path) as file:
        return mmap(file.fileno(), 0, access=ACCESS_READ)


def digest_of(data: bytes | mmap) -> str:
    """Return the hash of ``tensors_sha256`` for a file's bytes.

    Raises ValueError, KeyError, TypeError or AttributeError for bytes of another format.
    """
    digest = hashlib.sha256()
    for name, stored in stored_tensors(data).items():
        digest.update(f"{name} {stored.shape} {_DTYPES[stored.dtype]}\n".encode())
        digest.update(stored.data)
    return digest.hexdigest()


class StoredTensor(NamedTuple):
    """A tensor of a safetensors file: its type as named there (F32), its shape, its little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def stored_tensors(data: bytes | mmap) -> dict[str, StoredTensor]:
    """Return the tensors of a file's bytes in order of name; raises as ``digest_of``."""
    length = int.from_bytes(data[:8], "little")
    if length > min(_LONGEST_HEADER, len(data) - 8):
        raise ValueError("its header is too long")
    header = json.loads(data[8 : 8 + length])
    body = memoryview(data)[8 + length :]
    tensors, tensor_bytes = {}, 0
    for name in sorted(header.keys() - {"__metadata__"}):
        start, end = header[name]["data_offsets"]
        if not 0 <= start <= end <= len(body):
            raise ValueError(f"{name} is outside the file")
        shape = tuple(int(size) for size in header[name]["shape"])
        tensors[name] = StoredTensor(header[name]["dtype"], shape, body[start:end])
        tensor_bytes += end - start
    if tensor_bytes != len(body):
        raise ValueError("it has bytes that belong to no tensor")
    return tensors


def adapter_problems(
    run: Path, manifest: Manifest, steps: list[StepRecord], trained: bool, absent: frozenset[str]
) -> Iterator[str]:
    """Yield contradictions of a run's adapter, steps and manifest; only JSON and safetensors are allowed.

    ``absent`` are the run's files that may be missing, by relative path.
    """
    recorded = [step.adapter_sha256 for step in steps]
    folder = run / ADAPTER
    if not trained:
        if manifest.final_adapter_sha256 is not None or any(recorded) or folder.exists():
            yield "it was not trained and has an adapter"
        return
    if not steps or recorded[-1] != manifest.final_adapter_sha256 or None in recorded:
        yield "final_adapter_sha256 is not the adapter of its last step"
    if not folder.exists() and absent.issuperset(f"{ADAPTER}/{name}" for name in FILES):
        return
    files = sorted(path.name for path in folder.glob("*"))
    if files != sorted(FILES):
        yield f"{ADAPTER} holds {files}, it may only hold {' and '.join(FILES)}"
        return
    if tensors_sha256(folder / TENSORS) != manifest.final_adapter_sha256:
        yield f"{ADAPTER}/{TENSORS} does not hold the recorded final adapter"
    yield from _config_problems(folder / CONFIG, manifest)


def _config_problems(path: Path, manifest: Manifest) -> Iterator[str]:
    learner = manifest.config.get("learner", {})
    try:
        config = json.loads(read_regular(path))
        settings = (config["r"], config["lora_alpha"], config["base_model_name_or_path"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        yield f"{ADAPTER}/{path.name} is not an adapter configuration ({error})"
        return
    if learner and settings != (learner["lora_rank"], learner["lora_alpha"], None):
        yield f"{ADAPTER}/{path.name} has another rank, alpha or base model than the run"


def left_out(directory: Path) -> set[str]:
    """Return the listed files of a run's final adapter where the adapter is absent, as in packed runs."""
    if (directory / ADAPTER).exists():
        return set()
    return {name for name in read_sums(directory) if Path(name).parent.name == ADAPTER}


# SHA256SUMS.unshipped: the listed files that are missing because packing left them out, by ``s2s unpack``.
#
# Packing leaves out final adapters, unless asked for them, and what interrupted runs left. Nothing else can
# be excused.


def why_left_out(name: str) -> str | None:
    """Return why packing leaves out a file, by its relative path; None for a file that is always packed."""
    parts = Path(name).parts[:-1]
    if INTERRUPTED in parts:
        return "belongs to an interrupted run, and these are never packed"
    if ADAPTER in parts:
        return "belongs to a final adapter that was not packed: s2s retrain makes it again"
    return None


def write_unshipped(root: Path) -> None:
    """Next to every checksum list below ``root`` name its files that are missing and were left out, if any.

    Raises RunDirectoryError for an unreadable list.
    """
    for path in files_named(root, SUMS):
        if names := _left_out(path.parent):
            write_atomically(path.with_name(UNSHIPPED), "".join(f"{name}\n" for name in names).encode())


def unshipped(directory: Path) -> frozenset[str]:
    """Return the listed files of a directory that are missing and named as left out when it was unpacked.

    An adapter of which a part is here was not left out. Raises RunDirectoryError where the list is missing or
    unreadable, though files are named.
    """
    named = _named(directory / UNSHIPPED)
    return named.intersection(_left_out(directory)) if named else frozenset()


def unfit_names(directory: Path) -> list[str]:
    """Return a line for every file below a directory that names what packing never leaves out."""
    return [
        f"{path.relative_to(directory).as_posix()} names {name!r}, which is never left out of a pack"
        for path in files_named(directory, UNSHIPPED)
        for name in sorted(_named(path))
        if why_left_out(name) is None
    ]


def _named(path: Path) -> frozenset[str]:
    return frozenset(read_regular(path).decode(errors="replace").splitlines() if path.is_file() else ())


def _left_out(directory: Path) -> list[str]:
    """The listed files that may be left out, of which not even the directory is here."""
    return [
        name
        for name in read_sums(directory)
        if why_left_out(name) is not None and not (directory / name).parent.exists()
    ]

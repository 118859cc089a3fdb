"""What the headers of weight files say, without the weights: tensors by name, and where a file ends."""

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from search_to_signal.errors import ModelFileError
from search_to_signal.progress import one_line

_LENGTH_BYTES = 8
# Of thousands of tensors; the format allows 100 MB.
_LONGEST_HEADER = 16 << 20
_MOST_DIMENSIONS = 8
_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64"), 8),
}

Shape = tuple[int, ...]


def tensor_shapes(directory: Path) -> dict[str, Shape]:
    """Return the shapes of the tensors in the ``*.safetensors`` of a model directory, by name.

    Raises ModelFileError as ``file_shapes`` does, and for a name that two files have.
    """
    shapes: dict[str, Shape] = {}
    for path in sorted(directory.glob("*.safetensors")):
        found = file_shapes(path)
        if twice := sorted(found.keys() & shapes.keys()):
            raise ModelFileError(f"{path} holds {one_line(twice[0], 80)}, as another file does: remove one")
        shapes.update(found)
    return shapes


def file_shapes(path: Path) -> dict[str, Shape]:
    """The shapes of a file's tensors by name.

    Raises ModelFileError for a file that is unreadable, longer or shorter than its header says, whose tensors
    are not laid one after the other, or that is of another framework.
    """
    damaged = f"{path} is damaged, or was not copied to its end: get it again, and check its SHA-256"
    if not path.is_file():
        raise ModelFileError(f"{path} is no file: get it again")
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
            if length > _LONGEST_HEADER:
                raise ModelFileError(damaged)
            header = json.loads(stream.read(length), object_pairs_hook=_once)
        facts = header.pop("__metadata__", {"format": "pt"})
        shapes = dict(_laid_out(header, path.stat().st_size - _LENGTH_BYTES - length))
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        said = f" ({error})" if type(error) is ValueError else ""
        raise ModelFileError(damaged + said) from error
    if not isinstance(facts, dict) or facts.get("format") not in ("pt", "mlx"):
        raise ModelFileError(f"{path}: __metadata__.format is not 'pt': get the weights for PyTorch")
    return shapes


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header says something twice")
    return found


def _laid_out(header: dict[str, Any], size: int) -> Iterator[tuple[str, Shape]]:
    """Name and shape of every tensor; raises ValueError where they do not fill the bytes one by one."""
    at = 0
    for name, facts in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        start, end = facts["data_offsets"]
        shape = tuple(facts["shape"])
        numbers = (start, end, *shape)
        if len(shape) > _MOST_DIMENSIONS or not all(type(n) is int and 0 <= n < 1 << 63 for n in numbers):
            raise ValueError(f"{one_line(name, 80)} has no place and shape")
        if start != at or end - start != prod(shape) * _BYTES[facts["dtype"]]:
            raise ValueError(f"{one_line(name, 80)} does not fill its place")
        at = end
        yield name, shape
    if at != size:
        raise ValueError("its length is another")

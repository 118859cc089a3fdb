"""What the headers of weight files say, without the weights: names of tensors, and where a file ends."""

import json
from collections.abc import Iterator
from pathlib import Path

from search_to_signal.errors import ModelFileError

_LENGTH_BYTES = 8
# The format's own limit of a header.
_LONGEST_HEADER = 100_000_000


def tensor_names(directory: Path) -> frozenset[str]:
    """Return the names of the tensors in the ``*.safetensors`` of a model directory.

    Raises ModelFileError for a file that is unreadable, or longer or shorter than its header says.
    """
    return frozenset(name for path in sorted(directory.glob("*.safetensors")) for name in _names(path))


def _names(path: Path) -> Iterator[str]:
    damaged = f"{path} is damaged, or was not copied to its end: get it again, and check its SHA-256"
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
            if length > _LONGEST_HEADER:
                raise ModelFileError(damaged)
            header = json.loads(stream.read(length))
        tensors = {name: facts for name, facts in header.items() if name != "__metadata__"}
        end = max((int(facts["data_offsets"][1]) for facts in tensors.values()), default=0)
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise ModelFileError(damaged) from error
    if path.stat().st_size != _LENGTH_BYTES + length + end:
        raise ModelFileError(damaged)
    yield from tensors

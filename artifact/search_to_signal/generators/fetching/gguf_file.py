"""A GGUF file of a Qwen2 model, read through the library gguf: settings, tokens and weights by row."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize
from numpy.typing import NDArray

from search_to_signal.errors import ModelFileError

ARCHITECTURE = "qwen2"
# A vocabulary is the longest list there is; a damaged length would be read for hours.
_LONGEST_LIST = 1 << 21
_MOST_FIELDS = 1 << 16
_ROWS = 4096
# What the library raises for bytes that make no sense.
_UNREADABLE = (
    *(ValueError, LookupError, TypeError, ArithmeticError, AttributeError, AssertionError),
    *(OSError, MemoryError, RecursionError, NotImplementedError),
)


class _Bounded(gguf.GGUFReader):  # type: ignore[misc]
    """The library's reader; it takes what a damaged file claims, so lengths and places are checked here."""

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
        if int(offset) + np.dtype(dtype).itemsize * int(count) > len(self.data):
            raise ValueError("it ends too early")
        return super()._get(int(offset), dtype, count, override_order)

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        if raw_type == gguf.GGUFValueType.ARRAY and self._get(orig_offs + 4, np.uint64)[0] > _LONGEST_LIST:
            raise ValueError("a list in it is too long")
        return super()._get_field_parts(orig_offs, raw_type)

    def _build_fields(self, offs: int, count: int) -> int:
        if count > _MOST_FIELDS:
            raise ValueError("it claims too many settings")
        built: int = super()._build_fields(offs, count)
        return built


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever the library raises for this file is a ModelFileError of one line."""
    try:
        yield
    except _UNREADABLE as error:
        said = str(error) or type(error).__name__
        raise ModelFileError(
            f"{path} is no GGUF file that can be read ({said}): it is damaged or unfinished; get it again"
        ) from error


class GgufModel:
    """An open GGUF file; raises ModelFileError where it is damaged or of another architecture."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path):
            if _magic(path) != b"GGUF":
                raise ValueError("it does not begin with GGUF")
            self._reader = _Bounded(path)
            self.tensors = {str(tensor.name): tensor for tensor in self._reader.tensors}
        architecture = self.setting("general.architecture", "nothing")
        if architecture != ARCHITECTURE:
            raise ModelFileError(
                f"{path} holds a model of architecture {architecture!r}: only {ARCHITECTURE!r} can be "
                "turned into a model directory; give the distributor's safetensors files instead"
            )

    def setting(self, name: str, default: Any = None) -> Any:
        """A value of the file's header: a text, a number, or a list of them; raises where it is missing."""
        field = self._reader.fields.get(name)
        if field is None:
            if default is None:
                raise ModelFileError(f"{self.path} says nothing of {name}: give a whole GGUF file of a model")
            return default
        with reading(self.path):
            values = [_value(field.parts[place], field.types[-1]) for place in field.data]
            return values if field.types[0] == gguf.GGUFValueType.ARRAY else values[0]

    def rows(self, name: str) -> Iterator[NDArray[np.float32]]:
        """A tensor's values as float32, some rows at a time; a vector is one row.

        Raises ModelFileError for values that are not finite.
        """
        tensor = self.tensors[name]
        data = tensor.data if tensor.data.ndim > 1 else tensor.data[None]
        for start in range(0, len(data), _ROWS):
            # A damaged scale is no number; that is told below.
            with reading(self.path), np.errstate(all="ignore"):
                values = dequantize(data[start : start + _ROWS], tensor.tensor_type)
            if not np.isfinite(values).all():
                raise ModelFileError(f"{self.path}: {name} holds what is no number; get the file again")
            yield values


def _magic(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(4)


def _value(part: NDArray[Any], kind: Any) -> Any:
    return bytes(part).decode() if kind == gguf.GGUFValueType.STRING else part[0].item()

"""A GGUF file of a Qwen2 model, read through the library gguf: settings, tokens and weights by row."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import gguf
import numpy as np
from gguf.quants import dequantize
from numpy.typing import NDArray

from search_to_signal.errors import ModelFileError
from search_to_signal.generators.fetching.parts import MAGIC
from search_to_signal.progress import one_line

ARCHITECTURE = "qwen2"
# Tokens, their kinds and merges are the longest lists there are; a damaged length would be read for hours.
_MOST_ITEMS = 1 << 21
_MOST_FIELDS = _MOST_TENSORS = 1 << 16
_ROWS = 4096
_Item = TypeVar("_Item", str, int)
# What the library raises for bytes that make no sense.
_UNREADABLE = (
    *(ValueError, LookupError, TypeError, ArithmeticError, AttributeError, AssertionError),
    *(OSError, MemoryError, RecursionError, NotImplementedError),
)


class _Bounded(gguf.GGUFReader):
    """The library's reader; it takes what a damaged file claims, so lengths and places are checked here."""

    _items = 0

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
        if int(offset) + np.dtype(dtype).itemsize * int(count) > len(self.data):
            raise ValueError("it ends too early")
        return super()._get(int(offset), dtype, count, override_order)

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        if raw_type == gguf.GGUFValueType.ARRAY:
            if self._get(orig_offs, np.uint32)[0] == gguf.GGUFValueType.ARRAY:
                raise ValueError("a list in it holds lists")
            self._items += int(self._get(orig_offs + 4, np.uint64)[0])
            if self._items > _MOST_ITEMS:
                raise ValueError("a list in it is too long, or all of them together")
        return super()._get_field_parts(orig_offs, raw_type)

    def _build_fields(self, offs: int, count: int) -> int:
        if count > _MOST_FIELDS:
            raise ValueError("it claims too many settings")
        built: int = super()._build_fields(offs, count)
        return built

    def _build_tensor_info(self, offs: int, count: int) -> Any:
        if count > _MOST_TENSORS:
            raise ValueError("it claims too many tensors")
        return super()._build_tensor_info(offs, count)

    def _build_tensors(self, start_offs: int, fields: Any) -> None:
        super()._build_tensors(start_offs, fields)
        ends = 0
        # What lies in one place would become many times as much.
        for tensor in sorted(self.tensors, key=lambda tensor: tensor.data_offset):
            if tensor.data_offset < ends:
                raise ValueError(f"{one_line(tensor.name, 80)} lies where another tensor does")
            ends = tensor.data_offset + int(tensor.n_bytes)

    def _push_field(self, field: Any, skip_sum: bool = False) -> Any:
        if field.name in self.fields:
            raise ValueError(f"it says {one_line(field.name, 80)} twice")
        return super()._push_field(field, skip_sum)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever the library raises for this file is a ModelFileError of one line."""
    try:
        # numpy would warn of what is reported below.
        with np.errstate(all="ignore"):
            yield
    except _UNREADABLE as error:
        message = one_line(str(error), 200) or type(error).__name__
        raise ModelFileError(
            f"{path} is no GGUF file that can be read ({message}): it is damaged or unfinished; get it again"
        ) from error


class GgufModel:
    """An open GGUF file; raises ModelFileError where it is damaged or of another architecture."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path):
            if _magic(path) != MAGIC:
                raise ValueError("it does not begin with GGUF")
            self._reader = _Bounded(path)
            self.tensors = {str(tensor.name): tensor for tensor in self._reader.tensors}
        architecture = one_line(str(self.setting("general.architecture", "nothing")), 80)
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

    def words(self, name: str) -> list[str]:
        """A setting that is a list of texts; raises where it is something else."""
        return self._list(name, str)

    def numbers(self, name: str) -> list[int]:
        """A setting that is a list of whole numbers; raises where it is something else."""
        return self._list(name, int)

    def text(self, name: str) -> str:
        """A setting that is one text; raises where it is something else."""
        value = self.setting(name)
        if not isinstance(value, str):
            raise self._unexpected(name)
        return value

    def _list(self, name: str, kind: type[_Item]) -> list[_Item]:
        value = self.setting(name)
        if not isinstance(value, list) or not all(type(item) is kind for item in value):
            raise self._unexpected(name)
        return value

    def _unexpected(self, name: str) -> ModelFileError:
        return ModelFileError(f"{self.path}: {name} is of another kind than it should be; get the file again")

    def rows(self, name: str) -> Iterator[NDArray[np.float32]]:
        """A tensor's values as float32, some rows at a time; a vector is one row.

        Raises ModelFileError for values that are not finite.
        """
        tensor = self.tensors[name]
        data = tensor.data if tensor.data.ndim > 1 else tensor.data[None]
        for start in range(0, len(data), _ROWS):
            with reading(self.path):
                values = dequantize(data[start : start + _ROWS], tensor.tensor_type)
            if not np.isfinite(values).all():
                raise ModelFileError(f"{self.path}: {name} holds what is no number; get the file again")
            yield values


def _magic(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(len(MAGIC))


def _value(part: NDArray[Any], kind: Any) -> Any:
    return bytes(part).decode() if kind == gguf.GGUFValueType.STRING else part[0].item()

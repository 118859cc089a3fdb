"""Pickles read so that they can build plain data and nothing else: numbers, texts, containers, arrays.

A pickle is a program. This reader knows the instructions for plain data alone; it imports nothing and calls
nothing that a file names. The few names that tensors and numpy numbers need stand for functions of this
module. What a file may build is bounded by its size: a byte or two refer to all that was built before.
"""

import io
import math
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.audit.importers.streams import regular
from search_to_signal.base.errors import RecordError, reason

LARGEST = 4 * 1024 * 1024 * 1024
# Bytes that a file may build beside its texts and numbers: so many, and so many times its size.
_ROOM, _GROWTH = 32 * 1024 * 1024, 32
# About what an empty container takes, or the memo of a value; a number and its place in a list.
_CONTAINER, _NUMBER = 64, 36
# Values when all references are followed, beside eight per byte of the file, and how deep they may lie.
_VALUES, _DEEPEST = 100_000, 100
# What zipfile reads of an archive before anything is asked for: some 100 bytes for each tensor.
_DIRECTORY = 16 * 1024 * 1024
# Arguments of a builder, and axes of a tensor.
_MOST = 16
_STORAGES = {
    **{"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "BFloat16Storage": "<u2"},
    **{"LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "<i1"},
    **{"ByteStorage": "<u1", "BoolStorage": "?"},
}


class _Refused(ValueError):
    """The file asks for more than plain data."""


@dataclass(frozen=True)
class _Name:
    """A name that a file mentions; it is looked up in a table, never imported."""

    module: str
    name: str


@dataclass
class _Dtype:
    """A numpy dtype under construction: its code, then its byte order."""

    code: str
    order: str = "<"


def load_plain(path: Path) -> Any:
    """The plain data of a ``torch.save`` file or a pickle.

    Raises RecordError for a file that is damaged, or that would build anything but plain data; the message
    names what it asked for. Nothing of the file is executed.
    """
    with regular(path) as file:
        size = file.seek(0, io.SEEK_END)
        if size > LARGEST:
            raise RecordError(f"{path} is a dump of over {LARGEST} bytes, and a dump is held whole; split it")
        try:
            archive = zipfile.is_zipfile(file)
            file.seek(0)
            data = _load_archive(file, size) if archive else _Plain(file.read(), size).load()
            _refuse_bombs(data, _VALUES + 8 * size)
        except _Refused as refused:
            raise RecordError(
                f"{path}: refused, {refused}; only plain data is read: save the samples as dictionaries"
            ) from refused
        except _DAMAGE as error:
            raise RecordError(
                f"{path}: damaged or no dump ({type(error).__name__}: {reason(error)}); copy the file again"
            ) from error
    return data


# What reading a damaged or hostile pickle raises, and nothing broader; RuntimeError is zipfile's.
_DAMAGE = (
    *(pickle.UnpicklingError, zipfile.BadZipFile, struct.error, EOFError, OSError, MemoryError),
    *(ValueError, TypeError, LookupError, AttributeError, OverflowError, RuntimeError),
)


def _load_archive(file: io.BufferedReader, size: int) -> Any:
    if zipfile._EndRecData(file)[zipfile._ECD_SIZE] > _DIRECTORY:  # type: ignore[attr-defined]
        raise _Refused(f"its list of entries has over {_DIRECTORY} bytes")
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if any(entry.compress_type or entry.file_size != entry.compress_size for entry in entries):
            raise _Refused("an entry is compressed, which torch.save never does")
        names = {entry.filename for entry in entries}
        main = [name for name in names if name.endswith("/data.pkl")]
        if len(main) != 1 or len(names) < len(entries) or sum(entry.file_size for entry in entries) > size:
            raise _Refused("its entries are not as torch.save writes them: one data.pkl, each entry once")
        prefix = main[0].removesuffix("data.pkl")
        if f"{prefix}byteorder" in names and archive.read(f"{prefix}byteorder") != b"little":
            raise _Refused("its numbers are big-endian")
        return _Plain(archive.read(main[0]), size, lambda key: archive.read(f"{prefix}data/{key}")).load()


class _Plain(pickle._Unpickler):
    """The pure-Python unpickler with all but the instructions for plain data taken out."""

    stack: list[Any]

    def __init__(self, pickled: bytes, size: int, storage: Callable[[str], bytes] = lambda key: b"") -> None:
        super().__init__(io.BytesIO(pickled))
        self._storage = storage
        self._storages: dict[str, NDArray[Any]] = {}
        self._left = _ROOM + _GROWTH * size

    def spend(self, size: int = _CONTAINER) -> None:
        """Count bytes that are built."""
        self._left -= size
        if self._left < 0:
            raise _Refused("it would build far more than it holds")

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _BUILDERS and (module, name) not in _DATA_NAMES:
            raise _Refused(f"it names {module}.{name}")
        return _Name(module, name)

    def persistent_load(self, pid: Any) -> Any:
        match pid:
            case ("storage", _Name(module="torch", name=kind), str(key), _, int(count)) if kind in _STORAGES:
                if key not in self._storages:
                    values = np.frombuffer(self._storage(key), _STORAGES[kind])
                    wide = (values.astype("<u4") << 16).view("<f4") if kind == "BFloat16Storage" else values
                    self._storages[key] = wide
                if len(self._storages[key]) != count:
                    raise ValueError(f"storage {key} has another length than is due")
                return self._storages[key]
        raise _Refused("it refers to something outside that is no tensor storage")

    def reduce(self) -> None:
        """Call a function of this module in the stead of the one that the file names."""
        arguments = self.stack.pop()
        name = self.stack[-1]
        builder = _BUILDERS.get((name.module, name.name)) if isinstance(name, _Name) else None
        if builder is None or not isinstance(arguments, tuple) or len(arguments) > _MOST:
            raise _Refused("it calls something that is no builder of plain data")
        self.stack[-1] = builder(*arguments)
        self.spend(sys.getsizeof(self.stack[-1]))

    def build(self) -> None:
        """Set the state of a numpy dtype or array; nothing else has a state."""
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, _Dtype) and isinstance(state, tuple) and state[1] in list("<>=|"):
            target.order = state[1]
        elif isinstance(target, list) and not target and isinstance(state, tuple) and len(state) == 5:
            values = _array(*state)
            rows = sum(math.prod(values.shape[:axis]) for axis in range(1, values.ndim))
            self.spend(_CONTAINER * rows + _NUMBER * values.size)
            target.extend(values.tolist())
        else:
            raise _Refused("it sets the state of an object")


def _checked(code: bytes, keys: slice | None = None) -> Callable[[Any], None]:
    """An instruction that makes a container, or one that finds keys at a place of the stack."""
    known = pickle._Unpickler.dispatch[code[0]]

    def run(plain: Any) -> None:
        plain.spend() if keys is None else _keys(plain.stack[keys])
        known(plain)

    return run


def _keys(values: Iterable[Any]) -> Iterable[Any]:
    """Values that are hashed at once. A tuple is not, nor an integer whose hash can be chosen."""
    for value in values:
        short = isinstance(value, int) and abs(value) < 2**61 - 1
        if not short and not isinstance(value, str | bytes | float | None):
            raise _Refused("a key is neither a text nor a number")
    return values


def _refuse_instruction(_: Any) -> None:
    raise _Refused("it holds an instruction that plain data does not need")


_ALLOWED = (
    *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.POP, pickle.POP_MARK, pickle.DUP),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BININT, pickle.BININT1, pickle.BININT2),
    *(pickle.LONG1, pickle.BINFLOAT, pickle.BINUNICODE, pickle.SHORT_BINUNICODE),
    *(pickle.BINUNICODE8, pickle.BINBYTES, pickle.SHORT_BINBYTES, pickle.BINBYTES8),
    *(pickle.EMPTY_TUPLE, pickle.APPEND, pickle.APPENDS),
    *(pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET),
    *(pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.BINPERSID),
)
_EMPTY = (pickle.EMPTY_LIST, pickle.EMPTY_DICT, pickle.EMPTY_SET)
_MAKING = (*_EMPTY, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.MARK, pickle.MEMOIZE)
_INSTRUCTIONS: dict[int, Callable[[Any], None]] = {
    **dict.fromkeys(pickle._Unpickler.dispatch, _refuse_instruction),
    **{code[0]: pickle._Unpickler.dispatch[code[0]] for code in _ALLOWED},
    **{code[0]: _checked(code) for code in _MAKING},
    pickle.SETITEM[0]: _checked(pickle.SETITEM, slice(-2, -1)),
    pickle.SETITEMS[0]: _checked(pickle.SETITEMS, slice(None, None, 2)),
    **{code[0]: _checked(code, slice(None)) for code in (pickle.ADDITEMS, pickle.FROZENSET)},
    **{pickle.REDUCE[0]: _Plain.reduce, pickle.BUILD[0]: _Plain.build},
}
_Plain.dispatch = _INSTRUCTIONS


def _refuse_bombs(data: object, most: int) -> None:
    """Raise _Refused for values that refer to others again and again: whoever walks them comes to no end."""
    waiting = [(1, data)]
    while waiting:
        depth, value = waiting.pop()
        if isinstance(value, dict | list | tuple):
            most -= len(value)
            if most < 0 or depth > _DEEPEST:
                raise _Refused("its values hold others without end")
            parts = value.values() if isinstance(value, dict) else value
            waiting.extend((depth + 1, part) for part in parts if isinstance(part, dict | list | tuple))


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Any:
    """A tensor as a number or an array; refused where it reaches beyond its storage or repeats it."""
    wanted = math.prod(_whole(size))
    reach = sum(((n - 1) * step for n, step in zip(size, _whole(stride), strict=True)), *_whole((offset,)))
    if wanted > len(storage) or (wanted and reach >= len(storage)):
        raise ValueError("a tensor reaches beyond its storage")
    if not wanted or not size:
        return storage[offset].item() if wanted else []
    if stride == tuple(math.prod(size[axis + 1 :]) for axis in range(len(size))):
        return storage[offset : offset + wanted].reshape(size)
    places = np.array(offset)
    for n, step in zip(size, stride, strict=True):
        places = places[..., np.newaxis] + np.arange(n) * step
    return storage[places]


def _whole(shape: Any) -> tuple[int, ...]:
    """A shape; raises ValueError for what is no tuple of a few integers of Python from 0 on."""
    if not isinstance(shape, tuple) or len(shape) > _MOST:
        raise ValueError("a shape has too many axes, or is none")
    if not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("a shape reaches beyond its storage")
    return shape


def _dtype(code: Any, *_: Any) -> _Dtype:
    if code not in ["f2", "f4", "f8", "b1", *(f"{kind}{width}" for kind in "iu" for width in "1248")]:
        raise _Refused("it holds numpy values that are no numbers")
    return _Dtype(code)


def _array(_: Any, shape: Any, dtype: _Dtype, fortran: Any, raw: bytes) -> NDArray[Any]:
    flat = np.frombuffer(raw, (">" if dtype.order == ">" else "<") + dtype.code)
    if math.prod(_whole(shape)) != len(flat):
        raise ValueError("an array has another number of values than its shape")
    # Empty rows take memory, and no byte of the file.
    return flat.reshape(shape, order="F" if fortran else "C") if len(flat) else flat


def _encode(text: str, encoding: Any) -> bytes:
    if encoding != "latin1":
        raise _Refused("it encodes text by another codec than latin1")
    return text.encode("latin1")


_PYTHON, _NUMPY = ("builtins", "__builtin__"), ("numpy.core.multiarray", "numpy._core.multiarray")
_BUILDERS: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch", "Size"): tuple,
    ("collections", "OrderedDict"): lambda: {},
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): _dtype,
    **{(module, "set"): lambda values: set(_keys(values)) for module in _PYTHON},
    **{(module, "frozenset"): lambda values: frozenset(_keys(values)) for module in _PYTHON},
    **{(module, "bytes"): lambda: b"" for module in _PYTHON},
    **{(module, "scalar"): lambda dtype, raw: _array(1, (), dtype, False, raw).item() for module in _NUMPY},
    **{(module, "_reconstruct"): lambda *_: [] for module in _NUMPY},
}
_DATA_NAMES = {("numpy", "ndarray"), *(("torch", name) for name in _STORAGES)}

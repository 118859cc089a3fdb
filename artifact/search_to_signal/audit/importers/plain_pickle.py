"""Pickles read so that they can build plain data and nothing else: numbers, texts, containers, arrays.

A pickle is a program. This reader knows the instructions for plain data alone; it imports nothing and calls
nothing that a file names. The few names that tensors and numpy numbers need stand for functions of this
module.
"""

import io
import math
import pickle
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.errors import RecordError

LARGEST = 4 * 1024 * 1024 * 1024
_STORAGES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "?",
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
    if path.stat().st_size > LARGEST:
        raise RecordError(f"{path} is a dump of over {LARGEST} bytes, and a dump is held whole; split it")
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return _load_archive(archive)
        return _Plain(io.BytesIO(path.read_bytes()), _no_storage).load()
    except _Refused as refused:
        raise RecordError(
            f"{path}: refused, {refused}; only plain data is read: save the samples as dictionaries"
        ) from refused
    except _DAMAGE as error:
        raise RecordError(
            f"{path}: damaged or no dump ({type(error).__name__}: {error}); copy the file again"
        ) from error


def _no_storage(key: str) -> bytes:
    raise _Refused(f"it refers to a tensor storage {key} that a plain pickle cannot hold")


# What reading a damaged or hostile pickle raises, and nothing broader.
_DAMAGE = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    EOFError,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
    NotImplementedError,
)


def _load_archive(archive: zipfile.ZipFile) -> Any:
    """The data of a torch.save archive: one pickle, and one entry of raw numbers per storage."""
    names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if len(names) != 1:
        raise _Refused(f"the archive has {len(names)} entries data.pkl, where torch.save writes one")
    prefix = names[0].removesuffix("data.pkl")
    _refuse_big_endian(archive, prefix)
    read = _reader(archive)
    return _Plain(io.BytesIO(read(names[0])), lambda key: read(f"{prefix}data/{key}")).load()


def _reader(archive: zipfile.ZipFile) -> Callable[[str], bytes]:
    """Read entries that are stored as they are, which is all that torch.save writes; a bomb is compressed."""

    def read(name: str) -> bytes:
        if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
            raise _Refused(f"the entry {name} is compressed, which torch.save never does")
        return archive.read(name)

    return read


def _refuse_big_endian(archive: zipfile.ZipFile, prefix: str) -> None:
    if f"{prefix}byteorder" in archive.namelist() and archive.read(f"{prefix}byteorder") != b"little":
        raise _Refused("its numbers are big-endian")


class _Plain(pickle._Unpickler):
    """The pure-Python unpickler with all but the instructions for plain data taken out."""

    stack: list[Any]

    def __init__(self, file: io.BytesIO, storage: Callable[[str], bytes]) -> None:
        super().__init__(file)
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _BUILDERS and (module, name) not in _DATA_NAMES:
            raise _Refused(f"it names {module}.{name}")
        return _Name(module, name)

    def persistent_load(self, pid: Any) -> Any:
        if (
            not isinstance(pid, tuple)
            or len(pid) != 5
            or pid[0] != "storage"
            or not isinstance(pid[1], _Name)
        ):
            raise _Refused("it refers to something outside that is no tensor storage")
        _, kind, key, _, count = pid
        values = _numbers(self._storage(str(key)), _STORAGES[kind.name])
        if len(values) != count:
            raise ValueError(f"storage {key} holds {len(values)} numbers where {count} are due")
        return values

    def reduce(self) -> None:
        """Call a function of this module in the stead of the one that the file names."""
        arguments = self.stack.pop()
        name = self.stack[-1]
        builder = _BUILDERS.get((name.module, name.name)) if isinstance(name, _Name) else None
        if builder is None or not isinstance(arguments, tuple):
            raise _Refused("it calls something that is no builder of plain data")
        self.stack[-1] = builder(*arguments)

    def build(self) -> None:
        """Set the state of a numpy dtype or array; nothing else has a state."""
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, _Dtype):
            target.order = str(state[1])
        elif isinstance(target, list) and not target and isinstance(state, tuple) and len(state) == 5:
            target.extend(_array(*state))
        else:
            raise _Refused("it sets the state of an object")


def _refuse_instruction(_: Any) -> None:
    raise _Refused("it holds an instruction that plain data does not need")


_ALLOWED = (
    *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.POP, pickle.POP_MARK, pickle.DUP),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BININT, pickle.BININT1, pickle.BININT2),
    *(pickle.LONG1, pickle.LONG4, pickle.BINFLOAT, pickle.BINUNICODE, pickle.SHORT_BINUNICODE),
    *(pickle.BINUNICODE8, pickle.BINBYTES, pickle.SHORT_BINBYTES, pickle.BINBYTES8),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS, pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS),
    *(pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET, pickle.MEMOIZE),
    *(pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET),
    *(pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.BINPERSID),
)
_INSTRUCTIONS: dict[int, Callable[[Any], None]] = {
    code: function if bytes([code]) in _ALLOWED else _refuse_instruction
    for code, function in pickle._Unpickler.dispatch.items()
}
_Plain.dispatch = _INSTRUCTIONS | {pickle.REDUCE[0]: _Plain.reduce, pickle.BUILD[0]: _Plain.build}


def _numbers(raw: bytes, code: str) -> NDArray[Any]:
    if code == "bfloat16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(raw, code)


def _tensor(storage: Any, offset: int, size: Any, stride: Any, *_: Any) -> Any:
    """A tensor as a number or an array; refused where it reaches beyond its storage or repeats it."""
    reach = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    wanted = math.prod(size)
    if min((offset, *size, *stride)) < 0 or (wanted and (reach >= len(storage) or wanted > len(storage))):
        raise ValueError("a tensor reaches beyond its storage")
    if not wanted:
        return []
    step = tuple(s * storage.itemsize for s in stride)
    values = np.lib.stride_tricks.as_strided(storage[offset:], tuple(size), step, writeable=False)
    return values.copy() if size else values.item()


def _dtype(code: str, *_: Any) -> _Dtype:
    if code not in _NUMPY_CODES:
        raise _Refused(f"it holds numpy values of kind {code}")
    return _Dtype(code)


_NUMPY_CODES = {*(f"{kind}{width}" for kind in "iu" for width in "1248"), "f2", "f4", "f8", "b1"}


def _scalar(dtype: _Dtype, raw: bytes) -> Any:
    return _values(dtype, raw)[0].item()


def _array(_: Any, shape: tuple[int, ...], dtype: _Dtype, fortran: bool, raw: bytes) -> list[Any]:
    values: list[Any] = _values(dtype, raw).reshape(shape, order="F" if fortran else "C").tolist()
    return values


def _values(dtype: _Dtype, raw: bytes) -> NDArray[Any]:
    return np.frombuffer(raw, (">" if dtype.order == ">" else "<") + dtype.code)


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise _Refused(f"it encodes text as {encoding}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


def _empty_array(*_: Any) -> list[Any]:
    return []


_BUILDERS: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch", "Size"): tuple,
    ("collections", "OrderedDict"): dict,
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): _dtype,
    **{(module, "set"): set for module in ("builtins", "__builtin__")},
    **{(module, "frozenset"): frozenset for module in ("builtins", "__builtin__")},
    **{(module, "bytes"): _no_bytes for module in ("builtins", "__builtin__")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _empty_array for core in ("core", "_core")},
}
_DATA_NAMES = {("numpy", "ndarray"), *(("torch", name) for name in _STORAGES)}

"""Dumps are read without running anything that they hold."""

import collections
import os
import pickle
import random
import resource
import time
import warnings
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.audit import logs

from search_to_signal.audit.importers import read
from search_to_signal.audit.importers.plain_pickle import load_plain
from search_to_signal.base.errors import RecordError

PROTO = b"\x80\x02"


@pytest.fixture
def torch() -> Any:
    """The library whose dumps are read; the reader itself needs none."""
    return pytest.importorskip("torch")


class Calls:
    """An object whose pickle calls what it is given."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call  # type: ignore[return-value]


class Stateful:
    """An object of a class of somebody's own, with a state."""

    def __init__(self) -> None:
        self.anything = 1


def refused(path: Path) -> str:
    """The one line with which a dump is refused."""
    with pytest.raises(RecordError) as caught:
        load_plain(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("in_archive", [True, False])
def test_code_in_a_pickle_is_refused_and_not_run(in_archive: bool, tmp_path: Path) -> None:
    """A pickle that would make a directory makes none, and the line names what it asked for."""
    victim, hostile = tmp_path / "made", Calls(os.mkdir, str(tmp_path / "made"))
    path = tmp_path / "1.pt"
    if in_archive:
        logs.dump_of(path, hostile)
    else:
        path.write_bytes(pickle.dumps({"samples": [hostile]}, protocol=4))
    assert "posix.mkdir" in refused(path)
    assert not victim.exists()


@pytest.mark.parametrize(
    "pickled",
    [
        pytest.param(PROTO + b"cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", id="a global that is called"),
        pytest.param(PROTO + b"cbuiltins\neval\nX\x03\x00\x00\x001+1\x85R.", id="eval"),
        pytest.param(b"(X\x02\x00\x00\x00lsios\nsystem\n.", id="INST"),
        pytest.param(b"(cos\nsystem\nX\x02\x00\x00\x00lso.", id="OBJ"),
        pytest.param(PROTO + b"ccollections\nOrderedDict\n)\x81.", id="NEWOBJ"),
        pytest.param(
            PROTO + b"ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb.", id="BUILD on a name"
        ),
        pytest.param(b"\x80\x04\x8c\x0ctorch._utils\x8c\x0cos.system\x93)R.", id="a dotted name"),
        pytest.param(b"\x80\x04\x8c\x06torch.\x8c\x04Size\x93)R.", id="a module that is nearly right"),
        pytest.param(PROTO + b"X\x02\x00\x00\x00os(K\x01tR.", id="calling a text"),
        pytest.param(PROTO + b"\x82\x01.", id="EXT1"),
        pytest.param(b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x3f.", id="BYTEARRAY8 of an exabyte"),
        pytest.param(b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x3f.", id="BINBYTES8 of an exabyte"),
        pytest.param(PROTO + b"Nr\xff\xff\xff\xffj\xff\xff\xff\x7f.", id="a memo of four billion"),
        pytest.param(PROTO + b"X\x01\x00\x00\x00aQ.", id="a persistent id that is no storage"),
        pytest.param(
            PROTO + b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00zip\x86R.", id="another codec"
        ),
        pytest.param(
            PROTO + b"ccollections\nOrderedDict\n(K\x01K\x02K\x03t\x85R.", id="a builder with nonsense"
        ),
        pytest.param(PROTO + b"]q\x00h\x00h\x00R.", id="calling a list"),
        pytest.param(PROTO + b"K", id="cut off"),
        pytest.param(PROTO, id="nothing but its header"),
        pytest.param(b"\x80\xff.", id="a protocol that does not exist"),
    ],
)
def test_hostile_and_damaged_pickles_give_one_line(pickled: bytes, tmp_path: Path) -> None:
    """Whatever instruction a pickle tries, it ends in one line, alone or in an archive."""
    refused(logs.dump(tmp_path / "1.pt", pickled))
    (tmp_path / "2.pt").write_bytes(pickled)
    refused(tmp_path / "2.pt")


@pytest.mark.parametrize(
    "pickled",
    [PROTO + b"ccollections\nOrderedDict\n)\x81.", b"\x80\x05\x96\x01\x00\x00\x00\x00\x00\x00\x00a."],
)
def test_instructions_beyond_plain_data_are_not_known(pickled: bytes, tmp_path: Path) -> None:
    """Making an object of a class, or a byte array, is refused before it is tried."""
    assert "instruction" in refused(logs.dump(tmp_path / "1.pt", pickled))


@pytest.mark.parametrize("thing", [Stateful(), collections.Counter("a"), {1, Stateful}, slice(3), range(3)])
def test_objects_are_refused(thing: object, tmp_path: Path) -> None:
    """Even harmless classes are not plain data."""
    assert "refused" in refused(logs.dump_of(tmp_path / "1.pt", thing))


def test_plain_data_comes_back_as_it_was(torch: Any, tmp_path: Path) -> None:
    """What torch.save writes of numbers, texts and containers is read as torch.load reads it."""
    data = {
        "numbers": [0, -1, 2**40, -(2**200), 1.5, float("inf")],
        "others": (None, True, "ä\U0001f600", b"\x00\xff", {1, 2}, frozenset("a"), [], ()),
        "ordered": collections.OrderedDict(a=1, b=2),
    }
    data["again"] = data["numbers"]
    torch.save(data, tmp_path / "1.pt")
    assert load_plain(tmp_path / "1.pt") == torch.load(tmp_path / "1.pt", weights_only=False)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "bool"])
def test_tensors_come_back_as_arrays(torch: Any, dtype: str, tmp_path: Path) -> None:
    """Values, shape and strides of every kind of number; a tensor without a shape is a number."""
    tensor = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.5, -1.0]]).to(getattr(torch, dtype))
    torch.save({"t": tensor.T[1:], "n": tensor[1, 0], "e": tensor[:0]}, tmp_path / "1.pt")
    loaded = load_plain(tmp_path / "1.pt")
    assert np.asarray(loaded["t"]).tolist() == tensor.T[1:].tolist()
    assert loaded["n"] == tensor[1, 0].item()
    assert list(loaded["e"]) == []


@pytest.mark.parametrize("protocol", [2, 4])
def test_numpy_numbers_come_back_as_numbers(protocol: int, tmp_path: Path) -> None:
    """Rewards that a reward function made with numpy are numbers, arrays are lists."""
    data = {"reward": np.float64(0.1), "small": np.float32(0.1), "count": np.int64(-3), "ok": np.True_}
    data["array"] = np.arange(6.0).reshape(2, 3)
    (tmp_path / "1.pkl").write_bytes(pickle.dumps(data, protocol=protocol))
    loaded = load_plain(tmp_path / "1.pkl")
    assert loaded == {
        "reward": 0.1,
        "small": float(np.float32(0.1)),
        "count": -3,
        "ok": True,
        "array": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]],
    }


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [
        (0, (5,), (1,)),
        (2, (3,), (1,)),
        (0, (2, 2), (1, 3)),
        (-1, (2,), (1,)),
        (3, (2,), (-1,)),
        (0, (10**9,), (0,)),
    ],
)
def test_a_tensor_cannot_reach_beyond_its_storage(
    torch: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], tmp_path: Path
) -> None:
    """Shapes that read memory beside the storage, or blow it up, are refused."""
    path = tmp_path / "1.pt"
    torch.save({"t": torch.arange(4.0)}, path)
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    (name,) = (name for name in entries if name.endswith("data.pkl"))
    assert load_plain(path)["t"].tolist() == [0.0, 1.0, 2.0, 3.0]
    # The arguments as torch writes them: offset 0, size (4,), stride (1,).
    old, new = b"K\x00K\x04\x85", _small(offset) + _tuple(size)
    strides = b"K\x01\x85", _tuple(stride)
    entries[name] = entries[name].replace(old, new, 1).replace(*strides, 1)
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in entries.items():
            archive.writestr(entry, content)
    assert "beyond" in refused(path)


_NUMBERS = "(X\x07\x00\x00\x00storagectorch\nLongStorage\nX\x01\x00\x00\x000NK\x04tQ"
_HUGE = "\x8a\x09" + "\x00" * 8 + "\x01"
_VIEWS = {
    "numbers of the file as its shape": ("K\x00", _NUMBERS, _NUMBERS),
    "as its shape, in a tuple": ("K\x00", f"{_NUMBERS}\x85", "K\x01\x85"),
    "as its offset": (_NUMBERS, "K\x01\x85", "K\x01\x85"),
    "as its strides": ("K\x00", "(K\x03K\x01K\x01K\x01t", _NUMBERS),
    "an offset beyond 64 bits": (_HUGE, "K\x01\x85", "K\x01\x85"),
    "a size beyond 64 bits": ("K\x00", f"{_HUGE}\x85", "K\x01\x85"),
    "a stride beyond 64 bits": ("K\x00", "K\x02\x85", f"{_HUGE}\x85"),
    "sizes that overflow to one": ("K\x00", f"{_HUGE}{_HUGE}\x86", "K\x00K\x00\x86"),
    "a fraction": ("K\x00", "G?\xf0\x00\x00\x00\x00\x00\x00\x85", "K\x01\x85"),
    "truth": ("\x88", "K\x01\x85", "K\x01\x85"),
    "a text": ("K\x00", "X\x01\x00\x00\x001", "K\x01\x85"),
    "fewer strides": ("K\x00", "K\x01K\x01\x86", "K\x01\x85"),
    "a thousand axes": ("K\x00", "(" + "K\x01" * 1000 + "t", "(" + "K\x01" * 1000 + "t"),
}


@pytest.mark.parametrize("name", _VIEWS)
def test_a_view_is_made_of_whole_numbers_of_python(name: str, tmp_path: Path) -> None:
    """Numbers of numpy overflow without a word: what they allow ends the process, or prints its memory."""
    numbers = np.array([2**62, 4, 2**62, 4], "<i8").tobytes()
    pickled = f"ctorch._utils\n_rebuild_tensor_v2\n({_NUMBERS}{''.join(_VIEWS[name])}\x89}}tR."
    entries = [("a/data.pkl", PROTO + pickled.encode("latin1")), ("a/data/0", numbers)]
    refused(_entries(tmp_path / "1.pt", entries))


def _small(value: int) -> bytes:
    return b"J" + value.to_bytes(4, "little", signed=True)


def _tuple(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(_small, values)) + b"t"


def test_a_compressed_entry_is_refused(torch: Any, tmp_path: Path) -> None:
    """torch.save stores; what is compressed may be a bomb."""
    with zipfile.ZipFile(tmp_path / "1.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"samples": [0] * 1000}, protocol=2))
    assert "compressed" in refused(tmp_path / "1.pt")


def test_an_archive_that_is_cut_off_gives_one_line(tmp_path: Path) -> None:
    """Half a dump is no dump."""
    path = logs.slime(tmp_path)
    path.write_bytes(path.read_bytes()[:-200])
    refused(path)
    with pytest.raises(RecordError, match="9.pt"):
        list(read(path))


def _wide(rows: int, end: str) -> str:
    """A list of references to the list before, three times over."""
    first = "]q\x00(" + "K\x00" * rows + "e"
    more = "".join(f"]q{chr(at)}(" + f"h{chr(at - 1)}" * rows + "e" for at in (1, 2))
    return first + more + end


_KEY = "K\x00\x85q\x00" + "0h\x00h\x00\x86q\x00" * 60
_TEXT = "X\x00\x40\x00\x00" + "a" * 0x4000 + "q\x01X\x06\x00\x00\x00latin1q\x02"
_ONE_HASH = [(at * (2**61 - 1)).to_bytes(12, "little").decode("latin1") for at in range(1, 9)]
BOMBS = {
    "lists that double": "]q\x00" + "](h\x00h\x00eq\x00" * 60 + ".",
    "tuples that double": ")q\x00" + "h\x00h\x00\x86q\x00" * 60 + ".",
    "tuples that double, by DUP": ")" + "2\x86" * 60 + ".",
    "lists three deep, and wide": _wide(10_000, "."),
    "a list in itself": "]q\x00h\x00a.",
    "a mapping in itself": "}q\x00K\x00h\x00s.",
    "as deep as it is long": "]" * 50_000 + "a" * 49_999 + ".",
    "a key that takes years to hash": "}" + _KEY + "K\x01s.",
    "a key that takes years to hash, among many": "}(" + _KEY + "K\x01u.",
    "a set that takes years to hash": "cbuiltins\nset\n](" + _KEY + "e\x85R.",
    "keys with one hash": "}(" + "".join(f"\x8a\x0c{key}N" for key in _ONE_HASH) + "u.",
    "a text, encoded again": f"c_codecs\nencode\nq\x00{_TEXT}" + "h\x00h\x01h\x02\x86R" * 20_000 + ".",
    "a size, made again": f"ctorch\nSize\nq\x00]({'K ' * 0x8000}eq\x01" + "h\x00h\x01\x85R" * 9999 + ".",
    "a codec that is a bomb": f"c_codecs\nencode\nX\x01\x00\x00\x00a{_KEY}\x86R.",
    "a dtype that is a bomb": f"cnumpy\ndtype\n{_KEY}K\x00K\x01\x87R.",
    "a storage that is a bomb": f"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n{_KEY}NK\x01tQ.",
    "empty containers without end": "]" * 1_200_000 + ".",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_dump_builds_little_and_soon(name: str, tmp_path: Path) -> None:
    """References of two bytes to what was built before are no way to memory or time without end."""
    pickled = PROTO + BOMBS[name].encode("latin1")
    (tmp_path / "1.pkl").write_bytes(pickled)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    refused(tmp_path / "1.pkl")
    assert time.process_time() - start < 5.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024
    refused(logs.dump(tmp_path / "1.pt", pickled))


def _array(shape: str, code: str, order: str, raw: str) -> bytes:
    """A numpy array as protocol 2 writes it."""
    text = f"X{chr(len(raw))}\x00\x00\x00{raw}X\x06\x00\x00\x00latin1"
    dtype = (
        f"cnumpy\ndtype\nX\x02\x00\x00\x00{code}K\x00K\x01\x87R"
        f"(K\x03X\x01\x00\x00\x00{order}NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    state = f"(K\x01{shape}{dtype}\x89c_codecs\nencode\n{text}\x86Rtb."
    start = "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85c_codecs\nencode\n"
    return PROTO + (start + "X\x01\x00\x00\x00bX\x06\x00\x00\x00latin1\x86R\x87R" + state).encode("latin1")


@pytest.mark.parametrize("shape", ["J\x00Zb\x02K\x00\x86", "K\x02J\x00Zb\x02K\x00\x87", "K\x00" * 3 + "\x87"])
def test_an_array_without_numbers_takes_no_room(shape: str, tmp_path: Path) -> None:
    """(40000000, 0) was forty million lists, from 226 bytes."""
    (tmp_path / "1.pkl").write_bytes(_array(shape, "f8", "<", ""))
    assert load_plain(tmp_path / "1.pkl") == []


@pytest.mark.parametrize("order", "<>=|")
def test_numbers_of_any_byte_order_are_read(order: str, tmp_path: Path) -> None:
    """1 and 256 as numpy writes them."""
    (tmp_path / "1.pkl").write_bytes(_array("K\x02K\x01\x86", "i2", order, "\x01\x00\x00\x01"))
    assert load_plain(tmp_path / "1.pkl") == ([[256], [1]] if order == ">" else [[1], [256]])


_ODD_SHAPES = (
    *("K\x03\x85", "\x88\x85", "G?\xf0\x00\x00\x00\x00\x00\x00\x85", "]K\x02a", "(" + "K\x01" * 40 + "t"),
    *("J\xff\xff\xff\xffJ\xfe\xff\xff\xff\x86", f"(\x8a\x0a{chr(0) * 8}\x01\x00K\x00t"),
)


@pytest.mark.parametrize("shape", _ODD_SHAPES)
def test_an_array_of_another_shape_is_refused(shape: str, tmp_path: Path) -> None:
    """More numbers than bytes, truth and fractions for sizes, sizes beyond 64 bits, no tuple."""
    (tmp_path / "1.pkl").write_bytes(_array(shape, "i2", "<", "\x01\x00\x00\x01"))
    refused(tmp_path / "1.pkl")


def _entries(path: Path, entries: Sequence[tuple[str, bytes]]) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")
        for name, content in entries:
            archive.writestr(name, content)
    return path


def test_an_archive_is_as_torch_writes_it(tmp_path: Path) -> None:
    """Every name once, one pickle, and no list of entries that is longer than a log needs."""
    good = ("a/data.pkl", PROTO + b"N.")
    assert load_plain(_entries(tmp_path / "1.pt", [good])) is None
    for more in [[("a/x", b""), ("a/x", b"")], [("b/data.pkl", PROTO + b"N.")]]:
        refused(_entries(tmp_path / "1.pt", [good, *more]))
    many = [good, *((f"a/{'x' * 60_000}{at}", b"") for at in range(300))]
    assert "list of entries" in refused(_entries(tmp_path / "1.pt", many))


def test_entries_that_overlap_are_refused(tmp_path: Path) -> None:
    """One megabyte of numbers under many names is many megabytes."""
    entries = [("a/data.pkl", PROTO + b"N."), *((f"a/data/{at}", bytes(10)) for at in range(9))]
    path = _entries(tmp_path / "1.pt", entries)
    raw = path.read_bytes()
    directory = raw.index(b"PK\x01\x02")
    size = (10).to_bytes(4, "little")
    path.write_bytes(raw[:directory] + raw[directory:].replace(size + size, (500).to_bytes(4, "little") * 2))
    refused(path)


@pytest.mark.parametrize("flag", [1, 64])
def test_an_entry_that_is_encrypted_is_refused(flag: int, tmp_path: Path) -> None:
    """zipfile asks for a password, or knows no such method."""
    path = _entries(tmp_path / "1.pt", [("a/data.pkl", PROTO + b"N.")])
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= flag
    path.write_bytes(bytes(raw))
    refused(path)


def test_the_byte_order_is_stored_too(tmp_path: Path) -> None:
    """The one entry that was read as it came: 2,682 bytes of it took 3.2 GB."""
    with zipfile.ZipFile(tmp_path / "1.pt", "w") as archive:
        archive.writestr("a/data.pkl", PROTO + b"N.")
        archive.writestr("a/byteorder", bytes(10**7), zipfile.ZIP_DEFLATED)
    assert "compressed" in refused(tmp_path / "1.pt")


_ENDINGS = (b"J\x01", b"\x8a\x05a", b"X\x01", b"G?", b"\x8d\x01", b"\x95\x01", b"h", b"(", b"e", b"00", b"q")


@pytest.mark.parametrize("ending", _ENDINGS)
def test_a_pickle_that_ends_anywhere_is_one_line(ending: bytes, tmp_path: Path) -> None:
    """In the middle of a number, a text or a frame, and without the values that an instruction takes."""
    (tmp_path / "1.pkl").write_bytes(PROTO + ending)
    refused(tmp_path / "1.pkl")


def test_any_change_of_a_dump_is_read_or_refused(torch: Any, tmp_path: Path) -> None:
    """One byte after the other replaced, in the archive of a real dump: never a traceback, never a crash."""
    path = logs.slime(tmp_path)
    raw = path.read_bytes()
    drawn = random.Random(65)
    for _ in range(400):
        changed = bytearray(raw)
        for _ in range(drawn.randint(1, 3)):
            changed[drawn.randrange(len(raw))] = drawn.randrange(256)
        path.write_bytes(bytes(changed))
        with suppress(RecordError):
            load_plain(path)

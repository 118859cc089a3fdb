"""Dumps are read without running anything that they hold."""

import collections
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.audit import logs

from search_to_signal.audit.importers import read
from search_to_signal.audit.importers.plain_pickle import load_plain
from search_to_signal.errors import RecordError

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


def test_a_nested_bomb_stays_small(torch: Any, tmp_path: Path) -> None:
    """A prompt that doubles itself forty times is read without being written out."""
    bomb: list[object] = ["x"]
    for _ in range(40):
        bomb = [bomb, bomb]
    sample = {**logs.sample(0), "prompt": bomb, "metadata": bomb}
    torch.save({"rollout_id": 1, "samples": [sample]}, tmp_path / "1.pt")
    (groups,) = read(tmp_path / "1.pt")
    assert groups.sizes.tolist() == [1]

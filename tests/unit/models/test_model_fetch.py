"""``s2s model fetch`` leaves a whole model directory, or one line and nothing."""

import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.forked import Commands
from tests.gguf_files import write_gguf

from search_to_signal.base.errors import ConfigError, ModelFileError, RunDirectoryError
from search_to_signal.cli import main
from search_to_signal.models.fetching import renamed_when_whole
from search_to_signal.models.files import KNOWN, checked_files
from search_to_signal.models.local import load_model, load_tokenizer
from search_to_signal.records.checksums import sha256_file

pytestmark = pytest.mark.slow

SMALL = "qwen2.5-coder-0.5b-instruct"
PAPERS = "Qwen2.5-7B-Instruct"
PARTS = 12


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file."""
    return write_gguf(tmp_path_factory.mktemp("whole") / "own.gguf")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def in_parts(whole: Path, directory: Path, name: Callable[[int], str] = "part{}.bin".format) -> Path:
    """A file cut into parts, each in a directory of its own, beside files that are none."""
    data, size = whole.read_bytes(), -(-whole.stat().st_size // PARTS)
    for number in range(1, PARTS + 1):
        part = directory / f"package_part{number}" / "data" / name(number)
        part.parent.mkdir(parents=True)
        part.write_bytes(data[(number - 1) * size : number * size])
        (part.parents[1] / "__init__.py").write_text("raise SystemExit('imported')\n")
    return directory


def fetched(*arguments: str | Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and error output of the command."""
    code = main(["model", "fetch", *map(str, arguments)])
    return code, capsys.readouterr().err


def refused(*arguments: str | Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The same, where it has to be one line and leave nothing."""
    before = sorted(Path.cwd().rglob("*"))
    code, err = fetched(*arguments, capsys=capsys)
    assert err.startswith("s2s: error: ")
    assert err.count("\n") == 1
    assert sorted(Path.cwd().rglob("*")) == before
    return code, err


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_file_and_its_parts_give_the_same_directory(
    whole: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Parts are joined by number, ten after nine, wherever below the directory they lie."""
    own = ("own", "--sha256", sha256_file(whole))
    parts = in_parts(whole, tmp_path / "parts")
    assert fetched(*own, "--from", whole, capsys=capsys) == (0, "")
    assert fetched(*own, "--from", parts, "--out", "parted", capsys=capsys) == (0, "")
    assert sorted(path.name for path in place.iterdir()) == ["mounts", "parted"]
    one, other = contents(place / "mounts" / "own"), contents(place / "parted")
    # These name the first file that was given.
    for name in ("source.json", "README.md", "SHA256SUMS"):
        assert one.pop(name) != other.pop(name)
    assert one == other
    assert set(one) == {
        *("config.json", "generation_config.json", "model.safetensors", "special_tokens_map.json"),
        *("tokenizer.json", "tokenizer_config.json"),
    }


def test_the_directory_is_a_model_that_is_checked_and_loads(
    whole: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but the card is in SHA256SUMS, the card names bytes and licence, and a second fetch checks it."""
    digest = sha256_file(whole)
    arguments = ("own", "--from", whole, "--sha256", digest)
    assert fetched(*arguments, capsys=capsys)[0] == 0
    out = place / "mounts" / "own"
    assert {*checked_files(out), "README.md", "SHA256SUMS"} == set(contents(out))
    assert digest in (out / "README.md").read_text()
    assert "has to be asked" in (out / "README.md").read_text()
    assert json.loads((out / "source.json").read_text())["files"] == {"own.gguf": digest}
    load_model(out)
    load_tokenizer(out)
    before = contents(out)
    assert main(["model", "fetch", *map(str, arguments)]) == 0
    assert "mounts/own, which was already complete" in capsys.readouterr().out
    assert contents(out) == before


def test_a_damaged_directory_is_not_taken_for_whole(
    whole: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flipped bit, a foreign directory, and another model's: refused, and left as they are."""
    arguments = ("own", "--from", whole, "--sha256", sha256_file(whole))
    fetched(*arguments, capsys=capsys)
    renamed = ("other", *arguments[1:], "--out", "mounts/own")
    assert "holds own: give another --out" in refused(*renamed, capsys=capsys)[1]
    config = place / "mounts" / "own" / "config.json"
    config.write_bytes(config.read_bytes().replace(b"1000000.0", b"1000001.0"))
    assert "does not match" in refused(*arguments, capsys=capsys)[1]
    (place / "mine").mkdir()
    assert "remove it, or give another --out" in refused(*arguments, "--out", "mine", capsys=capsys)[1]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda parts: next(parts.rglob("part10.bin")).unlink(), "lacks part 10 of 12"),
        (
            lambda parts: [next(parts.rglob(f"part{n}.bin")).unlink() for n in (1, 4)],
            "lacks parts 1, 4 of 12",
        ),
        (lambda parts: next(parts.rglob("part12.bin")).unlink(), "it is damaged, or another"),
        (lambda parts: shutil.copy(next(parts.rglob("part2.bin")), parts), "are both part 2"),
        (lambda parts: (parts / "notes3.txt").write_text("-"), "numbered files of several names"),
        (lambda parts: [path.unlink() for path in parts.rglob("*.bin")], "no numbered parts of a file"),
        (lambda parts: next(parts.rglob("part3.bin")).write_bytes(b"\0" * 99), "it is damaged, or another"),
    ],
)
def test_parts_that_make_no_file_are_named(
    whole: Path,
    place: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], object],
    said: str,
) -> None:
    """A missing, doubled, foreign or changed part."""
    spoil(in_parts(whole, tmp_path / "parts"))
    digest = sha256_file(whole)
    code, err = refused("own", "--from", tmp_path / "parts", "--sha256", digest, capsys=capsys)
    assert (code, said in err) == (ModelFileError.exit_code, True), err


def test_parts_that_are_gguf_files_are_not_joined(
    whole: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of llama.cpp's own splitting have a header each; the line names the tool that merges them."""
    (tmp_path / "split").mkdir()
    for number in (1, 2):
        shutil.copy(whole, tmp_path / "split" / f"own-0000{number}-of-00002.gguf")
    err = refused("own", "--from", tmp_path / "split", "--sha256", "0" * 64, capsys=capsys)[1]
    assert "llama-gguf-split --merge" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nothing", "--from", "x"), ConfigError.exit_code, f"name one of {', '.join(KNOWN)}"),
        (("nothing",), ConfigError.exit_code, "no model 'nothing' is known"),
        (("a/b/c", "--from", "x", "--sha256", "0" * 64), ConfigError.exit_code, "OWNER/NAME"),
        (("a/b", "--from", "x", "--sha256", "0" * 64), ConfigError.exit_code, "leave it out"),
        (("own", "--from", "x", "--sha256", "zz"), ConfigError.exit_code, "64 digits"),
        ((SMALL, "--from", "x", "--sha256", "0" * 64), ConfigError.exit_code, "leave --sha256 out"),
        ((SMALL, "--from", "missing"), ModelFileError.exit_code, "there is no missing"),
        ((SMALL, "--from", "WHOLE"), ModelFileError.exit_code, "has 491,400,064: a part is missing or cut"),
        (("own", "--from", "WHOLE", "--sha256", "0" * 64), ModelFileError.exit_code, "not 00000000"),
        ((PAPERS, "--from", "WHOLE"), ModelFileError.exit_code, "holds no *.safetensors"),
    ],
)
def test_other_bad_input_is_one_line(
    whole: Path,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: Sequence[str],
    code: int,
    said: str,
) -> None:
    """Unknown names, other bytes, no file: what happened and what to do."""
    given = [str(whole) if argument == "WHOLE" else argument for argument in arguments]
    found, err = refused(*given, capsys=capsys)
    assert (found, said in err) == (code, True), err


def test_a_file_that_makes_no_model_leaves_nothing(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Right by its SHA-256, and of another architecture."""
    path = write_gguf(tmp_path / "llama.gguf", "llama")
    code, err = refused("own", "--from", path, "--sha256", sha256_file(path), capsys=capsys)
    assert (code, "architecture 'llama'" in err) == (ModelFileError.exit_code, True)


def endless(path: Path) -> None:
    """A file of a terabyte of nothing, which the command reads for an hour."""
    with path.open("wb") as stream:
        stream.truncate(1 << 40)


def wait_for(path: Path) -> None:
    """Until it is there."""
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_full_disk_leaves_nothing(whole: Path, place: Path, commands: Commands) -> None:
    """A disk that takes no more ends it with one line; a quota on file size stands for it."""
    digest = sha256_file(whole)
    arguments = ("model", "fetch", "own", "--from", whole, "--sha256", digest)
    done = commands.run(*arguments, limits={resource.RLIMIT_FSIZE: 512 << 10})
    assert done.returncode == RunDirectoryError.exit_code
    assert "make room, then give the command again" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(place.iterdir()) == []


def test_too_little_room_is_told_before_the_work(
    whole: Path, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is converted where the weights would not fit."""
    usage = shutil.disk_usage(place)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))
    code, err = refused("own", "--from", whole, "--sha256", sha256_file(whole), capsys=capsys)
    assert code == RunDirectoryError.exit_code
    assert "are needed, 0.00 GB are free" in err


def test_what_a_killed_fetch_left_is_never_a_model_and_goes_with_the_next(
    whole: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], commands: Commands
) -> None:
    """It has another name; a second process beside a running one is refused, and the next one cleans."""
    endless(tmp_path / "endless.gguf")
    arguments = ("own", "--sha256", sha256_file(whole))
    left = place / "mounts" / ".own.unfinished"
    process = commands.start("model", "fetch", *arguments, "--from", tmp_path / "endless.gguf")
    wait_for(left)
    code, err = refused(*arguments, "--from", whole, capsys=capsys)
    assert (code, "another process is writing" in err) == (RunDirectoryError.exit_code, True)
    process.kill()
    process.wait()
    (left / "half.safetensors").write_bytes(b"half")
    assert not (place / "mounts" / "own").exists()
    assert fetched(*arguments, "--from", whole, capsys=capsys) == (0, "")
    assert [path.name for path in (place / "mounts").iterdir()] == ["own"]
    assert "half.safetensors" not in checked_files(place / "mounts" / "own")


def test_nothing_is_removed_through_a_link(
    whole: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a link in the place of an unfinished directory leads to stays, and the link is named."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "kept").write_text("kept")
    (place / "mounts").mkdir()
    (place / "mounts" / ".own.unfinished").symlink_to(tmp_path / "precious")
    code, err = refused("own", "--from", whole, "--sha256", sha256_file(whole), capsys=capsys)
    assert (code, "is a symbolic link" in err) == (RunDirectoryError.exit_code, True), err
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["kept"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_fetch_leaves_nothing(
    place: Path, tmp_path: Path, number: signal.Signals, commands: Commands
) -> None:
    """Asked to end, it says so and removes what it made, the directory of mounts included."""
    endless(tmp_path / "endless.gguf")
    source = tmp_path / "endless.gguf"
    process = commands.start("model", "fetch", "own", "--sha256", "0" * 64, "--from", source)
    wait_for(place / "mounts" / ".own.unfinished")
    os.kill(process.pid, number)
    _, err = process.communicate()
    assert (process.returncode, err) == (130, "s2s: stopped\n")
    assert list(place.iterdir()) == []


def test_a_stop_before_the_lock_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may come between the first directory and its lock."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("search_to_signal.models.fetching.fcntl.flock", stopped)
    with pytest.raises(KeyboardInterrupt), renamed_when_whole(place / "mounts" / "own"):
        pass
    assert list(place.iterdir()) == []


def test_without_a_network_it_says_what_else_can_be_given(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, at once; nothing is left."""

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("no route to the hub")

    monkeypatch.setattr("search_to_signal.models.fetching.hf_hub_download", unreachable)
    code, err = refused(SMALL, capsys=capsys)
    assert (code, "no route to the hub" in err) == (ModelFileError.exit_code, True)
    assert "give the file or directory that you have with --from" in err


def test_a_profile_names_the_command_that_brings_its_model(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything runs."""
    assert main(["run", "--profile", "pretrained", "--out", "out"]) == ModelFileError.exit_code
    err = capsys.readouterr().err
    assert f"s2s model fetch {SMALL}'" in err
    assert err.count("\n") == 1
    assert list(place.iterdir()) == []


def published(directory: Path, small: Path, **config: object) -> Path:
    """A model as a distributor publishes it: two files of weights, an index, and what is not wanted."""
    directory.mkdir()
    weights = sorted(load_file(small / "model.safetensors").items())
    files = {"model-00001-of-00002.safetensors": dict(weights[:9])}
    files["model-00002-of-00002.safetensors"] = dict(weights[9:])
    for name, tensors in files.items():
        save_file(tensors, directory / name, metadata={"format": "pt"})
    index = {tensor: name for name, tensors in files.items() for tensor in tensors}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    settings = json.loads((small / "config.json").read_text())
    settings |= config
    (directory / "config.json").write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(small / name, directory)
    for name in ("modeling_own.py", "pytorch_model.bin", "LICENSE", ".gitattributes"):
        (directory / name).write_text(name)
    return directory


@pytest.fixture(scope="module")
def small(whole: Path) -> Path:
    """A model directory from the GGUF file."""
    out = whole.parent / "small"
    arguments = ["own", "--from", str(whole), "--sha256", sha256_file(whole), "--out", str(out)]
    assert main(["model", "fetch", *arguments]) == 0
    return out


def test_published_safetensors_are_copied_and_the_rotary_base_is_placed(
    small: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights byte for byte, no code and no pickles; what newer releases write is put where 4.49 reads it."""
    rotation = {"rope_type": "default", "rope_theta": 1_000_000.0}
    given = published(tmp_path / "given", small, rope_theta=None, rope_parameters=rotation)
    assert fetched(PAPERS, "--from", given, capsys=capsys) == (0, "")
    out = place / "mounts" / PAPERS
    found = contents(out)
    assert not {"modeling_own.py", "pytorch_model.bin", ".gitattributes"} & set(found)
    for name in ("model-00001-of-00002.safetensors", "tokenizer.json", "LICENSE"):
        assert found[name] == (given / name).read_bytes()
    checked_files(out)
    model = load_model(out)
    assert model.config.rope_theta == 1_000_000.0
    assert torch.equal(model.lm_head.weight, load_model(small).lm_head.weight)
    card = (out / "README.md").read_text()
    assert "these bytes were not checked against it" in card
    assert "but for rope_theta in config.json" in card
    assert "Licence: Apache-2.0" in card


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda given: (given / "model-00002-of-00002.safetensors").unlink(), "00002.safetensors, which is"),
        (
            lambda given: os.truncate(given / "model-00002-of-00002.safetensors", 9999),
            "not copied to its end",
        ),
        (
            lambda given: (given / "model.safetensors.index.json").unlink(),
            "model.safetensors.index.json is missing",
        ),
        (lambda given: [path.unlink() for path in given.glob("*.safetensors")], "holds no *.safetensors"),
        (
            lambda given: [
                (
                    path.unlink(),
                    path.mkdir(),
                    (given / "model.safetensors.index.json").unlink(missing_ok=True),
                )
                for path in given.glob("*.safetensors")
            ],
            "there are no *.safetensors",
        ),
        (lambda given: (given / "tokenizer.json").unlink(), "there is no tokenizer.json"),
        (lambda given: (given / "config.json").unlink(), "there is no config.json"),
        (lambda given: (given / "config.json").write_text("{"), "is not JSON"),
        (lambda given: (given / "model.safetensors.index.json").write_text("[]"), "holds no settings"),
        (
            lambda given: (given / "SHA256SUMS").write_text(f"{'0' * 64}  config.json\n"),
            "lists no *.safetens",
        ),
    ],
)
def test_published_files_that_are_not_whole_are_named(
    small: Path,
    place: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], object],
    said: str,
) -> None:
    """A missing or cut file of weights, no index, tokenizer or settings, a list of other bytes."""
    given = published(tmp_path / "given", small)
    spoil(given)
    code, err = refused(PAPERS, "--from", given, capsys=capsys)
    assert (code, said in err) == (ModelFileError.exit_code, True), err


def test_a_given_list_of_checksums_decides(
    small: Path, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A directory with a SHA256SUMS of its own is compared with it."""
    given = published(tmp_path / "given", small)
    for name in ("modeling_own.py", "pytorch_model.bin"):
        (given / name).unlink()
    files = [path for path in given.iterdir() if not path.name.startswith(".")]
    lines = [f"{sha256_file(path)}  {path.name}\n" for path in sorted(files)]
    (given / "SHA256SUMS").write_text("".join(lines))
    data = bytearray((given / "model-00001-of-00002.safetensors").read_bytes())
    data[-1] ^= 1
    (given / "model-00001-of-00002.safetensors").write_bytes(data)
    err = refused(PAPERS, "--from", given, capsys=capsys)[1]
    assert "model-00001-of-00002.safetensors has SHA-256" in err

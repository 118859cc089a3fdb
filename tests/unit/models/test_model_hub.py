"""``s2s model fetch`` from a hub, which a small server stands for: files by repository and revision."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.forked import Commands
from tests.gguf_files import write_gguf

from search_to_signal.base.errors import ModelFileError
from search_to_signal.models.files import checked_files
from search_to_signal.records.checksums import sha256_file

pytestmark = pytest.mark.slow

REVISION = "0123456789abcdef0123456789abcdef01234567"
FILE = "tiny-q4_k_m.gguf"
Fetch = Callable[..., "subprocess.CompletedProcess[str]"]


class Hub:
    """One repository at one revision, at an address that stays; without files there is no hub at all."""

    def __init__(self) -> None:
        """Serve in a thread."""
        self.pages: dict[str, bytes] = {}
        handler = type("Handler", (Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, daemon=True).start()

    @contextmanager
    def holding(self, files: dict[str, bytes], sums: dict[str, str] | None = None) -> Iterator[None]:
        """Within it the repository has these files; ``sums`` is what it says of their SHA-256."""
        listed: list[dict[str, object]] = [
            {"rfilename": name, "size": len(data)} for name, data in files.items()
        ]
        for file in listed:
            if sha256 := (sums or {}).get(str(file["rfilename"])):
                file["lfs"] = {"sha256": sha256, "size": file["size"], "pointerSize": 130}
        model = json.dumps({"id": "own/tiny", "sha": REVISION, "siblings": listed}).encode()
        self.pages = {f"/own/tiny/resolve/{REVISION}/{name}": data for name, data in files.items()}
        named = (f"/api/models/own/tiny/revision/{name}" for name in (REVISION, "main"))
        self.pages |= dict.fromkeys(named, model)
        yield
        self.pages = {}


class Handler(BaseHTTPRequestHandler):
    """Serves the pages that the hub has."""

    hub: Hub

    def do_HEAD(self) -> None:
        """The head of a page; the connection ends without a word where there is no hub."""
        if not self.hub.pages:
            self.close_connection = True
            return
        data = self.hub.pages.get(self.path.partition("?")[0])
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.send_header("ETag", f'"{hashlib.sha1(data or b"").hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.end_headers()

    def do_GET(self) -> None:
        """The page."""
        self.do_HEAD()
        self.wfile.write(self.hub.pages.get(self.path.partition("?")[0], b""))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    """A hub without files."""
    found = Hub()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture(scope="module")
def asking(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Commands, Path]]:
    """What starts commands that know this hub, and their cache: the client reads both when it is loaded."""
    cache = tmp_path_factory.mktemp("hub") / "cache"
    found = Commands(HF_ENDPOINT=hub.address, HF_HUB_CACHE=str(cache))
    yield found, cache
    found.close()


@pytest.fixture
def fetch(asking: tuple[Commands, Path], monkeypatch: pytest.MonkeyPatch) -> Fetch:
    """Fetch the model ``tiny`` in a process that knows it: by the SHA-256 of a GGUF file, if it has one.

    The cache is empty before.
    """
    commands, cache = asking
    shutil.rmtree(cache, ignore_errors=True)

    def fetched(place: Path, sha256: str | None, *words: str) -> "subprocess.CompletedProcess[str]":
        published = f"{FILE!r}, {sha256!r}" if sha256 else ""
        boot = (
            "from search_to_signal.models import fetching, files;"
            f"tiny = files.KnownModel('own/tiny', {REVISION!r}, 'Apache-2.0', {published});"
            "files.KNOWN = fetching.KNOWN = {'tiny': tiny}"
        )
        place.mkdir(exist_ok=True)
        monkeypatch.chdir(place)
        return commands.run("model", "fetch", *(words or ("tiny",)), boot=boot)

    return fetched


def is_refused(done: "subprocess.CompletedProcess[str]", place: Path, said: str) -> bool:
    """Whether it ended with one line that says this, and left nothing."""
    one_line = done.stderr.count("\n") == 1
    return (done.returncode, one_line, said in done.stderr) == (ModelFileError.exit_code, True, True) and (
        list(place.iterdir()) == []
    )


def test_a_gguf_file_comes_from_its_revision_and_then_from_the_cache(
    hub: Hub, fetch: Fetch, tmp_path: Path
) -> None:
    """Converted as a given one; without the hub the cache has it."""
    whole = write_gguf(tmp_path / FILE)
    known = sha256_file(whole)
    place, again = tmp_path / "work", tmp_path / "again"
    with hub.holding({FILE: whole.read_bytes()}):
        done = fetch(place, known)
    assert (done.returncode, done.stderr) == (0, "")
    assert "download tiny: 1/1 MB" in done.stdout
    out = place / "mounts" / "tiny"
    assert "model.safetensors" in checked_files(out)
    assert f"own/tiny on huggingface.co, at revision {REVISION}" in (out / "README.md").read_text()
    assert "Apache License" in (out / "LICENSE").read_text()
    done = fetch(again, known)
    assert done.returncode == 0
    assert checked_files(again / "mounts" / "tiny") == checked_files(out)


def test_other_bytes_from_the_hub_are_refused_and_not_kept(hub: Hub, fetch: Fetch, tmp_path: Path) -> None:
    """One bit: a line with both SHA-256, nothing left, and the next attempt downloads them again."""
    whole = write_gguf(tmp_path / FILE)
    data = bytearray(whole.read_bytes())
    data[-1] ^= 1
    place = tmp_path / "work"
    with hub.holding({FILE: bytes(data)}):
        done = fetch(place, sha256_file(whole))
    assert is_refused(done, place, f"not {sha256_file(whole)}"), done.stderr
    with hub.holding({FILE: whole.read_bytes()}):
        assert fetch(place, sha256_file(whole)).returncode == 0


def test_what_the_hub_lacks_is_one_line(hub: Hub, fetch: Fetch, tmp_path: Path) -> None:
    """A repository without the file."""
    with hub.holding({}):
        done = fetch(tmp_path / "work", "0" * 64)
    assert is_refused(done, tmp_path / "work", "cannot get tiny from the hub"), done.stderr


@pytest.mark.parametrize("damaged", [False, True])
def test_published_safetensors_are_what_the_hub_says_of_them(
    hub: Hub, fetch: Fetch, tmp_path: Path, damaged: bool
) -> None:
    """Weights by their SHA-256; code and pickles are not even asked for."""

    save_file({"a": np.ones(9, dtype=np.float32)}, tmp_path / "model.safetensors")
    weights = (tmp_path / "model.safetensors").read_bytes()
    sums = {"model.safetensors": hashlib.sha256(weights).hexdigest()}
    served = weights[:-1] + bytes([weights[-1] ^ damaged])
    files = {
        "model.safetensors": served,
        "config.json": b"{}",
        "tokenizer.json": b"{}",
        "run.py": b"",
        "LICENSE": b"theirs",
    }
    place = tmp_path / "work"
    with hub.holding(files, sums):
        done = fetch(place, None)
    if damaged:
        assert is_refused(done, place, f"not {sums['model.safetensors']}"), done.stderr
        return
    assert (done.returncode, done.stderr) == (0, "")
    out = place / "mounts" / "tiny"
    assert set(checked_files(out)) == {*files, "source.json"} - {"run.py"}
    assert (out / "LICENSE").read_text() == "theirs"
    assert (out / "model.safetensors").read_bytes() == weights


def test_any_repository_is_fetched_at_the_commit_that_it_is_at(
    hub: Hub, fetch: Fetch, tmp_path: Path
) -> None:
    """OWNER/NAME needs no list: what the hub calls main is written down as a commit."""
    save_file({"a": np.ones(9, dtype=np.float32)}, tmp_path / "model.safetensors")
    files = {name: b"{}" for name in ("config.json", "tokenizer.json", "pytorch_model.bin")}
    weights = {"model.safetensors": (tmp_path / "model.safetensors").read_bytes()}
    place = tmp_path / "work"
    with hub.holding({**files, **weights}):
        done = fetch(place, None, "own/tiny")
        assert (done.returncode, done.stderr) == (0, "")
    out = place / "mounts" / "tiny"
    assert set(checked_files(out)) == {*weights, "config.json", "tokenizer.json", "source.json"}
    assert json.loads((out / "source.json").read_text())["revision"] == REVISION
    other = tmp_path / "other"
    with hub.holding(files):
        assert is_refused(fetch(other, None, "own/tiny"), other, "pickled weights")

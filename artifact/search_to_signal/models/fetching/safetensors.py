"""A model directory from safetensors files as a distributor publishes them: checked and copied."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, NamedTuple

from search_to_signal.base.errors import ModelFileError, RunDirectoryError
from search_to_signal.base.progress import Progress
from search_to_signal.models.fetching.known import KnownModel
from search_to_signal.models.files import CHECKSUMS, file_shapes, json_settings, listed_files

# Files read once, in blocks: hashed, copied where asked for, with progress.

_BLOCK = 1 << 22
_MB = 1_000_000


class Reading:
    """Reads of one task's bytes, reported as megabytes done of all."""

    def __init__(self, task: str, size: int, progress: Progress) -> None:
        self._task, self._size, self._progress, self._done = task, size, progress, 0
        self._tell()

    def copy(self, files: Sequence[Path], into: BinaryIO | None = None) -> str:
        """SHA-256 of the files, one after the other, which are also written ``into`` a stream."""
        digest = hashlib.sha256()
        for block in _blocks(files):
            digest.update(block)
            if into is not None:
                into.write(block)
            self._done += len(block)
            self._tell()
        return digest.hexdigest()

    def _tell(self) -> None:
        total = max(1, self._size // _MB)
        done = total if self._done >= self._size else min(self._done // _MB, total - 1)
        self._progress.update(self._task, done, total, "MB")


def total_size(files: Sequence[Path]) -> int:
    """Bytes of all of them."""
    return sum(path.stat().st_size for path in files)


def refuse_little_room(directory: Path, size: int) -> None:
    """Raise RunDirectoryError where a disk has room for fewer bytes, before minutes of work find out."""
    free = shutil.disk_usage(directory).free
    if free < size:
        raise RunDirectoryError(
            f"cannot write below {directory.parent}: {size / 1e9:.2f} GB are needed, {free / 1e9:.2f} GB are "
            "free: make room, then give the command again"
        )


def _blocks(files: Sequence[Path]) -> Iterator[bytes]:
    for path in files:
        with path.open("rb", buffering=0) as stream:
            while block := stream.read(_BLOCK):
                yield block


def remove_cached(path: Path) -> None:
    """Remove a file of the hub's cache, which links to where its bytes are."""
    path.resolve().unlink(missing_ok=True)
    path.unlink(missing_ok=True)


# The files next to a model's weights: their origin, licence and checksums.

SOURCE, CARD, LICENCE = "source.json", "README.md", "LICENSE"
_LICENCES = Path(__file__).parent / "licences"


class ModelOrigin(NamedTuple):
    """A model's name, what is known of it, and the SHA-256 of what it was made from, by name.

    ``revision`` is None where nothing says that the bytes are those of one; ``edited`` says what was changed.
    """

    name: str
    known: KnownModel | None
    files: dict[str, str]
    revision: str | None
    converted: bool
    edited: str = ""


def describe(out: Path, origin: ModelOrigin, progress: Progress) -> None:
    """Write source.json, README.md, the licence where it is ours to give, and the list of checksums last."""
    (out / SOURCE).write_text(json.dumps(_source(origin), indent=2) + "\n", encoding="utf-8")
    (out / CARD).write_text(_card(origin), encoding="utf-8")
    text = _LICENCES / f"{origin.known.licence}.txt" if origin.known else None
    if text and text.is_file() and not (out / LICENCE).exists():
        (out / LICENCE).write_bytes(text.read_bytes())
    files = [path for path in sorted(out.iterdir()) if path.name not in (CARD, CHECKSUMS)]
    reading = Reading("list checksums", total_size(files), progress)
    (out / CHECKSUMS).write_text("".join(f"{reading.copy([path])}  {path.name}\n" for path in files))


def _source(origin: ModelOrigin) -> dict[str, object]:
    return {
        "name": origin.name,
        "repository": origin.known and origin.known.repository,
        "revision": origin.revision,
        "licence": origin.known and origin.known.licence,
        "files": origin.files,
        "gguf": version("gguf") if origin.converted else None,
    }


def _card(origin: ModelOrigin) -> str:
    files = "".join(f"- `{name}`, SHA-256 `{sha256}`\n" for name, sha256 in sorted(origin.files.items()))
    return f"""# {origin.name}

{_whose(origin)}

{files}
{_how(origin)}
Licence: {origin.known.licence if origin.known else "that of its distributor, who has to be asked"}.
Made by `s2s model fetch {origin.name}`; `source.json` says the same for programs.
"""


def _whose(origin: ModelOrigin) -> str:
    if origin.known is None:
        return "A model that this package does not know: only its publisher vouches for the bytes."
    if origin.revision is None:
        return (
            f"Given as {origin.known.repository} of huggingface.co; these bytes were not checked against it:"
        )
    return f"A model of {origin.known.repository} on huggingface.co, at revision {origin.revision}:"


def _how(origin: ModelOrigin) -> str:
    if not origin.converted:
        return f"The files are the distributor's, byte for byte{origin.edited}.\n"
    return (
        f"Its weights were quantized by the distributor. They were dequantized by the library gguf "
        f"{version('gguf')}\nand rounded to bfloat16, tensor by tensor; tokens, merges and the chat template "
        "are the file's.\nResults with it are results with a quantized model.\n"
    )


CONFIG, INDEX = "config.json", "model.safetensors.index.json"
# Weights, settings and licences: no code, and no pickles, which run some when they are read.
WANTED = ("*.safetensors", "*.json", "*.jinja", "merges.txt", "tokenizer.model", "LICENSE*")
# Any of these sets makes a tokenizer.
_TOKENIZERS = ({"tokenizer.json"}, {"tokenizer.model"}, {"vocab.json", "merges.txt"})
_PART = re.compile(r"-\d+-of-\d+\.safetensors$")
# Ours, of an earlier fetch.
_OWN = ("source.json",)


class SafetensorsSource(NamedTuple):
    """A model's published files by name, and the SHA-256 of those that the publisher lists.

    A ``cached`` file is removed where it is damaged, or the next attempt would find it again.
    """

    name: str
    files: Mapping[str, Path]
    known: KnownModel
    sums: Mapping[str, str]
    revision: str | None = None
    cached: bool = False

    def write(self, out: Path, progress: Progress) -> ModelOrigin:
        """Copy and check every file; raises ModelFileError for another, a missing or a damaged one."""
        _refuse_incomplete(self.files)
        size = total_size(list(self.files.values()))
        refuse_little_room(out, size)
        reading = Reading(f"copy {self.name}", size, progress)
        copied = {}
        for name, path in self.files.items():
            with (out / name).open("wb") as stream:
                copied[name] = reading.copy([path], stream)
            if self.sums.get(name, copied[name]) != copied[name]:
                if self.cached:
                    remove_cached(path)
                raise ModelFileError(
                    f"{path} has SHA-256 {copied[name]}, not {self.sums[name]}: it is damaged, or another; "
                    "get it again"
                )
        edited = f", but for rope_theta in {CONFIG}" if _place_rotation(out / CONFIG) else ""
        return ModelOrigin(self.name, self.known, copied, self.revision, converted=False, edited=edited)


def wanted(name: str) -> bool:
    """Whether a file of that name belongs into a model directory."""
    return any(fnmatch(name, pattern) for pattern in WANTED) and name not in _OWN


def given_files(directory: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """The files of a directory by name, and what its SHA256SUMS, if there is one, says of them."""
    files = {path.name: path for path in sorted(directory.iterdir()) if path.is_file() and wanted(path.name)}
    return files, listed_files(directory) if (directory / CHECKSUMS).is_file() else {}


def _refuse_incomplete(files: Mapping[str, Path]) -> None:
    if CONFIG not in files:
        raise ModelFileError(f"there is no {CONFIG} next to the weights: get every file of the model")
    weights = {name for name in files if name.endswith(".safetensors")}
    if not weights:
        raise ModelFileError(f"there are no *.safetensors next to {CONFIG}: get every file of the model")
    if INDEX not in files and (part := next((name for name in sorted(weights) if _PART.search(name)), None)):
        raise ModelFileError(f"{part} is a part, and {INDEX} is missing: get every file of the model")
    if not any(files.keys() >= names for names in _TOKENIZERS):
        raise ModelFileError("there is no tokenizer.json next to the weights: get every file of the model")
    if missing := sorted(set(_indexed(files)) - weights):
        raise ModelFileError(f"{INDEX} names {missing[0]}, which is missing: get every file of the model")
    for name in sorted(weights):
        file_shapes(files[name])


def _indexed(files: Mapping[str, Path]) -> Iterator[str]:
    if INDEX in files:
        table = json_settings(files[INDEX]).get("weight_map")
        yield from map(str, table.values() if isinstance(table, dict) else ())


def _place_rotation(path: Path) -> bool:
    """Write the base of the rotary embedding where the pinned transformers reads it; it would take 10,000.

    Whether anything had to be written.
    """
    config = json_settings(path)
    rotation = config.get("rope_parameters")
    if "rope_theta" in config or not isinstance(rotation, dict):
        return False
    if rotation.get("rope_type", "default") != "default" or "rope_theta" not in rotation:
        raise ModelFileError(f"{path.name} has rope_parameters that are not read here: get an older revision")
    config = {**config, "rope_theta": rotation["rope_theta"], "rope_scaling": None}
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return True

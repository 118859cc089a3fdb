"""Model directories: found by name, and checked against their recorded SHA-256 before use."""

import hashlib
import json
from pathlib import Path

from search_to_signal.errors import ModelFileError
from search_to_signal.generators.fetching.known import known_place
from search_to_signal.package_data import INSTALLED, MODELS

CHECKSUMS = "SHA256SUMS"


def model_directory(name_or_path: str) -> Path:
    """The directory of an embedded model by name, or of any model by path; raises ModelFileError."""
    for candidate in (MODELS / name_or_path, Path(name_or_path)):
        if candidate.is_dir():
            return candidate
    known = ", ".join(sorted(path.name for path in MODELS.glob("*") if path.is_dir()))
    remedy = f"give one of {known}, or the path of a model directory"
    if name := known_place(Path(name_or_path)):
        raise ModelFileError(
            f"there is no model in {Path(name_or_path).absolute()}: bring it with 's2s model fetch {name}' "
            "(--from PLACE where you have its files), or, in a container, mount a directory that holds it"
        )
    if "/" in name_or_path:
        remedy = (
            f"put the model's files into {Path(name_or_path).absolute()} (in a container, mount a directory "
            f"that holds them) with a {CHECKSUMS}, or {remedy}"
        )
    raise ModelFileError(f"there is no model {name_or_path!r}: {remedy}")


def checked_files(directory: Path) -> dict[str, str]:
    """The SHA-256 of every file that the directory's SHA256SUMS lists, by name.

    Raises ModelFileError as ``listed_files`` and ``refuse_unread_rotation`` do, and for other bytes.
    """
    sums = listed_files(directory)
    for name, expected in sums.items():
        if file_sha256(directory / name) != expected:
            where = directory / CHECKSUMS
            raise ModelFileError(f"model file {directory / name} does not match {where}: restore it first")
    refuse_unread_rotation(directory)
    return sums


def refuse_unread_rotation(directory: Path) -> None:
    """Raise ModelFileError where the base of the rotary embedding stands where only newer transformers look.

    The pinned one would take 10,000 instead, without a word.
    """
    try:
        config = json.loads((directory / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return  # Whoever loads it says so.
    if isinstance(config, dict) and config.get("rope_parameters") and "rope_theta" not in config:
        raise ModelFileError(
            f"{directory / 'config.json'} has rope_parameters, which the pinned transformers does not read: "
            f"write their rope_theta next to model_type, too, and its new sum into {CHECKSUMS}"
        )


def refuse_lacking_template(directory: Path) -> None:
    """Raise ModelFileError where a tokenizer has no chat template, without which no prompt becomes text."""
    if (directory / "chat_template.jinja").is_file():
        return
    settings = directory / "tokenizer_config.json"
    try:
        config = json.loads(settings.read_bytes()) if settings.is_file() else {}
    except (OSError, ValueError, RecursionError):
        return  # Whoever loads it says so.
    if isinstance(config, dict) and not config.get("chat_template"):
        raise ModelFileError(
            f"the tokenizer in {directory} has no chat template, which makes text of prompts: give a model "
            f"that follows instructions, or add its chat_template.jinja, and the sum into {CHECKSUMS}"
        )


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, read in blocks: weights may be larger than memory."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _remedy(path: Path) -> str:
    if INSTALLED and MODELS in path.parents:
        return "install search-to-signal-models, the wheel that 'uv build --wheel artifact/models' builds"
    return "restore it (git checkout, or download again)"


def listed_files(directory: Path) -> dict[str, str]:
    """What the directory's SHA256SUMS says of its files, by name; no weights are read.

    Raises ModelFileError when the list or a file is missing, the list is unreadable, lists no weights, names
    a file elsewhere or leaves one out that may be read.
    """
    listing = directory / CHECKSUMS
    if not listing.is_file():
        raise ModelFileError(
            f"{listing} is missing: model files are checked before use; make the list with "
            f"'sha256sum *.json *.safetensors > {CHECKSUMS}' inside the directory, if you trust it"
        )
    sums = {}
    for number, line in enumerate(listing.read_text(errors="replace").splitlines(), start=1):
        expected, _, name = line.partition(" ")
        if len(expected) != 64 or name[:1] not in (" ", "*"):
            raise ModelFileError(f"{listing}:{number}: not a checksum line; restore the file")
        path = directory / name[1:]
        if path.parent != directory or path.is_symlink():
            raise ModelFileError(f"{listing}:{number}: {name[1:]} is no file of its own in the directory")
        if not path.is_file():
            raise ModelFileError(f"model file {path} is missing: {_remedy(path)}")
        sums[path.name] = expected
    if not any(name.endswith(".safetensors") for name in sums):
        raise ModelFileError(f"{listing} lists no *.safetensors file, so no weights were checked: list them")
    names = sorted(path.name for path in directory.iterdir() if not path.is_dir() or path.is_symlink())
    # A loader may read whatever lies there but hidden files and pages.
    read = [name for name in names if name != CHECKSUMS and not name.startswith(".")]
    if unlisted := [name for name in read if name not in sums and not name.endswith(".md")]:
        raise ModelFileError(
            f"{listing} leaves out {', '.join(unlisted)}, which may be read: list or remove it"
        )
    return sums

"""Model directories: found by name, and checked against their recorded SHA-256 before use."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from importlib.util import find_spec
from math import isfinite, prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from search_to_signal.base.errors import ModelFileError, RunDirectoryError
from search_to_signal.base.package_data import INSTALLED, MODELS, SOURCE
from search_to_signal.base.progress import one_line
from search_to_signal.records.checksums import sha256_file

CHECKSUMS = "SHA256SUMS"
_READ = ("*.safetensors", "*.json", "*.jinja", "merges.txt", "vocab.txt", "tokenizer.model")
# As many as a profile can ask for.
MOST_POSITIONS = 10_000_000
# What families of models call their context.
_POSITIONS = {"max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"}
_POSITIVE = {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "rope_theta", "rope_freq_base"}
_LONGEST_LISTING = 1 << 20
LONGEST_SETTINGS = 16 << 20
# Bytes of one file: 1.5 billion weights of two bytes are more than a results file may have.
_LARGEST_WEIGHTS = 1 << 40


def model_directory(name_or_path: str) -> Path:
    """The directory of an embedded model by name, or of any model by path; raises ModelFileError."""
    for candidate in (MODELS / name_or_path, Path(name_or_path)):
        if candidate.is_dir():
            return candidate
    known = ", ".join(sorted(path.name for path in MODELS.glob("*") if path.is_dir()))
    remedy = f"give one of {known}, or the path of a model directory"
    path = Path(name_or_path)
    if path.name in KNOWN and path.parent.name == PLACE:
        raise ModelFileError(
            f"there is no model in {path.absolute()}: bring it with 's2s model fetch {path.name}' "
            "(--from PLACE where you have its files), or, in a container, mount a directory that holds it"
        )
    if "/" in name_or_path:
        remedy = (
            f"put the model's files into {path.absolute()} (in a container, mount a directory "
            f"that holds them) with a {CHECKSUMS}, or {remedy}"
        )
    raise ModelFileError(f"there is no model {name_or_path!r}: {remedy}")


# The models that can be fetched by name: whose they are, under which licence, and the bytes they must be.

# Where profiles look for them.
PLACE = "mounts"


class KnownModel(NamedTuple):
    """One published model: its ``gguf`` file, by SHA-256 and size, or without one its safetensors files."""

    repository: str
    revision: str
    licence: str
    gguf: str | None = None
    sha256: str | None = None
    size: int | None = None


KNOWN = MappingProxyType(
    {
        "qwen2.5-coder-0.5b-instruct": KnownModel(
            "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            "ebb2015119c907b064c512bf053e945850b5875f",
            "Apache-2.0",
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            491_400_064,
        ),
        "qwen2.5-coder-1.5b-instruct": KnownModel(
            "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
            "f86cb2c1fa58255f8052cc32aeede1b7482d4361",
            "Apache-2.0",
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            1_117_320_768,
        ),
        "Qwen2.5-7B-Instruct": KnownModel(
            "Qwen/Qwen2.5-7B-Instruct", "a09a35458c702b33eeacc393d103063234e8bc28", "Apache-2.0"
        ),
        "deepseek-coder-7b-instruct-v1.5": KnownModel(
            "deepseek-ai/deepseek-coder-7b-instruct-v1.5",
            "2a050a4c59d687a85324d32e147517992117ed30",
            "DeepSeek Model License",
        ),
    }
)


def refuse_little_room(directory: Path, size: int) -> None:
    """Raise RunDirectoryError where a disk has room for fewer bytes, before minutes of work find out."""
    free = shutil.disk_usage(directory).free
    if free < size:
        raise RunDirectoryError(
            f"cannot write below {directory.parent}: {size / 1e9:.2f} GB are needed, {free / 1e9:.2f} GB are "
            "free: make room, then give the command again"
        )


def checked_files(directory: Path) -> dict[str, str]:
    """The SHA-256 of every file that is read of a directory, by name.

    Raises ModelFileError as ``listed_files`` and ``refuse_odd_settings`` do, and for other bytes than listed.
    """
    listed = listed_files(directory)
    sums = {name: sha256_file(directory / name, _LARGEST_WEIGHTS) for name in listed}
    for name, expected in listed.items():
        if expected is not None and sums[name] != expected:
            where = directory / CHECKSUMS
            raise ModelFileError(f"model file {directory / name} does not match {where}: restore it first")
    refuse_odd_settings(directory)
    return sums


def same_model(files: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Whether two lists of checksums are of the same model; ``SOURCE`` may differ, no run reads it."""
    return {**files, SOURCE: ""} == {**others, SOURCE: ""}


def shipped(directory: Path) -> bool:
    """Whether a model came with this package; any other one was made by somebody else."""
    return MODELS in directory.absolute().parents


def json_settings(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty without the file. Raises ModelFileError for anything else.

    A number that is not finite is one of these: Python would read it, and compute with it.
    """
    if not path.is_file():
        return {}
    if path.stat().st_size > LONGEST_SETTINGS:
        raise ModelFileError(f"{path} has more than {LONGEST_SETTINGS:,} bytes, no settings do: get it again")
    try:
        settings = json.loads(path.read_bytes(), parse_constant=_not_finite, parse_float=_finite)
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not JSON ({one_line(str(error), 100)}): get it again") from error
    if not isinstance(settings, dict):
        raise ModelFileError(f"{path} holds no settings: get it again")
    return settings


def _finite(text: str) -> float:
    return number if isfinite(number := float(text)) else _not_finite(text)


def _not_finite(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no finite number")


def refuse_odd_settings(directory: Path) -> None:
    """Raise ModelFileError where a model's settings hold what it could not compute with as it should.

    A base of the rotary embedding that is only where newer transformers look is such: the pinned one would
    take 10,000 instead, without a word.
    """
    path = directory / "config.json"
    config = json_settings(path)
    if reads_rope_theta_alone() and config.get("rope_parameters") and "rope_theta" not in config:
        raise ModelFileError(
            f"{path} has rope_parameters, which the pinned transformers does not read: "
            f"write their rope_theta next to model_type, too, and its new sum into {CHECKSUMS}"
        )
    for key in _POSITIONS & config.keys():
        if type(config[key]) is not int or not 0 < config[key] <= MOST_POSITIONS:
            raise _odd(path, key, config[key], f"a number of positions from 1 to {MOST_POSITIONS:,}")
    for key in _POSITIVE & config.keys():
        if type(config[key]) not in (int, float) or config[key] <= 0:
            raise _odd(path, key, config[key], "a number above 0")
    for file in (path, directory / "generation_config.json"):
        for key, value in json_settings(file).items():
            ids = value if isinstance(value, list) else [] if value is None else [value]
            if key.endswith("_token_id") and any(type(i) is not int or not -1 <= i < 1 << 31 for i in ids):
                raise _odd(file, key, value, "the number of a token")


def reads_rope_theta_alone() -> bool:
    """Whether the installed transformers is of the pinned kind; loading it would take seconds."""
    from importlib.metadata import version  # a check of records needs none

    return find_spec("transformers") is not None and version("transformers").startswith("4.")


def _odd(path: Path, key: str, value: object, expected: str) -> ModelFileError:
    return ModelFileError(
        f"{path}: {key} is {one_line(repr(value), 60)}, not {expected}: correct it, or get the file again"
    )


def chat_template(directory: Path) -> str:
    """The chat template of a tokenizer, without which no prompt becomes text; raises ModelFileError."""
    own = directory / "chat_template.jinja"
    if own.is_file():
        if own.stat().st_size > LONGEST_SETTINGS:
            raise ModelFileError(f"{own} has more than {LONGEST_SETTINGS:,} bytes: get it again")
        return own.read_text(encoding="utf-8", errors="replace")
    template = json_settings(directory / "tokenizer_config.json").get("chat_template")
    if not template:
        raise ModelFileError(
            f"the tokenizer in {directory} has no chat template, which makes text of prompts: give a model "
            f"that follows instructions, or add its chat_template.jinja, and the sum into {CHECKSUMS}"
        )
    return str(template)


def context_of(directory: Path) -> int | None:
    """The most tokens that a model reads, prompt and completion together; None where it does not say."""
    config = json_settings(directory / "config.json")
    return next((config[key] for key in sorted(_POSITIONS) if type(config.get(key)) is int), None)


def is_read(name: str) -> bool:
    """Whether a file of that name is a model's weights, settings or vocabulary: no code, and no pickle."""
    return any(fnmatch(name, pattern) for pattern in _READ)


def _unlisted_files(directory: Path) -> dict[str, None]:
    """The files that are read of a directory as the hub has it, which lists no checksums."""
    files = {path.name: None for path in sorted(directory.iterdir()) if path.is_file() and is_read(path.name)}
    if not any(name.endswith(".safetensors") for name in files):
        raise ModelFileError(
            f"{directory} has no *.safetensors, and pickled weights, which run code when they are read, are "
            "not taken: give a directory with safetensors"
        )
    return files


def listed_files(directory: Path) -> Mapping[str, str | None]:
    """What the directory's SHA256SUMS says of its files, by name; no weights are read.

    Without a list these are the files that are read, with None. Raises ModelFileError when a model of this
    package has no list, a file is missing, the list is unreadable, lists no weights, names a file elsewhere
    or leaves one out that may be read.
    """
    listing = directory / CHECKSUMS
    if not listing.is_file():
        if os.path.lexists(listing):
            raise ModelFileError(f"{listing} is no regular file: write the SHA-256 there, or remove it")
        if not shipped(directory):
            return _unlisted_files(directory)
        raise ModelFileError(f"{listing} is missing: restore it (git checkout, or install the models again)")
    if listing.stat().st_size > _LONGEST_LISTING:
        raise ModelFileError(f"{listing} has more than {_LONGEST_LISTING:,} bytes, no list does: restore it")
    sums = {}
    for number, line in enumerate(listing.read_text(errors="replace").splitlines(), start=1):
        expected, _, name = line.partition(" ")
        if len(expected) != 64 or name[:1] not in (" ", "*"):
            raise ModelFileError(f"{listing}:{number}: not a checksum line; restore the file")
        path = directory / name[1:]
        if path.parent != directory or path.is_symlink():
            raise ModelFileError(f"{listing}:{number}: {name[1:]} is not a file in the directory")
        if not path.is_file():
            remedy = "restore it (git checkout, or download again)"
            if INSTALLED and MODELS in path.parents:
                wheel = "the wheel that 'uv build --wheel artifact/models' builds"
                remedy = f"install search-to-signal-models, {wheel}"
            raise ModelFileError(f"model file {path} is missing: {remedy}")
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


_LENGTH_BYTES = 8
# Of thousands of tensors; the format allows 100 MB.
_LONGEST_HEADER = 16 << 20
_MOST_DIMENSIONS = 8
_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64"), 8),
}

Shape = tuple[int, ...]


def tensor_shapes(directory: Path) -> dict[str, Shape]:
    """Return the shapes of the tensors in the ``*.safetensors`` of a model directory, by name.

    Raises ModelFileError as ``file_shapes`` does, and for a name that two files have.
    """
    shapes: dict[str, Shape] = {}
    for path in sorted(directory.glob("*.safetensors")):
        found = file_shapes(path)
        if twice := sorted(found.keys() & shapes.keys()):
            raise ModelFileError(f"{path} holds {one_line(twice[0], 80)}, as another file does: remove one")
        shapes.update(found)
    return shapes


def file_shapes(path: Path) -> dict[str, Shape]:
    """The shapes of a file's tensors by name.

    Raises ModelFileError for a file that is unreadable, longer or shorter than its header says, whose tensors
    are not laid one after the other, or that is of another framework.
    """
    damaged = f"{path} is damaged, or was not copied to its end: get it again, and check its SHA-256"
    if not path.is_file():
        raise ModelFileError(f"{path} is not a file: get it again")
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
            if length > _LONGEST_HEADER:
                raise ModelFileError(damaged)
            header = json.loads(stream.read(length), object_pairs_hook=_once)
        facts = header.pop("__metadata__", {"format": "pt"})
        shapes = dict(_laid_out(header, path.stat().st_size - _LENGTH_BYTES - length))
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        said = f" ({error})" if type(error) is ValueError else ""
        raise ModelFileError(damaged + said) from error
    if not isinstance(facts, dict) or facts.get("format") not in ("pt", "mlx"):
        raise ModelFileError(f"{path}: __metadata__.format is not 'pt': get the weights for PyTorch")
    return shapes


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header says something twice")
    return found


def _laid_out(header: dict[str, Any], size: int) -> Iterator[tuple[str, Shape]]:
    """Name and shape of every tensor; raises ValueError where they do not fill the bytes one by one."""
    at = 0
    for name, facts in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        start, end = facts["data_offsets"]
        shape = tuple(facts["shape"])
        numbers = (start, end, *shape)
        if len(shape) > _MOST_DIMENSIONS or not all(type(n) is int and 0 <= n < 1 << 63 for n in numbers):
            raise ValueError(f"{one_line(name, 80)} has no place and shape")
        if start != at or end - start != prod(shape) * _BYTES[facts["dtype"]]:
            raise ValueError(f"{one_line(name, 80)} does not fill its place")
        at = end
        yield name, shape
    if at != size:
        raise ValueError("its length is another")

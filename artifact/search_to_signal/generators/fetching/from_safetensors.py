"""A model directory from safetensors files as a distributor publishes them: checked and copied."""

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from search_to_signal.errors import ModelFileError
from search_to_signal.generators.fetching.describing import ModelOrigin
from search_to_signal.generators.fetching.known import KnownModel
from search_to_signal.generators.fetching.reading import (
    Reading,
    refuse_little_room,
    remove_cached,
    total_size,
)
from search_to_signal.generators.model_files import CHECKSUMS, json_settings, listed_files
from search_to_signal.generators.weight_headers import file_shapes
from search_to_signal.progress import Progress

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

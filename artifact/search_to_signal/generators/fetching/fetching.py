"""A named model into a directory of its own: from the hub, or from files at hand."""

import json
import re
from pathlib import Path
from typing import NamedTuple

from search_to_signal.errors import ConfigError, ModelFileError, S2SError
from search_to_signal.generators.fetching.describing import SOURCE, describe
from search_to_signal.generators.fetching.from_gguf import GgufSource
from search_to_signal.generators.fetching.from_safetensors import SafetensorsSource, given_files
from search_to_signal.generators.fetching.known import KNOWN, KnownModel, unknown_model
from search_to_signal.generators.fetching.parts import gguf_files
from search_to_signal.generators.fetching.unfinished import renamed_when_whole
from search_to_signal.generators.model_files import checked_files
from search_to_signal.progress import Progress
from search_to_signal.records.files import is_component

_DIGEST = re.compile("[0-9a-f]{64}")


class FetchRequest(NamedTuple):
    """A model by name; where its files are, the hub where that is None; the SHA-256 of an unknown one."""

    name: str
    given: Path | None = None
    sha256: str | None = None


def fetch(request: FetchRequest, out: Path, progress: Progress) -> bool:
    """Make the model directory ``out``; False where it is there already, and whole.

    Raises ConfigError for an unknown name, ModelFileError for files that are missing, damaged or others, and
    where something else has that name. Whatever is raised, nothing of it is left.
    """
    known = _known(request)
    if out.is_symlink() or out.exists():
        _refuse_another(request.name, out)
        return False
    if request.given is not None:
        source = _given(request, request.given, known)
    with renamed_when_whole(out) as work:
        if request.given is None:
            # Its client takes a second to load, which other files need not wait for.
            from search_to_signal.generators.fetching.hub import on_hub

            assert known is not None
            source = on_hub(request.name, known, progress)
        describe(work, source.write(work, progress), progress)
    return True


def _known(request: FetchRequest) -> KnownModel | None:
    if not is_component(request.name):
        raise ConfigError(f"{request.name!r} is no name: give one without slashes")
    if request.sha256 is not None and not _DIGEST.fullmatch(request.sha256):
        raise ConfigError("--sha256 takes the 64 digits from 0 to f that sha256sum prints")
    known = KNOWN.get(request.name)
    if known is None and (request.given is None or request.sha256 is None):
        raise unknown_model(request.name)
    if known is not None and request.sha256 is not None:
        raise ConfigError(f"the bytes of {request.name} are known: leave --sha256 out")
    return known


def _refuse_another(name: str, out: Path) -> None:
    try:
        checked_files(out)
        fetched_name = json.loads((out / SOURCE).read_text(encoding="utf-8"))["name"]
    except (S2SError, OSError, ValueError, LookupError, TypeError) as error:
        raise ModelFileError(
            f"{out} is there and is no whole fetched model ({error}): remove it, or give another --out"
        ) from error
    if fetched_name != name:
        raise ModelFileError(f"{out} holds {fetched_name}: give another --out")


def _given(request: FetchRequest, given: Path, known: KnownModel | None) -> GgufSource | SafetensorsSource:
    if not given.exists():
        raise ModelFileError(f"there is no {given}: give a GGUF file, or a directory with a model's files")
    if not (given.is_file() or given.is_dir()):
        raise ModelFileError(f"{given} is a pipe or a device: give a GGUF file, or a directory with one")
    if given.is_dir() and any(given.glob("*.safetensors")):
        return _directory(request, given, known)
    if known and not known.gguf:
        raise ModelFileError(f"{given} holds no *.safetensors: {request.name} is published as such files")
    return GgufSource(request.name, gguf_files(given), known, request.sha256)


def _directory(request: FetchRequest, given: Path, known: KnownModel | None) -> SafetensorsSource:
    if known is None or known.gguf:
        raise ModelFileError(
            f"{given} holds safetensors, which need no conversion: list them in a SHA256SUMS and name the "
            f"directory as the profile's model; {request.name} is made from a GGUF file"
        )
    files, sums = given_files(given)
    return SafetensorsSource(request.name, files, known, sums)

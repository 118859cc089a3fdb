"""A named model into a directory of its own: from the hub, or from files at hand."""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils.tqdm import disable_progress_bars

from search_to_signal.base.errors import ConfigError, ModelFileError, RunDirectoryError, S2SError
from search_to_signal.base.processes import called_every
from search_to_signal.base.progress import Progress, one_line
from search_to_signal.models.fetching.gguf import GgufSource, gguf_files
from search_to_signal.models.fetching.known import KNOWN, KnownModel, unknown_model
from search_to_signal.models.fetching.safetensors import (
    SOURCE,
    SafetensorsSource,
    describe,
    given_files,
    wanted,
)
from search_to_signal.models.files import checked_files
from search_to_signal.records.files import is_component, storage_errors

# A directory made under another name and renamed when it is whole: what has its name is finished.


@contextmanager
def renamed_when_whole(out: Path) -> Iterator[Path]:
    """Yield an empty directory next to ``out`` that gets its name at the end, and is removed on any error.

    What a killed process left there is removed first. Raises RunDirectoryError for a link in its
    place, and while another one makes it.
    """
    out = Path(os.path.abspath(out))
    made = _missing_parents(out)
    work, lock = out.with_name(f".{out.name}.unfinished"), None
    # A signal may come as soon as the first directory is there.
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(work)
        _empty(work)
        yield work
        os.rename(work, out)
    except BaseException as error:
        if lock is not None:
            shutil.rmtree(work, ignore_errors=True)
        elif not isinstance(error, RunDirectoryError):  # which says that it is another process's
            made = [work, *made]
        for empty in made:
            with suppress(OSError):
                empty.rmdir()
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _missing_parents(path: Path) -> list[Path]:
    return [parent for parent in path.parents if not parent.exists()]


def _locked(work: Path) -> int:
    """The open directory; the system lets go of the lock when the process ends, however it ends."""
    # What is in it will be removed: through a link that would be somebody's own files.
    if work.is_symlink():
        raise RunDirectoryError(f"{work} is a symbolic link, and would be emptied: remove it")
    work.mkdir(exist_ok=True)
    descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have renamed or removed it between the calls.
        if os.path.samestat(os.fstat(descriptor), os.stat(work)):
            return descriptor
    os.close(descriptor)
    raise RunDirectoryError(f"another process is writing {work}: wait for it, or end it")


def _empty(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


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


# Files of a known model from the hub, at its pinned revision, in the hub's own cache.

_MB = 1_000_000


def on_hub(name: str, known: KnownModel, progress: Progress) -> GgufSource | SafetensorsSource:
    """Download what the cache lacks; raises ModelFileError where that cannot be done.

    The hub's client goes on with what an earlier attempt left in its cache.
    """
    with _reaching(name):
        if known.gguf:
            with _told(name, known, known.size or 1, progress):
                file = _downloaded(known, known.gguf)
            return GgufSource(name, [file], known, cached=True)
        return _published(name, known, progress)


def _downloaded(known: KnownModel, name: str) -> Path:
    return Path(hf_hub_download(known.repository, name, revision=known.revision))


def _published(name: str, known: KnownModel, progress: Progress) -> SafetensorsSource:
    info = HfApi().model_info(known.repository, revision=known.revision, files_metadata=True)
    listed = [file for file in info.siblings or () if wanted(file.rfilename)]
    sums = {file.rfilename: file.lfs.sha256 for file in listed if file.lfs}
    with _told(name, known, sum(file.size or 0 for file in listed), progress):
        files = {file.rfilename: _downloaded(known, file.rfilename) for file in listed}
    return SafetensorsSource(name, files, known, sums, known.revision, cached=True)


@contextmanager
def _told(name: str, known: KnownModel, size: int, progress: Progress) -> Iterator[None]:
    """Within it the cache is looked at every second for how much has come; the client's own bars are off."""
    blobs = Path(HF_HUB_CACHE, repo_folder_name(repo_id=known.repository, repo_type="model"), "blobs")
    task, total = f"download {name}", max(1, size // _MB)

    def report() -> None:
        # A file that is finished meanwhile changes its name.
        with suppress(FileNotFoundError):
            there = sum(path.stat().st_size for path in blobs.glob("*"))
            progress.update(task, min(there // _MB, total - 1), total, "MB")

    disable_progress_bars()
    report()
    with called_every(1.0, report):
        yield
    progress.update(task, total, total, "MB")


@contextmanager
def _reaching(name: str) -> Iterator[None]:
    try:
        with storage_errors(Path(HF_HUB_CACHE), "give the command again"):
            yield
    # What the client raises for the network and for what the hub lacks is an OSError, too.
    except OSError as error:
        raise ModelFileError(
            f"cannot get {name} from the hub ({one_line(str(error), 200)}): look at the network, or give the "
            "file or directory that you have with --from"
        ) from error

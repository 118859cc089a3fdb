"""A named model into a directory of its own, from the hub or from files at hand: checked, then described."""

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, NamedTuple

from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils.tqdm import disable_progress_bars

from search_to_signal.base.errors import ConfigError, ModelFileError, RunDirectoryError, S2SError
from search_to_signal.base.package_data import SOURCE
from search_to_signal.base.processes import called_every
from search_to_signal.base.progress import Progress, one_line
from search_to_signal.models.files import (
    CHECKSUMS,
    KNOWN,
    KnownModel,
    checked_files,
    file_shapes,
    is_read,
    json_settings,
    listed_files,
    reads_rope_theta_alone,
    refuse_little_room,
)
from search_to_signal.models.gguf import convert, gguf_files
from search_to_signal.records.files import is_component, storage_errors

_DIGEST = re.compile("[0-9a-f]{64}")


class FetchRequest(NamedTuple):
    """A model by name; where its files are, the hub where that is None; the SHA-256 of an unknown one.

    A name with a slash is a repository of the hub, whose ``revision`` is its newest where that is None.
    """

    name: str
    given: Path | None = None
    sha256: str | None = None
    revision: str | None = None


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
            assert known is not None
            source = _on_hub(request.name, known, progress)
        _describe(work, source.write(work, progress), progress)
    return True


def _known(request: FetchRequest) -> KnownModel | None:
    owner, slash, own = request.name.partition("/")
    if slash and is_component(owner) and is_component(own):
        if request.sha256 is not None:
            raise ConfigError("--sha256 is for a GGUF file: leave it out for a repository")
        return KnownModel(request.name, request.revision or "main", "that of its publisher")
    if not is_component(request.name):
        raise ConfigError(f"{request.name!r} is not a valid name: give NAME, or OWNER/NAME of the hub")
    if request.revision is not None:
        raise ConfigError("--revision is for OWNER/NAME: leave it out for a model that is known by name")
    if request.sha256 is not None and not _DIGEST.fullmatch(request.sha256):
        raise ConfigError("--sha256 takes the 64 digits from 0 to f that sha256sum prints")
    known = KNOWN.get(request.name)
    if known is None and (request.given is None or request.sha256 is None):
        raise ConfigError(
            f"no model {request.name!r} is known: name one of {', '.join(KNOWN)}, or OWNER/NAME of the "
            "hub, or give a GGUF file of your own with --from FILE --sha256 DIGEST"
        )
    if known is not None and request.sha256 is not None:
        raise ConfigError(f"the bytes of {request.name} are known: leave --sha256 out")
    return known


def _refuse_another(name: str, out: Path) -> None:
    try:
        checked_files(out)
        fetched_name = json.loads((out / SOURCE).read_text(encoding="utf-8"))["name"]
    except (S2SError, OSError, ValueError, LookupError, TypeError) as error:
        raise ModelFileError(
            f"{out} exists and is not a complete model ({error}): remove it, or give another --out"
        ) from error
    if fetched_name != name:
        raise ModelFileError(f"{out} holds {fetched_name}: give another --out")


def _given(request: FetchRequest, given: Path, known: KnownModel | None) -> "GgufSource | SafetensorsSource":
    if not given.exists():
        raise ModelFileError(f"there is no {given}: give a GGUF file, or a directory with a model's files")
    if not (given.is_file() or given.is_dir()):
        raise ModelFileError(f"{given} is a pipe or a device: give a GGUF file, or a directory with one")
    if given.is_dir() and any(given.glob("*.safetensors")):
        if known is None or known.gguf:
            raise ModelFileError(
                f"{given} holds safetensors, which need no conversion: list them in a SHA256SUMS and name "
                f"the directory as the profile's model; {request.name} is made from a GGUF file"
            )
        files = {path.name: path for path in sorted(given.iterdir()) if path.is_file() and _wanted(path.name)}
        sums = listed_files(given) if (given / CHECKSUMS).is_file() else {}
        return SafetensorsSource(request.name, files, known, sums)
    if known and not known.gguf:
        raise ModelFileError(f"{given} holds no *.safetensors: {request.name} is published as such files")
    return GgufSource(request.name, gguf_files(given), known, request.sha256)


_MB = 1_000_000


def _on_hub(name: str, known: KnownModel, progress: Progress) -> "GgufSource | SafetensorsSource":
    """Download what the cache lacks; raises ModelFileError where that cannot be done.

    The hub's client goes on with what an earlier attempt left in its cache.
    """
    with _reaching(name):
        if known.gguf:
            with _told(name, known, known.size or 1, progress):
                file = Path(hf_hub_download(known.repository, known.gguf, revision=known.revision))
            return GgufSource(name, [file], known, cached=True)
        info = HfApi().model_info(known.repository, revision=known.revision, files_metadata=True)
        known = known._replace(revision=info.sha or known.revision)
        listed = [file for file in info.siblings or () if _wanted(file.rfilename)]
        names = [file.rfilename for file in listed]
        if not any(file.endswith(".safetensors") for file in names):
            raise ModelFileError(
                f"{known.repository} has no *.safetensors, and pickled weights, which run code when "
                "they are read, are not taken: name a repository with safetensors"
            )
        with _told(name, known, sum(file.size or 0 for file in listed), progress):
            folder = snapshot_download(known.repository, revision=known.revision, allow_patterns=names)
        sums = {file.rfilename: file.lfs.sha256 for file in listed if file.lfs}
        files = {file: Path(folder, file) for file in names}
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


@contextmanager
def renamed_when_whole(out: Path) -> Iterator[Path]:
    """Yield an empty directory next to ``out`` that gets its name at the end, and is removed on any error.

    What a killed process left there is removed first. Raises RunDirectoryError for a link in its
    place, and while another one makes it.
    """
    out = Path(os.path.abspath(out))
    made = [parent for parent in out.parents if not parent.exists()]
    work, lock = out.with_name(f".{out.name}.unfinished"), None
    # A signal may come as soon as the first directory is there.
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(work)
        for entry in work.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
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
    raise RunDirectoryError(f"another process is writing into {work}: wait until it ends, or stop it")


_BLOCK = 1 << 22


class Reading:
    """Reads of one task's bytes, reported as megabytes done of all."""

    def __init__(self, task: str, size: int, progress: Progress) -> None:
        self._task, self._size, self._progress, self._done = task, size, progress, 0
        self._tell()

    def copy(self, files: Sequence[Path], into: BinaryIO | None = None) -> str:
        """SHA-256 of the files, one after the other, which are also written ``into`` a stream."""
        digest = hashlib.sha256()
        for path in files:
            with path.open("rb", buffering=0) as stream:
                while block := stream.read(_BLOCK):
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


def _total_size(files: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def _remove_cached(path: Path) -> None:
    """Remove a file of the hub's cache, which links to where its bytes are."""
    path.resolve().unlink(missing_ok=True)
    path.unlink(missing_ok=True)


CARD, LICENCE = "README.md", "LICENSE"
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


def _describe(out: Path, origin: ModelOrigin, progress: Progress) -> None:
    source = {
        "name": origin.name,
        "repository": origin.known and origin.known.repository,
        "revision": origin.revision,
        "licence": origin.known and origin.known.licence,
        "files": origin.files,
        "gguf": version("gguf") if origin.converted else None,
    }
    (out / SOURCE).write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")
    (out / CARD).write_text(_card(origin), encoding="utf-8")
    text = _LICENCES / f"{origin.known.licence}.txt" if origin.known else None
    if text and text.is_file() and not (out / LICENCE).exists():
        (out / LICENCE).write_bytes(text.read_bytes())
    files = [path for path in sorted(out.iterdir()) if path.name not in (CARD, CHECKSUMS)]
    reading = Reading("list checksums", _total_size(files), progress)
    (out / CHECKSUMS).write_text("".join(f"{reading.copy([path])}  {path.name}\n" for path in files))


def _card(origin: ModelOrigin) -> str:
    files = "".join(f"- `{name}`, SHA-256 `{sha256}`\n" for name, sha256 in sorted(origin.files.items()))
    if origin.known is None:
        whose = "A model that this package does not know: only its publisher vouches for the bytes."
    elif origin.revision is None:
        whose = (
            f"Given as {origin.known.repository} of huggingface.co; these bytes were not checked against it:"
        )
    else:
        whose = f"A model of {origin.known.repository} on huggingface.co, at revision {origin.revision}:"
    how = f"The files are the distributor's, byte for byte{origin.edited}.\n"
    if origin.converted:
        how = (
            f"Its weights were quantized by the distributor. They were dequantized by the library gguf "
            f"{version('gguf')}\nand rounded to bfloat16, tensor by tensor; tokens, merges and the chat "
            "template are the file's.\nResults with it are results with a quantized model.\n"
        )
    return f"""# {origin.name}

{whose}

{files}
{how}
Licence: {origin.known.licence if origin.known else "that of its distributor, who has to be asked"}.
Made by `s2s model fetch {origin.name}`; `source.json` says the same for programs.
"""


class GgufSource(NamedTuple):
    """The files that a model's GGUF file consists of, in order, and what is known of it, or its SHA-256.

    A ``cached`` file is removed where it is damaged, or the next attempt would find it again.
    """

    name: str
    files: list[Path]
    known: KnownModel | None
    sha256: str | None = None
    cached: bool = False

    def write(self, out: Path, progress: Progress) -> ModelOrigin:
        """Check the bytes, then convert them; raises ModelFileError for others, and for no model."""
        expected, size = self.known and self.known.size, _total_size(self.files)
        if expected and size != expected:
            what = f"the {len(self.files)} parts hold" if self.files[1:] else f"{self.files[0]} holds"
            raise ModelFileError(
                f"{what} {size:,} bytes, {self.name} has {expected:,}: "
                f"{'a part is missing or cut' if size < expected else 'this is another file'}; get it again"
            )
        joined = out / ".joined.gguf" if self.files[1:] else None
        reading = Reading(f"check {self.name}", size, progress)
        if joined:
            refuse_little_room(out, size)
            with joined.open("wb") as stream:
                sha256 = reading.copy(self.files, stream)
        else:
            sha256 = reading.copy(self.files)
        if sha256 != (right := self.known.sha256 if self.known else self.sha256):
            if self.cached:
                _remove_cached(self.files[0])
            raise ModelFileError(
                f"the file given for {self.name} has SHA-256 {sha256}, not {right}: it is damaged, or "
                "another; get it again"
            )
        convert(joined or self.files[0], out, progress)
        if joined:
            joined.unlink()
        published = (self.known and self.known.gguf) or self.files[0].name
        revision = self.known.revision if self.known else None
        return ModelOrigin(self.name, self.known, {published: sha256}, revision, converted=True)


CONFIG, INDEX = "config.json", "model.safetensors.index.json"
# Any of these sets makes a tokenizer.
_TOKENIZERS = ({"tokenizer.json"}, {"tokenizer.model"}, {"vocab.json", "merges.txt"})
_PART = re.compile(r"-\d+-of-\d+\.safetensors$")


class SafetensorsSource(NamedTuple):
    """A model's published files by name, and the SHA-256 of those that the publisher lists.

    A ``cached`` file is removed where it is damaged, or the next attempt would find it again.
    """

    name: str
    files: Mapping[str, Path]
    known: KnownModel
    sums: Mapping[str, str | None]
    revision: str | None = None
    cached: bool = False

    def write(self, out: Path, progress: Progress) -> ModelOrigin:
        """Copy and check every file; raises ModelFileError for another, a missing or a damaged one."""
        _refuse_incomplete(self.files)
        size = _total_size(list(self.files.values()))
        refuse_little_room(out, size)
        reading = Reading(f"copy {self.name}", size, progress)
        copied = {}
        for name, path in self.files.items():
            with (out / name).open("wb") as stream:
                copied[name] = reading.copy([path], stream)
            if self.sums.get(name) not in (None, copied[name]):
                if self.cached:
                    _remove_cached(path)
                raise ModelFileError(
                    f"{path} has SHA-256 {copied[name]}, not {self.sums[name]}: it is damaged, or another; "
                    "get it again"
                )
        edited = f", but for rope_theta in {CONFIG}" if _place_rotation(out / CONFIG) else ""
        return ModelOrigin(self.name, self.known, copied, self.revision, converted=False, edited=edited)


def _wanted(name: str) -> bool:
    """Whether a file of that name belongs into a model directory: what is read, and licences."""
    return (is_read(name) or name.startswith("LICENSE")) and name != SOURCE and "/" not in name


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
    table = json_settings(files[INDEX]).get("weight_map") if INDEX in files else None
    named = {str(name) for name in (table.values() if isinstance(table, dict) else ())}
    if missing := sorted(named - weights):
        raise ModelFileError(f"{INDEX} names {missing[0]}, which is missing: get every file of the model")
    for name in sorted(weights):
        file_shapes(files[name])


def _place_rotation(path: Path) -> bool:
    """Write the base of the rotary embedding where the pinned transformers reads it; it would take 10,000.

    Whether anything had to be written.
    """
    config = json_settings(path)
    rotation = config.get("rope_parameters")
    if "rope_theta" in config or not isinstance(rotation, dict) or not reads_rope_theta_alone():
        return False
    if rotation.get("rope_type", "default") != "default" or "rope_theta" not in rotation:
        raise ModelFileError(f"{path.name} has rope_parameters that are not read here: get an older revision")
    config = {**config, "rope_theta": rotation["rope_theta"], "rope_scaling": None}
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return True

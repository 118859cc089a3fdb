"""Files of a known model from the hub, at its pinned revision, in the hub's own cache."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils.tqdm import disable_progress_bars

from search_to_signal.errors import ModelFileError
from search_to_signal.generators.fetching.from_gguf import GgufSource
from search_to_signal.generators.fetching.from_safetensors import SafetensorsSource, wanted
from search_to_signal.generators.fetching.known import KnownModel
from search_to_signal.progress import Progress, one_line
from search_to_signal.records.files import storage_errors
from search_to_signal.runtime import called_every

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

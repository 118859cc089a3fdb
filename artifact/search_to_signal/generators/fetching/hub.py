"""Files of a known model from the hub, at its pinned revision, in the hub's own cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.constants import HF_HUB_CACHE

from search_to_signal.errors import ModelFileError
from search_to_signal.generators.fetching.from_gguf import GgufSource
from search_to_signal.generators.fetching.from_safetensors import SafetensorsSource, wanted
from search_to_signal.generators.fetching.known import KnownModel
from search_to_signal.progress import Progress, one_line
from search_to_signal.records.files import storage_errors


def on_hub(name: str, known: KnownModel, progress: Progress) -> GgufSource | SafetensorsSource:
    """Download what the cache lacks; raises ModelFileError where that cannot be done.

    The hub's client goes on with what an earlier attempt left in its cache; on a terminal it shows a bar.
    """
    with _reaching(name):
        if known.gguf:
            _tell(progress, name, known.size or 0)
            file = Path(hf_hub_download(known.repository, known.gguf, revision=known.revision))
            return GgufSource(name, [file], known)
        return _published(name, known, progress)


def _published(name: str, known: KnownModel, progress: Progress) -> SafetensorsSource:
    info = HfApi().model_info(known.repository, revision=known.revision, files_metadata=True)
    listed = [file for file in info.siblings or () if wanted(file.rfilename)]
    sums = {file.rfilename: file.lfs.sha256 for file in listed if file.lfs}
    _tell(progress, name, sum(file.size or 0 for file in listed))
    files = {
        file.rfilename: Path(hf_hub_download(known.repository, file.rfilename, revision=known.revision))
        for file in listed
    }
    return SafetensorsSource(name, files, known, sums, known.revision)


def _tell(progress: Progress, name: str, size: int) -> None:
    progress.say(f"{name}: {size / 1e6:,.0f} MB from the hub, unless its cache has them")


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

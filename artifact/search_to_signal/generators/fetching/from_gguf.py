"""A model directory from a GGUF file or its parts, when the bytes are those that were published."""

from pathlib import Path
from typing import NamedTuple

from search_to_signal.errors import ModelFileError
from search_to_signal.generators.fetching.converting import convert
from search_to_signal.generators.fetching.describing import ModelOrigin
from search_to_signal.generators.fetching.known import KnownModel
from search_to_signal.generators.fetching.reading import (
    Reading,
    refuse_little_room,
    remove_cached,
    total_size,
)
from search_to_signal.progress import Progress

_JOINED = ".joined.gguf"


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
        self._refuse_size()
        joined = out / _JOINED if len(self.files) > 1 else None
        sha256 = self._read(joined, progress)
        self._refuse_bytes(sha256)
        convert(joined or self.files[0], out, progress)
        if joined:
            joined.unlink()
        published = (self.known and self.known.gguf) or self.files[0].name
        revision = self.known.revision if self.known else None
        return ModelOrigin(self.name, self.known, {published: sha256}, revision, converted=True)

    def _read(self, joined: Path | None, progress: Progress) -> str:
        size = total_size(self.files)
        reading = Reading(f"check {self.name}", size, progress)
        if joined is None:
            return reading.copy(self.files)
        refuse_little_room(joined.parent, size)
        with joined.open("wb") as stream:
            return reading.copy(self.files, stream)

    def _refuse_size(self) -> None:
        expected = self.known and self.known.size
        size = total_size(self.files)
        if expected and size != expected:
            what = f"the {len(self.files)} parts hold" if self.files[1:] else f"{self.files[0]} holds"
            raise ModelFileError(
                f"{what} {size:,} bytes, {self.name} has {expected:,}: "
                f"{'a part is missing or cut' if size < expected else 'this is another file'}; get it again"
            )

    def _refuse_bytes(self, sha256: str) -> None:
        expected = self.known.files[self.known.gguf] if self.known and self.known.gguf else self.sha256
        if sha256 != expected:
            if self.cached:
                remove_cached(self.files[0])
            raise ModelFileError(
                f"the file given for {self.name} has SHA-256 {sha256}, not {expected}: it is damaged, or "
                "another; get it again"
            )

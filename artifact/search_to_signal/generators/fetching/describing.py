"""The files next to a model's weights: their origin, licence and checksums."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from search_to_signal.generators.fetching.known import KnownModel
from search_to_signal.generators.fetching.reading import Reading, total_size
from search_to_signal.generators.model_files import CHECKSUMS
from search_to_signal.progress import Progress

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

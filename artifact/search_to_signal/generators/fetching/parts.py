"""The bytes of a GGUF file, from one file or from its parts, joined in the order of their numbers."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

from search_to_signal.errors import ModelFileError

MAGIC = b"GGUF"
# part7.bin, model.gguf.part07, model.gguf.007
_NUMBERED = re.compile(r"(.*?)(\d+)(\.[A-Za-z]\w*)?", re.DOTALL)
# Who names a home directory by mistake should not wait for all of it.
_MOST_ENTRIES = 10_000


def gguf_files(given: Path) -> list[Path]:
    """A file as it is, or of a directory its one GGUF file or the numbered parts of one, in order.

    Raises ModelFileError where a part is missing or doubled, where parts of several files lie side by side,
    and for parts that are GGUF files of their own.
    """
    if not given.is_dir():
        return [given]
    whole = [path for path in _files(given) if path.suffix == ".gguf" and _begins(path)]
    if len(whole) > 1:
        raise ModelFileError(
            f"{given} holds {len(whole)} GGUF files, such as {whole[0].name}: name one; parts that are GGUF "
            "files themselves are made one by llama.cpp's llama-gguf-split --merge"
        )
    return whole or _in_order(given, _series(given))


def _files(directory: Path) -> list[Path]:
    def shown() -> Iterator[Path]:
        for path in directory.rglob("*"):
            names = path.relative_to(directory).parts
            if not any(name.startswith((".", "__pycache__")) for name in names):
                yield path

    paths = list(islice(shown(), _MOST_ENTRIES + 1))
    if len(paths) > _MOST_ENTRIES:
        raise ModelFileError(f"{directory} holds more than {_MOST_ENTRIES} files: give the model's alone")
    return sorted(path for path in paths if path.is_file())


def _begins(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _series(directory: Path) -> list[tuple[int, Path]]:
    series: dict[tuple[str, str], list[tuple[int, Path]]] = defaultdict(list)
    for path in _files(directory):
        if match := _NUMBERED.fullmatch(path.name):
            series[match[1], match[3] or ""].append((int(match[2]), path))
    if not series:
        raise ModelFileError(
            f"{directory} holds no GGUF file, no *.safetensors, and no numbered parts of a file"
        )
    if len(series) > 1:
        names = ", ".join(sorted(parts[0][1].name for parts in series.values())[:4])
        raise ModelFileError(
            f"{directory} holds numbered files of several names ({names}): leave the parts of one file there"
        )
    return sorted(next(iter(series.values())))


def _in_order(directory: Path, numbered: Sequence[tuple[int, Path]]) -> list[Path]:
    numbers = [number for number, _ in numbered]
    for (number, path), (following, double) in pairwise(numbered):
        if number == following:
            raise ModelFileError(f"{path} and {double} are both part {number}: leave the parts of one file")
    first = min(numbers[0], 1)
    if missing := sorted(set(range(first, numbers[-1])) - set(numbers)):
        raise ModelFileError(f"{directory} lacks {_named(missing)} of {numbers[-1]}: get what is missing")
    return [path for _, path in numbered]


def _named(numbers: Iterable[int]) -> str:
    listed = [str(number) for number in numbers]
    more = f" and {len(listed) - 5} more" if listed[5:] else ""
    return f"part{'s' if listed[1:] else ''} {', '.join(listed[:5])}{more}"

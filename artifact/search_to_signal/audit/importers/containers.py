"""What a file is made of: its container, by its first bytes, and its columns, by its first record."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_to_signal.audit.importers.documents import read_document
from search_to_signal.audit.importers.lines import cut_end, first_record
from search_to_signal.audit.importers.plain_pickle import load_plain
from search_to_signal.audit.importers.spreadsheets import SUFFIXES, csv_columns, cut_row
from search_to_signal.audit.importers.sqlite import table_columns
from search_to_signal.audit.importers.streams import start_of
from search_to_signal.audit.importers.tables import parquet_columns
from search_to_signal.errors import RecordError

JSONL, JSON, CSV = "JSON Lines", "JSON", "CSV"
PARQUET, SQLITE, TORCH = "Parquet", "SQLite", "torch.save"


@dataclass(frozen=True)
class Sniffed:
    """Container and columns of one file."""

    container: str
    columns: tuple[str, ...]


def sniff(path: Path) -> Sniffed:
    """Container and columns of a file; raises RecordError for one that is empty, damaged or unknown."""
    container = container_of(path)
    if container == PARQUET:
        return Sniffed(container, parquet_columns(path))
    if container == CSV:
        return Sniffed(container, csv_columns(path))
    if container == SQLITE:
        return Sniffed(container, table_columns(path))
    if container == TORCH:
        return Sniffed(container, _keys(next(iter(samples_in(path, load_plain(path))), {})))
    if container == JSON:
        return Sniffed(container, _keys(next(iter(read_document(path)), {})))
    return Sniffed(container, _keys(first_record(path)))


def container_of(path: Path) -> str:
    """The container of a file by its first bytes. Raises RecordError for a file that is empty or unknown."""
    start = start_of(path, 4096)
    text = start.lstrip()
    if not text:
        raise RecordError(f"{path} is empty: it holds no groups; give a log that was written to")
    for magic, container in _MAGIC.items():
        if start.startswith(magic):
            return container
    if _suffix(path) in SUFFIXES:
        return CSV
    if text.startswith(b"["):
        return JSON
    if text.startswith(b"{"):
        return JSON if text.split(b"\n", 1)[0].strip() == b"{" else JSONL
    raise RecordError(
        f"{path} is no log that is known here: not {', '.join(sorted(set(_MAGIC.values())))}, JSON or CSV"
    )


def is_cut(path: Path) -> bool:
    """Whether the last line of a file of lines was cut, or the end of a packed one."""
    cut = {JSONL: cut_end, CSV: cut_row}.get(container_of(path))
    return cut is not None and cut(path)


def _suffix(path: Path) -> str:
    """What the name ends with, before the mark of a packer."""
    return Path(path.stem if path.suffix in (".gz", ".zst") else path.name).suffix.lower()


_MAGIC = {
    b"PAR1": PARQUET,
    b"SQLite format 3\x00": SQLITE,
    b"PK\x03\x04": TORCH,
    b"\x80": TORCH,
}


def samples_in(path: Path, dump: object) -> list[dict[str, Any]]:
    """The ``samples`` of a dump that was loaded. Raises RecordError where it holds no such list."""
    samples = dump.get("samples") if isinstance(dump, Mapping) else None
    if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
        raise RecordError(
            f"{path}: no list of samples; a rollout dump is a mapping with rollout_id and samples"
        )
    return samples


def _keys(record: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(key) for key in record)

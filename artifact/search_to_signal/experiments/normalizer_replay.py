"""Evidence layer "normalizer replay": whether reward differences survive group normalization."""

from collections.abc import Sequence
from pathlib import Path

from search_to_signal.analysis.audit import audit
from search_to_signal.analysis.audit_tables import (
    context_rows,
    credit_rows,
    csv_text,
    page,
    pair_rows,
    signal_rows,
)
from search_to_signal.errors import ConfigError
from search_to_signal.normalizer import get_normalizer
from search_to_signal.records.batches import read_batches, record_files
from search_to_signal.rewards import get_mapping

PAGE = "audit.md"


def replay(inputs: Sequence[Path], out: Path, mappings: Sequence[str], normalizers: Sequence[str]) -> Path:
    """Audit recorded groups under every mapping and normalizer; return the page, beside four CSV files.

    ``inputs`` are run directories, directories of them, record files, or JSON Lines of groups from
    outside (records/group.schema.json). ``mappings`` and ``normalizers`` are names, entry points or
    pkg.mod:obj; the first normalizer is the page's main one. Raises ConfigError for an unknown name,
    RecordError for an unreadable input, IllFormedGroupError where a mapping needs what a record lacks.
    """
    if not mappings or not normalizers:
        raise ConfigError("nothing to replay: name at least one mapping and one normalizer")
    files = record_files(inputs)
    result = audit(
        read_batches(files),
        {name: get_mapping(name) for name in mappings},
        {name: get_normalizer(name) for name in normalizers},
    )
    out.mkdir(parents=True, exist_ok=True)
    tables = {"pairs": pair_rows, "signal": signal_rows, "credit": credit_rows, "context": context_rows}
    for name, rows in tables.items():
        (out / f"{name}.csv").write_text(csv_text(rows(result)), encoding="utf-8")
    sizes = {_named(file, out): file.stat().st_size for file in files}
    (out / PAGE).write_text(page(result, sizes, default=normalizers[0]), encoding="utf-8")
    return out / PAGE


def _named(file: Path, out: Path) -> str:
    # A results directory reads the same wherever it lies, so its own files are named from its top.
    top, full = out.resolve().parent, file.resolve()
    return str(full.relative_to(top)) if full.is_relative_to(top) else str(file)

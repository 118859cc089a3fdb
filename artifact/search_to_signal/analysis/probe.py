"""What checkpoints answer to one bank of prompts (paper, supplement, tab. common-context)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from search_to_signal.analysis.aggregate import Cells
from search_to_signal.analysis.metrics.search import ratio
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.tables.cells import Cell, Origin, Row, Table, percent_cell
from search_to_signal.analysis.tables.measures import VALID_ONLY
from search_to_signal.errors import RunDirectoryError
from search_to_signal.provenance.checksums import sha256_file
from search_to_signal.records.manifest import PROBE
from search_to_signal.records.probe import (
    BANK,
    BankPrompt,
    ProbedCheckpoint,
    ProbeManifest,
    ProbeRecord,
    read_probe,
)
from search_to_signal.records.reader import read_records
from search_to_signal.records.schema import Operator

COLUMNS = (
    "Completions",
    "Valid",
    "Valid (%)",
    "Valid-only perf.",
    "Improve | valid (%)",
    "Best-of-group improve (%)",
)


def improving(record: ProbeRecord, prompt: BankPrompt) -> bool:
    """Valid and above every base of its prompt; never without a comparator (D05)."""
    if record.score is None or not prompt.base_scores or prompt.operator is Operator.CREATION:
        return False
    return record.score > max(prompt.base_scores)


def checkpoint_cells(records: Sequence[ProbeRecord], bank: Mapping[int, BankPrompt], path: str) -> Cells:
    """COLUMNS of one checkpoint."""
    lines = Origin(path)
    valid = [record.score for record in records if record.score is not None]
    better = [record for record in records if improving(record, bank[record.prompt])]
    prompts = {record.prompt for record in records}
    hit = len({record.prompt for record in better})
    return (
        Cell(len(records), formula="completions", origins=(lines,)),
        Cell(len(valid), formula="valid completions", origins=(lines,)),
        percent_cell(len(valid), len(records), "valid completions / completions", lines),
        VALID_ONLY.of(ratio(sum(valid), len(valid)), lines),
        percent_cell(len(better), len(valid), "completions above every base / valid completions", lines),
        percent_cell(hit, len(prompts), "prompts with an improvement / prompts", lines),
    )


def probe(results: Results) -> Table:
    """One row per checkpoint, the model before any update first."""
    folder = results.folder(PROBE)
    manifest = read_probe(folder)
    bank = _bank(folder, manifest)
    rows = tuple(
        Row(c.name, checkpoint_cells(_answers(folder, manifest, c), bank, f"{PROBE}/{c.name}.jsonl"))
        for c in manifest.checkpoints
    )
    note = f"{manifest.prompts} prompts, {manifest.completions} completions of every checkpoint to each."
    return Table("probe", "Common-context probe", "probe", COLUMNS, rows, "Checkpoint", note)


def _bank(folder: Path, manifest: ProbeManifest) -> dict[int, BankPrompt]:
    if manifest.status != "complete":
        raise RunDirectoryError(f"{folder} is unfinished: finish the probe, then report again")
    _check(folder / BANK, manifest.bank_sha256)
    return {prompt.prompt: prompt for prompt in read_records(folder / BANK, BankPrompt)}


def _answers(folder: Path, manifest: ProbeManifest, checkpoint: ProbedCheckpoint) -> list[ProbeRecord]:
    file = folder / f"{checkpoint.name}.jsonl"
    _check(file, checkpoint.records_sha256)
    records = list(read_records(file, ProbeRecord))
    if (
        len(records) != manifest.prompts * manifest.completions
        or checkpoint.bank_sha256 != manifest.bank_sha256
    ):
        raise RunDirectoryError(f"{file} does not answer the whole bank: run the probe again")
    return records


def _check(file: Path, sha256: str) -> None:
    if not file.is_file() or sha256_file(file) != sha256:
        raise RunDirectoryError(
            f"{file} is missing or not the recorded one: restore it, or run the probe again"
        )

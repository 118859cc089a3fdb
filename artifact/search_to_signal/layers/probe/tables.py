"""Answers of every checkpoint to the same prompts (paper, supplement, tab. common-context)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.layers import PROBE
from search_to_signal.records.probe import (
    BANK,
    BankPrompt,
    ProbedCheckpoint,
    ProbeManifest,
    ProbeRecord,
    read_probe,
)
from search_to_signal.records.reader import read_records
from search_to_signal.records.schema import CREATION
from search_to_signal.report.results import Origin, Results
from search_to_signal.report.tables.cells import Cells, Noted, count_cell, percent_cell, table
from search_to_signal.report.tables.measures import VALID_ONLY


def improving(record: ProbeRecord, prompt: BankPrompt) -> bool:
    """Valid and above every base of its prompt; never without a comparator (D05)."""
    if record.score is None or not prompt.base_scores or prompt.operator == CREATION:
        return False
    return record.score > max(prompt.base_scores)


def checkpoint_cells(records: Sequence[ProbeRecord], bank: Mapping[int, BankPrompt], path: str) -> Cells:
    """The answers of one checkpoint."""
    lines = Origin(path)
    valid = [record.score for record in records if record.score is not None]
    better = [record for record in records if improving(record, bank[record.prompt])]
    prompts = {record.prompt for record in records}
    hit = len({record.prompt for record in better})
    of_valid = "completions above every base / valid completions"
    of_prompts = "prompts with an improvement / prompts"
    return {
        "Completions": count_cell(len(records), "completions", lines),
        "Valid": count_cell(len(valid), "valid completions", lines),
        "Valid (%)": percent_cell(len(valid), len(records), "valid completions / completions", lines),
        "Valid-only perf.": VALID_ONLY.of(sum(valid) / len(valid) if valid else None, lines),
        "Improve | valid (%)": percent_cell(len(better), len(valid), of_valid, lines),
        "Best-of-group improve (%)": percent_cell(hit, len(prompts), of_prompts, lines),
    }


@table("Common-context probe", layer=PROBE, label="Checkpoint")
def probe(results: Results) -> Noted:
    """One row per checkpoint, the model before any update first."""
    folder = results.folder(PROBE)
    manifest = read_probe(folder)
    if manifest.status != "complete":
        raise RunDirectoryError(f"{folder} is unfinished: finish the probe, then report again")
    _check_file(folder / BANK, manifest.bank_sha256)
    bank = {prompt.prompt: prompt for prompt in read_records(folder / BANK, BankPrompt)}
    answers = {one.name: checkpoint_answers(folder, manifest, one) for one in manifest.checkpoints}
    return Noted(
        [(name, checkpoint_cells(own, bank, f"{PROBE}/{name}.jsonl")) for name, own in answers.items()],
        f"{manifest.prompts} prompts, {manifest.completions} completions of every checkpoint to each.",
    )


def checkpoint_answers(
    folder: Path, manifest: ProbeManifest, checkpoint: ProbedCheckpoint
) -> list[ProbeRecord]:
    """Read a checkpoint's answers to the whole bank; raises RunDirectoryError where they changed."""
    file = folder / f"{checkpoint.name}.jsonl"
    _check_file(file, checkpoint.records_sha256)
    records = list(read_records(file, ProbeRecord))
    expected = manifest.prompts * manifest.completions
    if len(records) != expected or checkpoint.bank_sha256 != manifest.bank_sha256:
        raise RunDirectoryError(f"{file} does not answer the whole bank: run the probe again")
    return records


def _check_file(file: Path, sha256: str) -> None:
    if not file.is_file() or sha256_file(file) != sha256:
        raise RunDirectoryError(
            f"{file} is missing or not the recorded one: restore it, or run the probe again"
        )

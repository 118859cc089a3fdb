"""Evaluations after the runs: final heuristics on other sizes, programs by behaviour, checkpoints by prompts.

Paper, fig. heldout; supplement, tab. common-context; programs by behaviour are ours.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.base.numerics import Floats
from search_to_signal.problems.tsp_known import reference_lengths
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.heldout import (
    BEHAVIOURS,
    SCORES,
    BehaviourRecord,
    HeldoutManifest,
    HeldoutRecord,
    read_heldout,
)
from search_to_signal.records.layers import HELDOUT, PROBE
from search_to_signal.records.probe import (
    BANK,
    BankPrompt,
    ProbedCheckpoint,
    ProbeManifest,
    ProbeRecord,
    read_probe,
)
from search_to_signal.records.reader import COMPLETIONS, read_records
from search_to_signal.records.schema import CREATION
from search_to_signal.report.results import Origin, RecordedRun, Results
from search_to_signal.report.tables.cells import (
    Cells,
    Noted,
    count_cell,
    mean_cell,
    number_cell,
    percent_cell,
    summarized,
    table,
)
from search_to_signal.report.tables.measures import VALID_ONLY

_MEANS = "Means of the seeds' values ± sample standard deviation."


def _checked_heldout(results: Results) -> HeldoutManifest:
    """Read the manifest and check it against its files and the cohort that it evaluated.

    Raises NoTableError where the evaluation has not run, RunDirectoryError naming what has changed.
    """
    folder = results.folder(HELDOUT)
    manifest = read_heldout(folder)
    for name, digest in manifest.files.items():
        if sha256_file(folder / name) != digest:
            raise RunDirectoryError(f"{folder / name} is not the recorded one: restore it, or evaluate again")
    recorded = {run.path: sha256_file(run.directory / COMPLETIONS) for run in results.cohort}
    if recorded != manifest.runs:
        raise RunDirectoryError(f"{folder} was made from another cohort: move it away and evaluate again")
    return manifest


def optimality_gap(scores: Floats, lengths: Floats) -> float:
    """Mean over instances of (tour length - reference length) / reference length, in percent.

    scores: (instances,) minus tour lengths; lengths: (instances,) of the reference tours. Lower is better;
    a negative gap would mean a tour shorter than the reference.
    """
    return float(100.0 * np.mean((-scores - lengths) / lengths))


@table("Held-out instances", layer=HELDOUT)
def heldout(results: Results) -> Noted:
    """Score and, for TSP, optimality gap of every run's final heuristic, by split."""
    manifest = results.once(_checked_heldout)
    file = results.folder(HELDOUT) / SCORES
    lines = {
        (record.run, record.split): (number, record)
        for number, record in reversed(list(enumerate(read_records(file, HeldoutRecord), start=1)))
    }
    count = "all instances" if manifest.instances is None else f"the first {manifest.instances} instances"
    gap = "; a gap is to reference tours, lower is better" if manifest.problem == "tsp" else ""
    note = f"Final best heuristics on {count} of each split{gap}. {_MEANS}"
    return Noted(summarized(results.cohort, partial(_score_cells, lines, manifest), mean_cell), note)


def _score_cells(
    lines: Mapping[tuple[str, str], tuple[int, HeldoutRecord]], manifest: HeldoutManifest, run: RecordedRun
) -> Cells:
    cells = {}
    for split in manifest.splits:
        if (run.path, split) not in lines:
            raise RunDirectoryError(
                f"the held-out scores have no line for {run.path} on {split}: evaluate again"
            )
        line, record = lines[run.path, split]
        origin, scores = Origin(f"{HELDOUT}/{SCORES}", (line,)), np.array(record.scores)
        mean = float(scores.mean()) if len(scores) else None
        cells[f"Score {split}"] = number_cell(mean, "mean score over instances", origin)
        if manifest.problem == "tsp":
            gap = optimality_gap(scores, reference_lengths(split)[: len(scores)]) if len(scores) else None
            formula = "mean over instances of (length - reference) / reference, in percent"
            cells[f"Gap (%) {split}"] = number_cell(gap, formula, origin, decimals=2)
    return cells


@table("Semantic coverage", layer=HELDOUT)
def behaviours(results: Results) -> Noted:
    """Distinct programs and distinct behaviours of every run's valid completions."""
    manifest = results.once(_checked_heldout)
    file = results.folder(HELDOUT) / BEHAVIOURS
    known = {record.program_sha256: record for record in read_records(file, BehaviourRecord)}
    where = f"{manifest.behaviour_instances or 'all'} instances of {manifest.behaviour_split}"
    note = f"Programs in canonical form; behaviours are equal scores on each of {where}. {_MEANS}"
    return Noted(summarized(results.cohort, partial(_behaviour_cells, known, file), mean_cell), note)


def _behaviour_cells(known: Mapping[str, BehaviourRecord], file: Path, run: RecordedRun) -> Cells:
    valid = [record for group in run.groups for record in group if record.score is not None]
    programs = dict.fromkeys(record.program_sha256 for record in valid if record.program_sha256)
    unknown = [program for program in programs if program not in known]
    if unknown:
        raise RunDirectoryError(f"{file} lacks program {unknown[0]} of {run.path}: evaluate again")
    distinct = len({known[program].behaviour_sha256 for program in programs} - {None})
    lines, behaved = run.completions(run.batch.valid), Origin(f"{HELDOUT}/{BEHAVIOURS}")
    per_program = "distinct behaviours / distinct programs"
    per_completion = "distinct behaviours / valid completions"
    return {
        "Valid completions": number_cell(len(valid), "valid completions", lines, decimals=1),
        "Distinct programs": number_cell(len(programs), "distinct canonical programs", lines, decimals=1),
        "Distinct behaviours": number_cell(distinct, "distinct behaviours", lines, behaved, decimals=1),
        "Behaviours per program (%)": percent_cell(distinct, len(programs), per_program, lines, behaved),
        "Behaviours per completion (%)": percent_cell(distinct, len(valid), per_completion, lines, behaved),
    }


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

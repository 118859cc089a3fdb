"""Evaluations after the runs: final heuristics on other sizes, programs by behaviour, checkpoints by prompts.

Paper, fig. heldout; supplement, tab. common-context; programs by behaviour are ours.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.base.numerics import Floats
from search_to_signal.problems.tsp import reference_lengths
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.heldout import (
    BEHAVIOURS,
    SCORES,
    BehaviourRecord,
    HeldoutManifest,
    HeldoutRecord,
    read_heldout,
)
from search_to_signal.records.layers import HELDOUT
from search_to_signal.records.reader import COMPLETIONS, read_records
from search_to_signal.report.results import Origin, RecordedRun, Results
from search_to_signal.report.tables.cells import (
    Cells,
    Noted,
    mean_cell,
    number_cell,
    percent_cell,
    summarized,
    table,
)

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

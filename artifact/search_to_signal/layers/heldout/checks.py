"""Held-out scores and behaviours, compared with the programs of the cohort."""

from collections.abc import Iterator
from pathlib import Path

from search_to_signal.problems import PROBLEMS
from search_to_signal.problems.base import heldout_splits
from search_to_signal.records import heldout
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.layers import COHORT, HELDOUT
from search_to_signal.records.manifest import ISOLATION_FACTS, read_manifest, run_directories
from search_to_signal.records.reader import COMPLETIONS, read_completions, read_records
from search_to_signal.records.schema import Outcome
from search_to_signal.run.texts import ParsedTexts


def problems(directory: Path, parsed: ParsedTexts) -> Iterator[str]:
    """Yield contradictions of the held-out layer; raises S2SError for a file that cannot be read."""
    folder = directory / HELDOUT
    if not (folder / heldout.HELDOUT_MANIFEST).is_file():
        return
    manifest = heldout.read_heldout(folder)
    cohort = directory / COHORT if (directory / COHORT).is_dir() else directory
    in_order = sorted(run_directories(cohort), key=lambda run: read_manifest(run).facts.rank)
    runs = {str(run.relative_to(directory)): run for run in in_order}
    if manifest.runs != {name: sha256_file(run / COMPLETIONS) for name, run in runs.items()}:
        yield "it was not made from the cohort's completions"
        return
    if manifest.files != {name: sha256_file(folder / name) for name in (heldout.SCORES, heldout.BEHAVIOURS)}:
        yield "its files do not have the recorded checksums"
    for own in runs.values():
        facts = read_manifest(own).facts
        if (manifest.purpose, manifest.problem) != (facts.purpose, facts.problem):
            yield f"it has another purpose or problem than {own.name}"
    problem = PROBLEMS.get(manifest.problem)
    if problem is not None and (
        manifest.splits != heldout_splits(problem) or manifest.behaviour_split not in problem.splits
    ):
        yield f"its splits differ from the held-out splits of {problem.name}"
    if manifest.isolation.keys() != ISOLATION_FACTS:
        yield "isolation is not what a sandbox reports"
    yield from _score_problems(folder, manifest, runs)
    behaviours = list(read_records(folder / heldout.BEHAVIOURS, heldout.BehaviourRecord))
    valid = (
        record.program_sha256
        for run in runs.values()
        for record in read_completions(run)
        if record.score is not None
    )
    if [behaviour.program_sha256 for behaviour in behaviours] != list(dict.fromkeys(valid)):
        yield f"{heldout.BEHAVIOURS} does not hold the distinct valid programs of the cohort"
    for line, record in enumerate(behaviours, start=1):
        sound = record.behaviour_sha256 is None or len(record.behaviour_sha256) == 64
        if (record.behaviour_sha256 is not None) != (record.outcome is Outcome.VALID) or not sound:
            where = f"{heldout.BEHAVIOURS}:{line}"
            yield f"{where}: outcome {record.outcome.value} with {record.behaviour_sha256}"


def _score_problems(folder: Path, manifest: heldout.HeldoutManifest, runs: dict[str, Path]) -> Iterator[str]:
    scores = list(read_records(folder / heldout.SCORES, heldout.HeldoutRecord))
    if [(s.split, s.run) for s in scores] != [(split, run) for split in manifest.splits for run in runs]:
        yield f"{heldout.SCORES} does not hold every run on every split"
        return
    final = {name: heldout.final_heuristic(run).id for name, run in runs.items()}
    known: dict[tuple[str, str], heldout.HeldoutRecord] = {}
    for line, record in enumerate(scores, start=1):
        where = f"{heldout.SCORES}:{line}"
        if record.heuristic != final[record.run]:
            yield f"{where}: it does not name the best heuristic of {record.run}"
        if bool(record.scores) != (record.outcome is Outcome.VALID) or not record.outcome.evaluated:
            yield f"{where}: outcome {record.outcome.value} with {len(record.scores)} scores"
        if manifest.instances is not None and len(record.scores) not in (0, manifest.instances):
            yield f"{where}: {len(record.scores)} scores for {manifest.instances} instances"
        first = known.setdefault((record.split, record.heuristic), record)
        if (first.outcome, first.scores) != (record.outcome, record.scores):
            yield f"{where}: the same heuristic has another result for {first.run}"

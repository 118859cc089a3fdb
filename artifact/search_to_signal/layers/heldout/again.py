"""The held-out evaluation, recomputed: scores of final heuristics on unseen instances, program behaviours."""

from collections.abc import Iterator
from pathlib import Path

from search_to_signal.base.errors import RecordError
from search_to_signal.layers.heldout import layer
from search_to_signal.problems import find_problem
from search_to_signal.problems.base import Problem
from search_to_signal.records import heldout
from search_to_signal.records.differences import Finding
from search_to_signal.records.layers import HELDOUT
from search_to_signal.records.reader import read_records
from search_to_signal.records.schema import Outcome
from search_to_signal.report.results import Results, Runs
from search_to_signal.run.again import LIMITED, Ending, Tools, compare_endings
from search_to_signal.sandbox.again import RunPrograms
from search_to_signal.sandbox.dialogues import BY_ELAPSED_TIME
from search_to_signal.sandbox.outcomes import Evaluation, Isolation
from search_to_signal.sandbox.settings import EvaluationSettings

# Where this file is, there is something to recompute.
MANIFEST = heldout.HELDOUT_MANIFEST
# These records have no isolation result: an evaluation that reached a limit has one of these details.
_LIMIT_DETAILS = (*BY_ELAPSED_TIME, "SIGPROF", "SIGXCPU", "SIGKILL")


def findings(directory: Path, tools: Tools) -> Iterator[Finding]:
    """Yield the differences of a results directory's held-out evaluation; raises S2SError if unusable."""
    folder, manifest = directory / HELDOUT, heldout.read_heldout(directory / HELDOUT)
    for count in (manifest.instances, manifest.behaviour_instances):
        if count is not None and count < 1:
            raise RecordError(f"instances is {count}, and has to be at least 1")
    problem, cohort = find_problem(manifest.problem), Results(directory).cohort
    yield from _scores(cohort, folder, manifest, problem, tools)
    yield from _behaviours(cohort, folder, manifest, problem, tools)


def _scores(
    cohort: Runs, folder: Path, manifest: heldout.HeldoutManifest, problem: Problem, tools: Tools
) -> Iterator[Finding]:
    rows = list(read_records(folder / heldout.SCORES, heldout.HeldoutRecord))
    finals = [(run, heldout.final_heuristic(run.directory)) for run in cohort]
    expected = [(split, run, best) for split in manifest.splits for run, best in finals]
    recorded = [(row.split, row.run, row.heuristic) for row in rows]
    if recorded != [(split, run.path, best.id) for split, run, best in expected]:
        yield Finding(heldout.SCORES, "its rows are not the final heuristics of the cohort on every split")
        return
    subset = layer.first_instances(problem, manifest.instances)
    chosen = tools.chosen(f"{HELDOUT}/{heldout.SCORES}", len(rows))
    for number, (row, (split, run, best)) in enumerate(zip(rows, expected, strict=True)):
        if number in chosen:
            programs = tools.runner.programs(subset, split, _limits(manifest))
            actual = layer.score_record(run, split, best, _evaluate(programs, best.code, _ending(row)))
            yield from compare_endings(
                f"{heldout.SCORES}, {row.run} on {split}", _ending(row), _ending(actual)
            )
        tools.progress.update(f"{HELDOUT}/{heldout.SCORES}", number + 1, len(rows))


def _behaviours(
    cohort: Runs, folder: Path, manifest: heldout.HeldoutManifest, problem: Problem, tools: Tools
) -> Iterator[Finding]:
    rows = list(read_records(folder / heldout.BEHAVIOURS, heldout.BehaviourRecord))
    codes = layer.valid_programs(cohort)
    if [row.program_sha256 for row in rows] != list(codes):
        yield Finding(heldout.BEHAVIOURS, "its rows are not the distinct valid programs of the cohort")
        return
    subset = layer.first_instances(problem, manifest.behaviour_instances)
    programs = tools.runner.programs(subset, manifest.behaviour_split, _limits(manifest))
    chosen = tools.chosen(f"{HELDOUT}/{heldout.BEHAVIOURS}", len(rows))
    for number, row in enumerate(rows):
        if number in chosen:
            # A recorded failure may be a time limit: the record leaves that open.
            isolation = Isolation.TIMEOUT if row.outcome is Outcome.RUNTIME_FAILURE else Isolation.OK
            recorded = Ending(row.outcome, isolation.value, "", row.behaviour_sha256)
            result = _evaluate(programs, codes[row.program_sha256], recorded)
            if result.outcome is not row.outcome:
                isolation = result.isolation
            actual = Ending(result.outcome, isolation.value, "", layer.behaviour_sha256(result.per_instance))
            yield from compare_endings(
                f"{heldout.BEHAVIOURS}, program {row.program_sha256[:12]}", recorded, actual
            )
        tools.progress.update(f"{HELDOUT}/{heldout.BEHAVIOURS}", number + 1, len(rows))


def _limits(manifest: heldout.HeldoutManifest) -> EvaluationSettings:
    return EvaluationSettings(timeout_s=manifest.timeout_s, replay="off")


def _ending(row: heldout.HeldoutRecord) -> Ending:
    limited = row.outcome is Outcome.RUNTIME_FAILURE and row.detail in _LIMIT_DETAILS
    isolation = Isolation.TIMEOUT.value if limited else "ended"
    return Ending(row.outcome, isolation, row.detail, row.scores or None)


def _evaluate(programs: RunPrograms, code: str, recorded: Ending) -> Evaluation:
    """Evaluate a program, with more time where it reaches a limit and is not recorded so."""
    (result,) = programs.evaluate([code])
    if result.isolation.value in LIMITED and recorded.isolation not in LIMITED:
        with programs.with_more_time() as slower:
            (result,) = slower.evaluate([code])
    return result

"""The held-out evaluation recomputed: final heuristics on unseen instances, and what programs do."""

from collections.abc import Iterator
from pathlib import Path

from search_to_signal.analysis.results import Results, Runs
from search_to_signal.errors import RecordError
from search_to_signal.evaluation.outcomes import Evaluation, Isolation
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.problems import find_problem
from search_to_signal.problems.base import Problem
from search_to_signal.records.heldout import (
    BEHAVIOURS,
    SCORES,
    BehaviourRecord,
    HeldoutManifest,
    HeldoutRecord,
    final_heuristic,
    read_heldout,
)
from search_to_signal.records.layers import HELDOUT
from search_to_signal.records.reader import read_records
from search_to_signal.records.schema import Outcome
from search_to_signal.studies.layers.heldout import (
    behaviour_sha256,
    first_instances,
    score_record,
    valid_programs,
)
from search_to_signal.verification.findings import LIMITED, Ending, Finding, differences
from search_to_signal.verification.recompute.programs import RunPrograms
from search_to_signal.verification.recompute.tools import Tools

# These records have no field for how an evaluation ended; what cut one off left one of these details.
_CUT_OFF = ("SIGALRM", "SIGPROF", "SIGXCPU", "SIGKILL", "elapsed time", "does not read")


def heldout_findings(directory: Path, tools: Tools) -> Iterator[Finding]:
    """What is otherwise in the held-out evaluation of a results directory; raises S2SError if unusable."""
    folder, manifest = directory / HELDOUT, read_heldout(directory / HELDOUT)
    for count in (manifest.instances, manifest.behaviour_instances):
        if count is not None and count < 1:
            raise RecordError(f"it is of {count} instances")
    problem, cohort = find_problem(manifest.problem), Results(directory).cohort
    yield from _scores(cohort, folder, manifest, problem, tools)
    yield from _behaviours(cohort, folder, manifest, problem, tools)


def _scores(
    cohort: Runs, folder: Path, manifest: HeldoutManifest, problem: Problem, tools: Tools
) -> Iterator[Finding]:
    rows = list(read_records(folder / SCORES, HeldoutRecord))
    finals = [(run, final_heuristic(run.directory)) for run in cohort]
    due = [(split, run, best) for split in manifest.splits for run, best in finals]
    told = [(row.split, row.run, row.heuristic) for row in rows]
    if told != [(split, run.path, best.id) for split, run, best in due]:
        yield Finding(SCORES, "its rows are not the final heuristics of the cohort on every split")
        return
    part = first_instances(problem, manifest.instances)
    chosen = tools.chosen(f"{HELDOUT}/{SCORES}", len(rows))
    for number, (row, (split, run, best)) in enumerate(zip(rows, due, strict=True)):
        if number in chosen:
            programs = tools.runner.programs(part, split, _limits(manifest))
            found = score_record(run, split, best, _evaluate_to_the_end(programs, best.code, _ending(row)))
            yield from differences(f"{SCORES}, {row.run} on {split}", _ending(row), _ending(found))
        tools.progress.update(f"{HELDOUT}/{SCORES}", number + 1, len(rows))


def _behaviours(
    cohort: Runs, folder: Path, manifest: HeldoutManifest, problem: Problem, tools: Tools
) -> Iterator[Finding]:
    rows = list(read_records(folder / BEHAVIOURS, BehaviourRecord))
    codes = valid_programs(cohort)
    if [row.program_sha256 for row in rows] != list(codes):
        yield Finding(BEHAVIOURS, "its rows are not the distinct valid programs of the cohort")
        return
    part = first_instances(problem, manifest.behaviour_instances)
    programs = tools.runner.programs(part, manifest.behaviour_split, _limits(manifest))
    chosen = tools.chosen(f"{HELDOUT}/{BEHAVIOURS}", len(rows))
    for number, row in enumerate(rows):
        if number in chosen:
            # A failure may have been a time limit: its record does not say.
            how = Isolation.TIMEOUT if row.outcome is Outcome.RUNTIME_FAILURE else Isolation.OK
            ending = Ending(row.outcome, how.value, "", row.behaviour_sha256)
            result = _evaluate_to_the_end(programs, codes[row.program_sha256], ending)
            if result.outcome is not row.outcome:
                how = result.isolation
            mine = Ending(result.outcome, how.value, "", behaviour_sha256(result.per_instance))
            yield from differences(f"{BEHAVIOURS}, program {row.program_sha256[:12]}", ending, mine)
        tools.progress.update(f"{HELDOUT}/{BEHAVIOURS}", number + 1, len(rows))


def _limits(manifest: HeldoutManifest) -> EvaluationSettings:
    return EvaluationSettings(timeout_s=manifest.timeout_s, replay="off")


def _ending(row: HeldoutRecord) -> Ending:
    cut_off = row.outcome is Outcome.RUNTIME_FAILURE and row.detail in _CUT_OFF
    return Ending(
        row.outcome, Isolation.TIMEOUT.value if cut_off else "ended", row.detail, row.scores or None
    )


def _evaluate_to_the_end(programs: RunPrograms, code: str, recorded: Ending) -> Evaluation:
    """What a program gives, with more time where it is cut off and is not recorded so."""
    (result,) = programs.evaluate([code])
    if result.isolation.value in LIMITED and recorded.isolation not in LIMITED:
        with programs.with_more_time() as slower:
            (result,) = slower.evaluate([code])
    return result

"""Scores of final heuristics on held-out instances, and behaviours of distinct programs on a small set.

Paper, supplement, Held-out TSP sizes: this evaluates discovered heuristics, not the model. Behaviours go
beyond the paper, which compares programs by hashes of their text.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.base.progress import Progress, Task
from search_to_signal.layers.settings import HeldoutSettings
from search_to_signal.problems import find_problem, get_problem
from search_to_signal.problems.base import Instance, Problem, heldout_splits
from search_to_signal.records.checksums import sha256_file
from search_to_signal.records.files import RecordWriter
from search_to_signal.records.heldout import (
    BEHAVIOURS,
    HELDOUT_MANIFEST,
    SCORES,
    BehaviourRecord,
    HeldoutManifest,
    HeldoutRecord,
    final_heuristic,
    stored_heldout,
    write_heldout,
)
from search_to_signal.records.layers import HELDOUT
from search_to_signal.records.provenance import environment, source
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, read_records
from search_to_signal.records.schema import GenerationRecord, HeuristicRecord
from search_to_signal.report.results import RecordedRun, Results, Runs
from search_to_signal.run.directory import Kind, move_aside, read_own
from search_to_signal.run.planned_runs import Reproduction
from search_to_signal.run.profile import Profile
from search_to_signal.sandbox.outcomes import Evaluation
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.programs import Proposal, parse, program_sha256
from search_to_signal.sandbox.settings import EvaluationSettings

BATCH = 32
KIND = Kind("held-out evaluation", HELDOUT_MANIFEST, stored_heldout)


@dataclass(frozen=True)
class _FirstInstances:
    problem: Any
    count: int | None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)

    def instances(self, split: str) -> tuple[Instance, ...]:
        instances: tuple[Instance, ...] = self.problem.instances(split)[: self.count]
        return instances


def first_instances(problem: Problem, count: int | None) -> Problem:
    """Return a problem with only the first ``count`` instances of each split; None for all of them."""
    return cast(Problem, _FirstInstances(problem, count))


def heldout(directory: Path, settings: HeldoutSettings, progress: Progress) -> Path:
    """Evaluate a cohort's final heuristics and distinct programs into DIRECTORY/heldout; returns it.

    The same evaluation is verified and kept; an unfinished one is set aside. Raises RunDirectoryError when
    another evaluation exists, or where the cohort is not complete (load_runs), and ConfigError for a problem
    without held-out instances, or a third-party problem that was not allowed.
    """
    runs, out = Results(directory).cohort, directory / HELDOUT
    problem = find_problem(runs[0].facts.problem)
    splits = heldout_splits(problem)
    if not splits:
        raise ConfigError(f"{problem.name} has no held-out split: there is nothing to evaluate on")
    manifest = _manifest(runs, splits, settings)
    if _is_complete(out, manifest):
        progress.say(f"{HELDOUT}: complete and verified, kept")
        return out
    out.mkdir(exist_ok=True)
    write_heldout(out, manifest)
    limits = EvaluationSettings(timeout_s=settings.timeout_s, slots=settings.slots, replay="off")
    finals = [(run, final_heuristic(run.directory)) for run in runs]
    isolation: dict[str, str | bool] = {}
    with RecordWriter(out / SCORES) as writer:
        for split in splits:
            subset = first_instances(problem, settings.instances)
            with EvaluationPool(subset, split, limits) as pool:
                isolation = dict(pool.barriers())
                for number, (run, best) in enumerate(finals, start=1):
                    (result,) = pool.evaluate([best.code])
                    writer.write(score_record(run, split, best, result))
                    progress.update(f"heldout/{split}", number, len(finals))
    programs = list(valid_programs(runs).items())
    subset = first_instances(problem, settings.behaviour_instances)
    with (
        EvaluationPool(subset, settings.behaviour_split, limits) as pool,
        RecordWriter(out / BEHAVIOURS) as writer,
    ):
        for start in range(0, len(programs), BATCH):
            batch = programs[start : start + BATCH]
            for (key, _), result in zip(batch, pool.evaluate([code for _, code in batch]), strict=True):
                behaviour = behaviour_sha256(result.per_instance)
                writer.write(
                    BehaviourRecord(program_sha256=key, outcome=result.outcome, behaviour_sha256=behaviour)
                )
            progress.update("heldout/behaviours", start + len(batch), len(programs))
    files = {name: sha256_file(out / name) for name in (SCORES, BEHAVIOURS)}
    complete = msgspec.structs.replace(manifest, status="complete", files=files, isolation=isolation)
    write_heldout(out, complete)
    return out


def tasks(profile: Profile) -> list[Task]:
    """A final heuristic on a split costs as much as five groups; every other completion is a program."""
    runs = len(profile.runs())
    splits = heldout_splits(get_problem(profile.problem))
    scores = [Task(f"heldout/{split}", runs, 5.0) for split in splits]
    return [*scores, Task("heldout/behaviours", int(runs * profile.completions * 0.5), 0.2)]


def run(reproduction: Reproduction) -> None:
    """Evaluate the cohort of a profile; raises RunDirectoryError when it is not finished."""
    reproduction.finished_cohort()
    heldout(reproduction.results, reproduction.profile.heldout or HeldoutSettings(), reproduction.progress)


def _is_complete(out: Path, manifest: HeldoutManifest) -> bool:
    stored = read_own(KIND, out, lambda stored: _identity(stored) == _identity(manifest))
    if stored is None:
        return False
    if stored.status != "complete":
        move_aside(out)
        return False
    for name, sha256 in stored.files.items():
        if not (out / name).is_file() or sha256_file(out / name) != sha256:
            raise RunDirectoryError(f"{out / name} is not what {HELDOUT_MANIFEST} says: restore it")
    return True


def _identity(manifest: HeldoutManifest) -> tuple[Any, ...]:
    facts = msgspec.structs.asdict(manifest) | {"source": manifest.source.sha256}
    return tuple(facts[name] for name in facts if name not in ("status", "files", "environment", "isolation"))


def valid_programs(runs: Sequence[RecordedRun]) -> dict[str, str]:
    """Return the code of every distinct valid program of the runs, by its hash, in order of appearance."""
    programs: dict[str, str] = {}
    for run in runs:
        generations = read_records(run.directory / GENERATIONS, GenerationRecord)
        for group, generation in zip(run.groups, generations, strict=True):
            for record, text in zip(group, generation.completions, strict=True):
                if record.score is not None and record.program_sha256 not in programs:
                    proposal = parse(text, run.facts.idea_end)
                    if not isinstance(proposal, Proposal):
                        raise RunDirectoryError(
                            "a completion that was recorded as valid has no program: run s2s verify"
                        )
                    programs[program_sha256(proposal.code)] = proposal.code
    return programs


def score_record(run: RecordedRun, split: str, best: HeuristicRecord, result: Evaluation) -> HeldoutRecord:
    """Return the record of a run's final heuristic on one split."""
    return HeldoutRecord(
        run=run.path,
        split=split,
        heuristic=best.id,
        outcome=result.outcome,
        detail=result.detail,
        scores=result.per_instance,
    )


def behaviour_sha256(scores: Sequence[float]) -> str | None:
    """Return the hash of a program's scores on every instance; None without scores."""
    text = msgspec.json.encode(list(scores))
    return hashlib.sha256(text).hexdigest() if scores else None


def _manifest(runs: Runs, splits: tuple[str, ...], settings: HeldoutSettings) -> HeldoutManifest:
    return HeldoutManifest(
        status="running",
        purpose="smoke" if runs[0].manifest.facts.purpose == "smoke" else "formal",
        problem=runs[0].facts.problem,  # as the runs call it: by its own name it could not be found again
        splits=splits,
        instances=settings.instances,
        behaviour_split=settings.behaviour_split,
        behaviour_instances=settings.behaviour_instances,
        timeout_s=settings.timeout_s,
        runs={run.path: sha256_file(run.directory / COMPLETIONS) for run in runs},
        files={},
        source=source(),
        environment=environment(),
        isolation={},
    )

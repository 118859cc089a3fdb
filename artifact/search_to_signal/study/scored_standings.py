"""Held-out scores of the best programs of packed cohorts: made, kept beside the evidence, and checked.

Those of the best program of each condition stand in one file. Those of all other final bests, which take
longer, stand in a second one, where somebody asked for them.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isclose
from pathlib import Path

import msgspec

from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.base.progress import Progress
from search_to_signal.layers.heldout.layer import first_instances
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import heldout_splits
from search_to_signal.problems.tsp import known_heuristics, known_scores
from search_to_signal.records.files import write_atomically
from search_to_signal.records.heldout import ProgramScores
from search_to_signal.records.layers import COHORT
from search_to_signal.records.plan import PLAN, read_plan
from search_to_signal.records.reader import read_records
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.programs import sha256_text
from search_to_signal.sandbox.settings import EvaluationSettings
from search_to_signal.study import unpacking
from search_to_signal.study.container import list_evidence, packed_results, packed_runs
from search_to_signal.study.standings import (
    SPLITS,
    FinalBest,
    FoundProgram,
    ScoredProgram,
    best_programs,
    find_final_bests,
    scores_by_place,
)

PROBLEM = "tsp"


def score_programs(
    codes: Mapping[str, str], timeout_s: float, count: int | None, progress: Progress, slots: int = 1
) -> Iterator[ProgramScores]:
    """Yield the scores of programs, given by the hash of their text, split by split.

    ``count`` is the number of instances of each split, the first ones; None for all. ``timeout_s`` is the
    processor time of a program on one split, ``slots`` the number of programs that are evaluated at once.
    Raises SandboxError where isolation cannot be had.
    """
    problem, names = get_problem(PROBLEM), list(codes)
    limits = EvaluationSettings(timeout_s=timeout_s, replay="off", slots=slots)
    for split in heldout_splits(problem):
        with EvaluationPool(first_instances(problem, count), split, limits) as pool:
            for start in range(0, len(names), slots):
                batch = names[start : start + slots]
                results = pool.evaluate([codes[sha256] for sha256 in batch])
                progress.update(f"{PROBLEM}/{split}", start + len(batch), len(names))
                for sha256, result in zip(batch, results, strict=True):
                    yield ProgramScores(
                        code_sha256=sha256,
                        split=split,
                        outcome=result.outcome,
                        detail=result.detail,
                        scores=result.per_instance,
                        timeout_s=timeout_s,
                    )


FILE = "heldout/programs.jsonl"
"""Below the evidence of a plan, whose list has it."""
FINALS = "heldout/finals.jsonl"
"""The scores of all final bests that are not in the other file."""
# What a stop may lose is the work of minutes.
_PROGRAMS_PER_SLOT = 4
# Another processor may round the last bits of a length otherwise.
_TOLERANCE = 1e-9


def read_scores(root: Path, name: str = FILE) -> tuple[ProgramScores, ...] | None:
    """Return the recorded scores of a plan's best programs, of one file; None where none were made.

    Raises RecordError for a line that cannot be read.
    """
    file = root / name
    return tuple(read_records(file, ProgramScores)) if file.is_file() else None


def other_finals(finals: Sequence[FinalBest], found: Sequence[FoundProgram]) -> list[FinalBest]:
    """Return the final bests whose program is the best one of no condition."""
    best = {program.sha256 for program in found}
    return [final for final in finals if final.sha256 not in best]


def score_best_programs(
    root: Path, timeout_s: float, slots: int, every_final: bool, progress: Progress
) -> Path:
    """Score the best program of each condition of packed evidence; returns the directory of the scores.

    With ``every_final``, or where that was done before, the final best of every run too. Recorded scores are
    kept, new ones written a few programs at a time, and the files listed. ``slots`` programs are evaluated at
    once. Raises RunDirectoryError for damaged evidence, ConfigError where it has no best program, and
    SandboxError where isolation cannot be had.
    """
    found, finals = _packed_programs(root, progress)
    if not found:
        raise ConfigError(f"{root} has no cohort of tsp that keeps its heuristics: there is nothing to score")
    wanted: dict[str, Sequence[ScoredProgram]] = {FILE: found}
    if every_final or (root / FINALS).is_file():
        wanted[FINALS] = other_finals(finals, found)
    codes = {final.sha256: final.code for final in finals}
    needed = dict.fromkeys(program.sha256 for programs in wanted.values() for program in programs)
    scores = scores_by_place((*known_scores(), *all_scores(root)))
    lacking = [sha256 for sha256 in needed if any((sha256, split) not in scores for split in SPLITS)]
    size = _PROGRAMS_PER_SLOT * slots
    for start in range(0, len(lacking), size):
        progress.say(f"{len(lacking) - start} programs to score")
        part = {sha256: codes[sha256] for sha256 in lacking[start : start + size]}
        scores |= scores_by_place(score_programs(part, timeout_s, None, progress, slots))
        _write_scores(root, wanted, scores)
    if not lacking:
        _write_scores(root, wanted, scores)
    return (root / FILE).parent


def _write_scores(
    root: Path, wanted: Mapping[str, Sequence[ScoredProgram]], scores: Mapping[tuple[str, str], ProgramScores]
) -> None:
    (root / FILE).parent.mkdir(exist_ok=True)
    for name, programs in wanted.items():
        listed = dict.fromkeys(program.sha256 for program in programs)
        places = ((sha256, split) for split in SPLITS for sha256 in listed)
        lines = [msgspec.json.encode(scores[place]) + b"\n" for place in places if place in scores]
        write_atomically(root / name, b"".join(lines))
    list_evidence(root)


def all_scores(root: Path) -> tuple[ProgramScores, ...]:
    """The recorded scores of every program of packed evidence; empty before s2s standings made them."""
    return (*(read_scores(root) or ()), *(read_scores(root, FINALS) or ()))


def recomputed_differences(root: Path, count: int, slots: int, progress: Progress) -> list[str]:
    """Score every recorded program again on the first ``count`` instances; returns the differences.

    Those of the field are among them. Raises as ``score_best_programs``, and RunDirectoryError where no
    scores are recorded.
    """
    if read_scores(root) is None:
        raise RunDirectoryError(f"{root} has no {FILE}: s2s standings {root} makes it")
    found, finals = _packed_programs(root, progress)
    names = {sha256_text(known.program): (known.name, known.program) for known in known_heuristics()}
    if (root / FINALS).is_file():
        # Of runs that found the same program the first gives the name.
        names |= {final.sha256: (final.name, final.code) for final in reversed(finals)}
    names |= {program.sha256: (program.name, program.final.code) for program in found}
    scores = scores_by_place((*known_scores(), *all_scores(root)))
    limit = max(scored.timeout_s for scored in scores.values())
    codes = {sha256: code for sha256, (_, code) in names.items()}
    again = score_programs(codes, limit, count, progress, slots)
    return [
        line
        for scored in again
        for line in _differences(
            names[scored.code_sha256][0], scored, scores.get((scored.code_sha256, scored.split))
        )
    ]


def _differences(name: str, again: ProgramScores, recorded: ProgramScores | None) -> Iterator[str]:
    if recorded is None:
        yield f"{name} has no scores on {again.split}"
        return
    if not recorded.scores and recorded.detail == again.detail:
        return
    first = recorded.scores[: len(again.scores)]
    if again.outcome is not recorded.outcome or len(first) != len(again.scores):
        yield f"{name} on {again.split}: recorded {recorded.outcome.value}, now {again.outcome.value}"
    for number, (old, new) in enumerate(zip(first, again.scores, strict=False), start=1):
        if not isclose(old, new, rel_tol=_TOLERANCE):
            yield f"{name} on {again.split}, instance {number}: recorded {old}, now {new}"


def _packed_programs(root: Path, progress: Progress) -> tuple[list[FoundProgram], list[FinalBest]]:
    """The best programs of packed cohorts, over whole seeds, and the final bests of all runs.

    Raises RunDirectoryError for missing or damaged evidence.
    """
    if not packed_results(root):
        raise RunDirectoryError(f"{root} holds no packed evidence: s2s pack makes it")
    if damaged := unpacking.damages(root):
        raise RunDirectoryError("; ".join(damaged))
    profiles = read_plan(root / PLAN.name).profiles
    with unpacking.unpacked_apart(root) as top:
        for packed in (root / name for name in profiles if (root / name).is_dir()):
            names = [name for name in packed_runs(packed) if name.startswith(f"{COHORT}/")]
            unpacking.unpack_runs(packed, top / packed.name, names, (), False, progress)
            unpacking.unpack_rest(packed, top / packed.name)
        finals = find_final_bests(top, profiles)
        for packed in packed_results(root):
            unpacking.keep_whole_seeds(top / packed.name)
        return best_programs(top, finals), finals

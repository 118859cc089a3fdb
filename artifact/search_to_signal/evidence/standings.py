"""Held-out scores of the best programs of packed cohorts: made, kept beside the evidence, and checked."""

from collections.abc import Iterator
from math import isclose
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from search_to_signal.analysis.plan.standings import SPLITS, FoundProgram, find_best_programs, scores_by_place
from search_to_signal.errors import ConfigError, RunDirectoryError
from search_to_signal.evidence.layout import list_evidence, packed_results, packed_runs
from search_to_signal.evidence.unpacking import damages, keep_whole_seeds, unpack_rest, unpack_runs
from search_to_signal.problems.known_heuristics import known_heuristics, known_scores
from search_to_signal.programs.canonical import sha256_text
from search_to_signal.progress import Progress
from search_to_signal.records.files import write_atomically
from search_to_signal.records.heldout import ProgramScores
from search_to_signal.records.layers import COHORT
from search_to_signal.records.plan import PLAN, read_plan
from search_to_signal.records.reader import read_records
from search_to_signal.studies.standings import score_programs

FILE = "heldout/programs.jsonl"
"""Below the evidence of a plan, whose list has it."""
# Another processor may round the last bits of a length otherwise.
_TOLERANCE = 1e-9


def read_scores(root: Path) -> tuple[ProgramScores, ...] | None:
    """Return the recorded scores of a plan's best programs; None where none were made.

    Raises RecordError for a line that cannot be read.
    """
    file = root / FILE
    return tuple(read_records(file, ProgramScores)) if file.is_file() else None


def score_best_programs(root: Path, timeout_s: float, progress: Progress) -> Path:
    """Score the best program of each condition of packed evidence, and list the file; returns it.

    Recorded scores are kept. Raises RunDirectoryError for damaged evidence, ConfigError where it has no
    best program, SandboxError where isolation cannot be had.
    """
    codes = {program.sha256: program.code for program in _packed_best_programs(root, progress)}
    if not codes:
        raise ConfigError(f"{root} has no cohort of tsp that keeps its heuristics: there is nothing to score")
    scores = scores_by_place((*known_scores(), *(read_scores(root) or ())))
    lacking = {
        sha256: code
        for sha256, code in codes.items()
        if any((sha256, split) not in scores for split in SPLITS)
    }
    if lacking:
        scores |= scores_by_place(score_programs(lacking, timeout_s, None, progress))
    lines = [msgspec.json.encode(scores[sha256, split]) + b"\n" for split in SPLITS for sha256 in codes]
    (root / FILE).parent.mkdir(exist_ok=True)
    write_atomically(root / FILE, b"".join(lines))
    list_evidence(root)
    return root / FILE


def recomputed_differences(root: Path, count: int, progress: Progress) -> list[str]:
    """Score every program of the standings again on the first ``count`` instances; returns the differences.

    Those of the field are among them. Raises as ``score_best_programs``, and RunDirectoryError where no
    scores are recorded.
    """
    recorded = read_scores(root)
    if recorded is None:
        raise RunDirectoryError(f"{root} has no {FILE}: s2s standings {root} makes it")
    names = {sha256_text(known.program): (known.name, known.program) for known in known_heuristics()}
    names |= {
        program.sha256: (program.name, program.code) for program in _packed_best_programs(root, progress)
    }
    scores = scores_by_place((*known_scores(), *recorded))
    limit = max(scored.timeout_s for scored in scores.values())
    again = score_programs({sha256: code for sha256, (_, code) in names.items()}, limit, count, progress)
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


def _packed_best_programs(root: Path, progress: Progress) -> list[FoundProgram]:
    """The best programs of packed cohorts; raises RunDirectoryError for missing or damaged evidence."""
    if not packed_results(root):
        raise RunDirectoryError(f"{root} holds no packed evidence: s2s pack makes it")
    if damaged := damages(root):
        raise RunDirectoryError("; ".join(damaged))
    profiles = read_plan(root / PLAN.name).profiles
    with TemporaryDirectory(prefix="s2s-") as temporary:
        top = Path(temporary)
        for packed in (root / name for name in profiles if (root / name).is_dir()):
            names = [name for name in packed_runs(packed) if name.startswith(f"{COHORT}/")]
            unpack_runs(packed, top / packed.name, names, (), False, progress)
            unpack_rest(packed, top / packed.name)
            keep_whole_seeds(top / packed.name)
        return find_best_programs(top, profiles)

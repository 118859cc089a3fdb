"""Check a results directory without trusting whoever made it."""

from dataclasses import dataclass
from pathlib import Path

from search_to_signal.errors import RunDirectoryError
from search_to_signal.provenance.blocks import explain_changes
from search_to_signal.provenance.checksums import SUMS, listed_files, nested_problems, sum_problems
from search_to_signal.records.files import special_files
from search_to_signal.records.manifest import read_manifest, runs_below
from search_to_signal.verification.consistency.completion_texts import ParsedTexts
from search_to_signal.verification.consistency.layers import lineage_problems
from search_to_signal.verification.consistency.run_records import file_problems, record_problems


@dataclass(frozen=True)
class Verdict:
    """What was checked and every problem found, one line each."""

    files: int
    runs: int
    problems: tuple[str, ...]


def run_problems(run: Path, parsed: ParsedTexts) -> list[str]:
    """What manifest, records and adapter of one run contradict in each other; checksums are not looked at."""
    try:
        manifest = read_manifest(run)
    except RunDirectoryError as error:
        return [str(error)]
    if manifest.status != "complete":
        return [f"{run.name}: the run is not complete"]
    found = [*record_problems(run, manifest, parsed), *file_problems(run, manifest)]
    return [f"{run.name}: {problem}" for problem in found]


def _told(directory: Path) -> list[str]:
    problems = sum_problems(directory)
    where = explain_changes(directory, [name for name in problems if (directory / name).is_file()])
    return [
        f"{name}: {what}" + (f": {'; '.join(where[name])}" if where.get(name) else "")
        for name, what in problems.items()
    ]


def verify(directory: Path, *, programs: bool = False) -> Verdict:
    """Check every checksum, and the records of every run; raises RunDirectoryError where there is none.

    ``programs`` also hashes every program again, which takes longer than all the rest.
    """
    if not directory.is_dir():
        raise RunDirectoryError(f"there is no directory {directory}: check the path")
    special = special_files(directory).items()
    problems = [f"{name}: a {kind}: only regular files are read" for name, kind in special]
    told = _told(directory)
    problems += told or nested_problems(directory)
    runs = runs_below(directory)
    if not runs:
        raise RunDirectoryError(f"{directory} has {SUMS} but no run: check the path")
    parsed = ParsedTexts()
    for run in runs:
        problems += run_problems(run, parsed)
    problems += parsed.program_problems() if programs else ()
    problems += lineage_problems(directory, parsed)
    return Verdict(len(listed_files(directory)), len(runs), tuple(dict.fromkeys(problems)))

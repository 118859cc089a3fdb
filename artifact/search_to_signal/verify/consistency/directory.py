"""Verification of a results directory by its own files: checksums, records, and the layers' lineage."""

from collections.abc import Iterator
from pathlib import Path

from search_to_signal.base.errors import RunDirectoryError
from search_to_signal.records.adapters import unfit_names, unshipped, why_left_out
from search_to_signal.records.checksums import SUMS, listed_files, nested_problems, sum_problems
from search_to_signal.records.files import refuse_special_files
from search_to_signal.records.manifest import read_manifest, runs_below
from search_to_signal.records.seal import BLOCKS, explain_changes, is_block_index
from search_to_signal.verify.consistency.completion_texts import ParsedTexts
from search_to_signal.verify.consistency.layers import lineage_findings
from search_to_signal.verify.consistency.run_records import file_problems, record_problems
from search_to_signal.verify.findings import Finding, VerificationResult, distinct_lines


def verify(directory: Path, *, programs: bool = False) -> VerificationResult:
    """Check every checksum, the records of every run, and the layers against each other.

    Files that were left out of a pack, and named so by ``s2s unpack``, are findings that are not compared.
    ``programs`` also hashes every program again, which takes longer than all other checks together. The
    result counts ``files`` and ``runs``. Raises RunDirectoryError where the directory, its list of checksums
    or every run is missing, and for what ``refuse_special_files`` names.
    """
    if not directory.is_dir():
        raise RunDirectoryError(f"there is no directory {directory}: check the path")
    refuse_special_files(directory)
    changed = _checksum_findings(directory)
    findings = list(changed)
    if not any(finding.compared for finding in changed):
        findings += [Finding("", problem) for problem in nested_problems(directory)]
    findings += [Finding("", problem) for problem in unfit_names(directory)]
    runs = runs_below(directory)
    if not runs:
        raise RunDirectoryError(f"{directory} has {SUMS} but no run: check the path")
    parsed = ParsedTexts()
    for run in runs:
        findings += consistency_findings(run, parsed)
    if programs:
        findings += [Finding("", problem) for problem in parsed.program_problems()]
    findings += lineage_findings(directory, parsed)
    counts = {"files": len(listed_files(directory)), "runs": len(runs)}
    return VerificationResult(distinct_lines(findings), counts)


def consistency_findings(run: Path, parsed: ParsedTexts) -> Iterator[Finding]:
    """Yield the contradictions between manifest, records and adapter of one run; checksums are not read.

    ``parsed`` carries parsed texts from one run to the next. Raises nothing for damaged files: an unreadable
    one is a finding.
    """
    try:
        manifest = read_manifest(run)
    except RunDirectoryError as error:
        yield Finding("", str(error))
        return
    if manifest.status != "complete":
        yield Finding(run.name, "the run is not complete")
        return
    for problem in (*record_problems(run, manifest, parsed), *file_problems(run, manifest)):
        yield Finding(run.name, problem)


def _checksum_findings(directory: Path) -> list[Finding]:
    problems, excuses = sum_problems(directory), _excuses(directory)
    changed = [name for name in problems if name not in excuses and (directory / name).is_file()]
    details = {
        name: f": {'; '.join(places)}"
        for name, places in explain_changes(directory, changed).items()
        if places
    }
    return [
        Finding(name, excuses[name], compared=False)
        if name in excuses
        else Finding(name, problem + details.get(name, ""))
        for name, problem in problems.items()
    ]


def _excuses(directory: Path) -> dict[str, str]:
    """Why files may differ from the list, by name: they were not shipped, or index what is here."""
    excuses = {name: why_left_out(name) or "" for name in unshipped(directory)}
    index = directory / BLOCKS
    if excuses and index.is_file() and is_block_index(directory):
        excuses[BLOCKS] = "the index of those files that are here, made as they were unpacked"
    return excuses

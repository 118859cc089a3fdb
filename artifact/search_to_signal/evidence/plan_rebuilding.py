"""The evidence of one plan: tables, figures and pages rebuilt from records, compared with shipped tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from search_to_signal.analysis.figures.course import COURSE, courses_of
from search_to_signal.analysis.page.facts import read_facts
from search_to_signal.analysis.page.plan import (
    PlanSummary,
    build_plan_summary,
    format_primary_answers,
    write_plan_report,
)
from search_to_signal.analysis.page.summary import PageFinding, build_findings
from search_to_signal.analysis.plan.standings import (
    FinalBest,
    FoundProgram,
    Standings,
    best_programs,
    build_beside_seed,
    build_standings,
    find_final_bests,
    score_problems,
)
from search_to_signal.analysis.report import FIGURES, HTML, write_evidence
from search_to_signal.analysis.results import NoTableError, Results
from search_to_signal.analysis.tables.catalogue import read_evidence
from search_to_signal.claims.report import write_ledger
from search_to_signal.claims.tables import first_of, load_report
from search_to_signal.errors import RunDirectoryError
from search_to_signal.evidence.layout import list_evidence, packed_runs
from search_to_signal.evidence.plan_checks import plan_problems
from search_to_signal.evidence.standings import FILE, FINALS, other_finals, read_scores
from search_to_signal.evidence.tables import cell_differences, table_differences
from search_to_signal.evidence.unpacking import keep_whole_seeds, unpack_rest, unpack_runs, unpacked_apart
from search_to_signal.progress import Progress
from search_to_signal.records.amendments import Amendment, closed_studies, read_amendments
from search_to_signal.records.awaited import awaited_runs, closed_layers, missing_runs
from search_to_signal.records.conditions import split_run_name
from search_to_signal.records.files import read_regular, write_atomically
from search_to_signal.records.manifest import REPORT, planned_runs, runs_below
from search_to_signal.records.partial import Partial, write_partial
from search_to_signal.records.plan import PLAN, Plan, plan_sha256, read_plan
from search_to_signal.runtime import mapped
from search_to_signal.studies.implementation import implementation

_TABLES = "*.csv"


@dataclass(frozen=True)
class PlanRebuild:
    """The page of a plan, problems of its files and tables, and remarks about incomplete parts.

    ``answers`` are the primary comparisons of each recorded study, a heading and a pipe table each.
    """

    page: Path
    problems: tuple[str, ...]
    remarks: tuple[str, ...]
    answers: tuple[str, ...]
    summary: PlanSummary
    courses: Mapping[str, str]

    @property
    def leads(self) -> bool:
        """Whether the first study has answers, and every seed: one that was closed short has no verdict."""
        first = self.summary.plan.studies[0].key
        outcomes = [outcome for outcome in self.summary.outcomes if outcome.study.key == first]
        return bool(self.answers) and not any(outcome.pending or outcome.closed_short for outcome in outcomes)


class OtherPlans(NamedTuple):
    """Other plans' pages by title, relative to a plan's own, and the CSVs of earlier cohorts' courses."""

    pages: Mapping[str, str]
    courses: Mapping[str, str]


class _ProfileReport(NamedTuple):
    """A profile's answers, or the reason why it has no tables, and whether that is a problem."""

    findings: list[PageFinding]
    reason: str = ""
    wrong: bool = False


class _Reports(NamedTuple):
    """What the restored records of a plan gave.

    ``reports`` are by profile, ``found`` is the best program of each condition, ``finals`` that of each run,
    ``lacking`` the layers with missing runs by profile.
    """

    summary: PlanSummary
    reports: Mapping[str, _ProfileReport]
    found: list[FoundProgram]
    finals: list[FinalBest]
    embedded: bool
    lacking: Mapping[str, Partial]
    problems: list[str]
    remarks: list[str]


def rebuild_plan(
    root: Path, out: Path, names: Sequence[str], others: OtherPlans, progress: Progress, ship: bool
) -> PlanRebuild:
    """Rebuild tables, figures and pages of checked evidence into an empty directory.

    ``names`` are its packed directories. ``ship`` writes the rebuilt tables over the shipped ones. Raises
    RunDirectoryError for damaged evidence.
    """
    plan = read_plan(root / PLAN.name)
    amendments = read_amendments(root / PLAN.name, plan)
    if ship:
        list_evidence(root)
    records = _write_reports(root, out, names, plan, amendments, progress)
    summary, reports, problems, remarks = records.summary, records.reports, records.problems, records.remarks
    reported = [name for name in plan.profiles if name in reports and not reports[name].reason]
    answered = next((name for name in reported if reports[name].findings), "")
    survived: Sequence[PageFinding] = reports[answered].findings if answered else []
    pages = {name: f"../{name}/{HTML}" for name in reported}
    courses = _courses(plan, root, out)
    drawn = {**courses, **others.courses} if courses else {}
    standings, unscored, remark = _build_standings(root, records, plan.analysis.level)
    problems += unscored
    remarks += [remark] if remark else []
    page = write_plan_report(
        summary, out / REPORT, survived, pages, others.pages, records.embedded, drawn, standings, answered
    )
    tables, sources = first_of({name: load_report(out / name) for name in reported})
    lacking = {name: records.lacking[name] for name in sources}
    write_ledger(out / REPORT, implementation(), tables, awaited_runs(lacking))
    remarks += [summary.counts] if summary.partial or summary.closed else []
    if ship:
        _ship_tables(root, out, names)
    problems += _compare_tables(root, out, names)
    answers = tuple(format_primary_answers(summary))
    return PlanRebuild(page, tuple(problems), tuple(remarks), answers, summary, courses)


def _write_reports(
    root: Path,
    out: Path,
    names: Sequence[str],
    plan: Plan,
    amendments: tuple[Amendment, ...],
    progress: Progress,
) -> _Reports:
    """Restore the packed records, and write the report of each profile."""
    closed = closed_studies(amendments)
    sha256 = plan_sha256(root / PLAN.name)
    with unpacked_apart(root) as top, unpacked_apart(root) as apart:
        lacking = {
            name: _restore(root / name, top / name, closed_layers(plan, closed, name), progress)
            for name in names
        }
        remarks = [f"{name}: {partial.words}" for name, partial in lacking.items() if partial.gaps]
        summary = build_plan_summary(top, plan, sha256, closed, amendments)
        problems = list(plan_problems(root, top, plan, sha256, summary.outcomes))
        embedded = read_facts(top).embedded
        finals = find_final_bests(top, [name for name in plan.profiles if name in names])
        for name in names:
            keep_whole_seeds(top / name, apart / name)
        found = best_programs(top, finals)
        tasks = [(top / name, apart / name, out / name) for name in names]
        reports = dict(zip(names, mapped(_write_tables, tasks), strict=True))
    for name, report in reports.items():
        progress.say(f"{name}: {report.reason or 'tables, figures and page made again'}")
        if report.reason:
            (problems if report.wrong else remarks).append(f"{name}: {report.reason}")
    return _Reports(summary, reports, found, finals, embedded, lacking, problems, remarks)


def _build_standings(root: Path, records: _Reports, level: float) -> tuple[Standings | None, list[str], str]:
    """The standings of the best programs, their problems, and a remark where scores were not made."""
    found, scores, others = records.found, read_scores(root), read_scores(root, FINALS)
    if scores is None:
        command = f"no {FILE}: s2s standings sets the best programs beside those of the field"
        return None, [], command if found else ""
    problems = [f"{FILE}: {line}" for line in score_problems(found, scores)]
    standings = build_standings(found, scores)
    if others is not None:
        unlisted = other_finals(records.finals, found)
        problems += [f"{FINALS}: {line}" for line in score_problems(unlisted, others)]
        beside_seed = build_beside_seed(records.finals, (*scores, *others), level)
        standings = replace(standings, beside_seed=beside_seed)
    return standings, problems, ""


def _course_file(results: Path) -> Path:
    return results / FIGURES / f"{COURSE.name}.csv"


def _courses(plan: Plan, root: Path, out: Path) -> dict[str, str]:
    """The CSVs of the cohorts that are planned with the conditions of the plan's first one, by profile."""
    files = {name: _course_file(out / name) for name in plan.profiles}
    first = _planned_conditions(root / plan.studies[0].profiles[0])
    return {
        name: read_regular(path).decode()
        for name, path in files.items()
        if path.is_file() and _planned_conditions(root / name) == first
    }


def _planned_conditions(packed: Path) -> set[str]:
    return {split_run_name(Path(name).name)[0] for name in planned_runs(packed)}


def _restore(packed: Path, out: Path, closed: Mapping[str, str], progress: Progress) -> Partial:
    """Unpack the files that tables need, and mark incomplete layers; returns these."""
    names = packed_runs(packed)
    unpack_runs(packed, out, names, (), tokens=False)
    unpack_rest(packed, out)
    progress.say(f"{packed.name}: {len(names)} runs have the bytes of their lists")
    partial = missing_runs(packed, names, closed)
    if partial.gaps:
        write_partial(out, partial)
    return partial


def _write_tables(task: tuple[Path, Path, Path]) -> _ProfileReport:
    """Write the tables of one directory; runs that are there and cannot stand in one are a problem.

    Where no seed is whole, the runs that lie ``apart`` have at least their course.
    """
    directory, apart, out = task
    try:
        evidence = read_evidence(directory, apart)
        write_evidence(evidence, out)
    except NoTableError as error:
        if not runs_below(apart):
            return _ProfileReport([], f"no tables: {error}")
        runs = Results(directory, apart).finished
        path = _course_file(out)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, courses_of(runs).encode())
        return _ProfileReport([], "no tables, but a course: no seed has all its runs yet")
    except RunDirectoryError as error:
        reason = f"no tables: {error}".replace(str(directory), directory.name)
        return _ProfileReport([], reason, wrong=bool(runs_below(directory)))
    return _ProfileReport(build_findings(evidence))


def _ship_tables(root: Path, out: Path, names: Sequence[str]) -> None:
    for shipped, rebuilt in _report_directories(root, out, names):
        for old in list(shipped.rglob(_TABLES)):
            made = rebuilt / old.relative_to(shipped)
            # A table that differs in last bits alone stays: those are another processor's.
            if not made.is_file() or any(cell_differences(old, made)):
                old.unlink()
        for made in sorted(rebuilt.rglob(_TABLES)):
            copied = shipped / made.relative_to(rebuilt)
            if not copied.exists():
                copied.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(copied, read_regular(made))
    list_evidence(root)


def copy_files(source: Path, out: Path) -> None:
    """Copy the files below a directory to the same places below another."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            copied = out / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(copied, read_regular(path))


def _report_directories(root: Path, out: Path, names: Sequence[str]) -> list[tuple[Path, Path]]:
    return [(root / REPORT, out / REPORT), *((root / name / REPORT, out / name) for name in names)]


def _compare_tables(root: Path, out: Path, names: Sequence[str]) -> Iterator[str]:
    for shipped, rebuilt in _report_directories(root, out, names):
        if not shipped.is_dir():
            # Records without a whole seed give no table to ship.
            if any(rebuilt.rglob(_TABLES)):
                yield f"{shipped.relative_to(root)}: no tables are shipped: s2s rebuild --ship writes them"
        else:
            where = shipped.relative_to(root).as_posix()
            yield from (f"{where}/{line}" for line in table_differences(shipped, rebuilt))

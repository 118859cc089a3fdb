"""Shipped evidence of all plans: tables, figures and pages rebuilt from records and compared."""

import csv
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.base.processes import mapped
from search_to_signal.base.progress import Progress
from search_to_signal.claims.page import write_ledger
from search_to_signal.claims.settings import implementation
from search_to_signal.claims.tables import first_of, load_report
from search_to_signal.records.amendments import (
    Partial,
    awaited_runs,
    closed_layers,
    closed_studies,
    missing_runs,
    read_amendments,
    write_partial,
)
from search_to_signal.records.checksums import SUMS, read_sums
from search_to_signal.records.conditions import split_run_name
from search_to_signal.records.files import read_regular, write_atomically
from search_to_signal.records.heldout import ProgramScores
from search_to_signal.records.manifest import REPORT, planned_runs, runs_below
from search_to_signal.records.plan import PLAN, Plan, evidence_roots, plan_sha256, read_plan
from search_to_signal.report.build import FIGURES, write_evidence
from search_to_signal.report.build import HTML as PROFILE_PAGE
from search_to_signal.report.figures.cohort import COURSE, COURSES, courses_of
from search_to_signal.report.results import NoTableError, Results
from search_to_signal.report.summary import PageFinding, build_findings, read_facts
from search_to_signal.report.tables.catalogue import read_evidence
from search_to_signal.study import unpacking
from search_to_signal.study.container import FILES, list_evidence, packed_results, packed_runs
from search_to_signal.study.page import (
    HTML,
    PlanSummary,
    build_plan_summary,
    format_primary_answers,
    write_plan_report,
)
from search_to_signal.study.plan_checks import plan_problems, planned_orders, table_problems
from search_to_signal.study.scored_standings import FILE, FINALS, all_scores, other_finals, read_scores
from search_to_signal.study.standings import (
    FinalBest,
    FoundProgram,
    Standings,
    best_programs,
    build_beside_seed,
    build_standings,
    find_final_bests,
    score_problems,
)

_LONG_FORM = ["row", "column", "value", "spread", "n"]
# The last bits of a mean depend on the processor.
_TOLERANCE = 1e-9


def table_differences(shipped: Path, rebuilt: Path) -> Iterator[str]:
    """Yield the differences of the CSV tables below two directories, a line each with both values."""
    shipped_names = {path.relative_to(shipped).as_posix() for path in shipped.rglob("*.csv")}
    rebuilt_names = {path.relative_to(rebuilt).as_posix() for path in rebuilt.rglob("*.csv")}
    for name in sorted(shipped_names | rebuilt_names):
        if name not in rebuilt_names:
            yield f"{name}: shipped, and the records give no such table"
        elif name not in shipped_names:
            yield f"{name}: the records give it, and it is not shipped"
        else:
            yield from (f"{name}: {line}" for line in cell_differences(shipped / name, rebuilt / name))


def cell_differences(shipped: Path, rebuilt: Path) -> Iterator[str]:
    """Yield the differences of two CSV tables, a line each with both values; last bits are none."""
    if read_regular(shipped) == read_regular(rebuilt):
        return
    try:
        shipped_cells, rebuilt_cells = (_read_cells(path) for path in (shipped, rebuilt))
    except (csv.Error, UnicodeDecodeError) as error:
        yield f"it is not a table ({error})"
        return
    for place in {**shipped_cells, **rebuilt_cells}:
        first, second = (cells.get(place, "(absent)") for cells in (shipped_cells, rebuilt_cells))
        if not _equal(first, second):
            yield f"{place}: shipped {first} | rebuilt {second}"


def _read_cells(path: Path) -> dict[str, str]:
    lines = StringIO(read_regular(path).decode(), newline="")
    head, *rows = list(csv.reader(lines)) or [[]]
    if head == _LONG_FORM:
        counts = Counter[str]()
        cells: dict[str, str] = {}
        for row in rows:
            where = " / ".join(row[:2])
            counts[where] += 1
            again = f" (line {counts[where]} of this name)" if counts[where] > 1 else ""
            cells |= {f"{where}{again}, {name}": text for name, text in _columns(head[2:], row[2:])}
            # A row that ends before its values would add no cell.
            cells |= {} if len(row) >= len(head) else {f"{where}{again}, cells": str(len(row))}
        return cells
    return {
        f"line {number}, {name}": text
        for number, row in enumerate([head, *rows], start=1)
        for name, text in _columns(head, row)
    }


def _columns(head: Sequence[str], row: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every text of a row with its column's name, or its number where the head is shorter."""
    for number, text in enumerate(row):
        yield head[number] if number < len(head) else f"column {number + 1}", text


def _equal(first: str, second: str) -> bool:
    if first == second:
        return True
    try:
        return math.isclose(float(first), float(second), rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    except ValueError:
        return False


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


class _ProfileReport(NamedTuple):
    findings: list[PageFinding]
    reason: str = ""
    wrong: bool = False


def rebuild_plan(
    root: Path,
    out: Path,
    names: Sequence[str],
    others: Mapping[str, str],
    earlier: Mapping[str, str],
    progress: Progress,
    ship: bool,
) -> PlanRebuild:
    """Rebuild tables, figures and pages of checked evidence into an empty directory.

    ``names`` are its packed directories, ``others`` pages of other plans by title, relative to its own, and
    ``earlier`` the CSVs of the courses of the cohorts before it, by profile. ``ship`` writes the rebuilt
    tables over the shipped ones. Raises RunDirectoryError for damaged evidence.
    """
    plan = read_plan(root / PLAN.name)
    amendments = read_amendments(root / PLAN.name, plan)
    if ship:
        list_evidence(root)
    closed, sha256 = closed_studies(amendments), plan_sha256(root / PLAN.name)
    with unpacking.unpacked_apart(root) as top, unpacking.unpacked_apart(root) as apart:
        lacking = {
            name: _restore(root / name, top / name, closed_layers(plan, closed, name), progress)
            for name in names
        }
        roots = [
            _restore_control(root, control, top / control, planned_orders(plan, control))
            for control in plan.controls
        ]
        summary = build_plan_summary(top, plan, sha256, closed, amendments)
        problems = list(plan_problems(root, top, plan, sha256, summary.outcomes))
        embedded = read_facts(top).embedded
        finals = find_final_bests(top, [name for name in plan.profiles if name in names])
        controls = find_final_bests(top, plan.controls)
        for name in names:
            unpacking.keep_whole_seeds(top / name, apart / name)
        found = best_programs(top, finals)
        tasks = [(top / name, apart / name, out / name) for name in names]
        reports = dict(zip(names, mapped(_write_tables, tasks), strict=True))
    remarks = [f"{name}: {partial.words}" for name, partial in lacking.items() if partial.gaps]
    for name, report in reports.items():
        progress.say(f"{name}: {report.reason or 'tables, figures and page made again'}")
        if report.reason:
            (problems if report.wrong else remarks).append(f"{name}: {report.reason}")
    reported = [name for name in plan.profiles if name in reports and not reports[name].reason]
    answered = next((name for name in reported if reports[name].findings), "")
    survived: Sequence[PageFinding] = reports[answered].findings if answered else []
    pages = {name: f"../{name}/{PROFILE_PAGE}" for name in reported}
    courses = _courses(plan, root, out)
    drawn = {**courses, **earlier} if courses else {}
    control_scores = [scored for other in dict.fromkeys(roots) for scored in all_scores(other)]
    standings, unscored = _build_standings(root, found, finals, controls, control_scores, plan.analysis.level)
    problems += unscored
    if standings is None and found:
        remarks.append(f"no {FILE}: s2s standings compares the best programs with published heuristics")
    page = write_plan_report(
        summary, out / REPORT, survived, pages, others, embedded, drawn, standings, answered
    )
    tables, sources = first_of({name: load_report(out / name) for name in reported})
    write_ledger(
        out / REPORT, implementation(), tables, awaited_runs({name: lacking[name] for name in sources})
    )
    remarks += [summary.counts] if summary.partial or summary.closed else []
    directories = [(root / REPORT, out / REPORT), *((root / name / REPORT, out / name) for name in names)]
    for shipped, rebuilt in directories:
        if ship:
            _ship_tables(shipped, rebuilt)
    if ship:
        list_evidence(root)
    for shipped, rebuilt in directories:
        where = shipped.relative_to(root).as_posix()
        if shipped.is_dir():
            problems += (f"{where}/{line}" for line in table_differences(shipped, rebuilt))
        elif any(rebuilt.rglob(_TABLES)):  # Records without a whole seed give no table to ship.
            problems.append(f"{where}: no tables are shipped: s2s rebuild --ship writes them")
    answers = tuple(format_primary_answers(summary))
    return PlanRebuild(page, tuple(problems), tuple(remarks), answers, summary, courses)


def _build_standings(
    root: Path,
    found: Sequence[FoundProgram],
    finals: Sequence[FinalBest],
    controls: Sequence[FinalBest],
    control_scores: Sequence[ProgramScores],
    level: float,
) -> tuple[Standings | None, list[str]]:
    """The standings of the best programs, None where they have no scores, and problems of scores."""
    scores, others = read_scores(root), read_scores(root, FINALS)
    if scores is None:
        return None, []
    problems = [f"{FILE}: {line}" for line in score_problems(found, scores)]
    standings = build_standings(found, scores)
    if others is not None:
        problems += [f"{FINALS}: {line}" for line in score_problems(other_finals(finals, found), others)]
        every = (*scores, *others, *control_scores)
        standings = replace(standings, beside_seed=build_beside_seed(finals, controls, every, level))
    return standings, problems


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
    unpacking.unpack_runs(packed, out, names, (), tokens=False)
    unpacking.unpack_rest(packed, out)
    progress.say(f"{packed.name}: {len(names)} runs have the bytes of their lists")
    partial = missing_runs(packed, names, closed)
    if partial.gaps:
        write_partial(out, partial)
    return partial


def _restore_control(root: Path, profile: str, out: Path, conditions: Sequence[Sequence[str]]) -> Path:
    """Unpack the runs of another plan that questions compare with, and return where that plan is.

    Raises RunDirectoryError without such runs.
    """
    plans = (plan for plan in evidence_roots(root.parent) if plan != root)
    packed = next((plan / profile for plan in plans if (plan / profile / FILES).is_file()), None)
    if packed is None:
        raise RunDirectoryError(
            f"{root / PLAN.name} compares with runs of {profile}, which no other plan here has packed: "
            "rebuild the whole evidence"
        )
    asked = {run for runs in conditions for run in runs}
    names = [name for name in packed_runs(packed) if name in asked]
    unpacking.unpack_runs(packed, out, names, (), tokens=False)
    unpacking.unpack_rest(packed, out)
    return packed.parent


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


def _ship_tables(shipped: Path, rebuilt: Path) -> None:
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


def copy_files(source: Path, out: Path) -> None:
    """Copy the files below a directory to the same places below another."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            copied = out / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(copied, read_regular(path))


@dataclass(frozen=True)
class RebuildResult:
    """The plans' pages, problems of files and tables, and remarks about incomplete parts.

    ``answers`` are the primary comparisons of each recorded study, a heading and a pipe table each. The last
    plan whose first study is completely recorded comes first.
    """

    pages: tuple[Path, ...]
    problems: tuple[str, ...]
    remarks: tuple[str, ...]
    answers: tuple[str, ...]


def rebuild(
    root: Path, out: Path, progress: Progress, ship: bool = False, readme: Path | None = None
) -> RebuildResult:
    """Check packed evidence, rebuild its tables, figures and pages below ``out``, and compare the tables.

    The evidence of a further plan goes to the directory of the same name below ``out``. With ``ship`` the
    rebuilt tables become the shipped ones. ``readme`` has to contain the first table of a plan: of the last
    one whose first study is completely recorded. Files that are below ``out`` already are neither compared
    nor removed. Raises RunDirectoryError where nothing is packed below ``root``, and where packed files are
    missing, truncated or changed, naming each, or where a plan is; ConfigError where ``out`` lies in
    ``root``, and where ``root`` is that of a further plan, whose figure stands beside the cohorts of those
    before it.
    """
    # Without its plan every file of a list would be a problem.
    for directory in (root, *(path.parent for path in sorted(root.glob(f"*/{SUMS}")))):
        listed = (directory / SUMS).is_file() and PLAN.name in read_sums(directory)
        if listed and not (directory / PLAN.name).is_file():
            raise RunDirectoryError(f"{directory} has no {PLAN.name}, which its {SUMS} lists: restore it")
    above = root.resolve().parent
    if (root / PLAN.name).is_file() and (above / PLAN.name).is_file():
        raise ConfigError(
            f"{root} is a further plan of {above}, made together with the plans before it: give {above}"
        )
    packed = {plan: _checked_names(plan, out, plan == root) for plan in evidence_roots(root)}
    _refuse_moved_plan(root)
    progress.say(f"{sum(map(len, packed.values()))} packed directories have the bytes of their list")
    with TemporaryDirectory(prefix="s2s-") as temporary:
        top = Path(temporary)
        outputs = {plan: top / plan.relative_to(root) for plan, names in packed.items() if names}
        pages = {plan: output / REPORT / HTML for plan, output in outputs.items()}
        titles = {plan: read_plan(plan / PLAN.name).title for plan in pages}
        rebuilds: dict[Path, PlanRebuild] = {}
        for plan, output in outputs.items():
            earlier = {name: text for rebuilt in rebuilds.values() for name, text in rebuilt.courses.items()}
            others = {
                titles[other]: Path(os.path.relpath(page, pages[plan].parent)).as_posix()
                for other, page in pages.items()
                if other != plan
            }
            rebuilds[plan] = rebuild_plan(plan, output, packed[plan], others, earlier, progress, ship)
        copy_files(top, out)
    problems, remarks = list[str](), list[str]()
    for plan in packed:
        if plan not in rebuilds:
            remarks.append(f"{plan.name}: nothing of this plan is packed yet")
    for plan, rebuilt in rebuilds.items():
        # A further plan is told by its directory.
        own = plan == root
        problems += (line if own else f"{plan.name}/{line}" for line in rebuilt.problems)
        remarks += (line if own else f"{plan.name}: {line}" for line in rebuilt.remarks)
    # The last plan whose first study is completely recorded comes before the others.
    leading = [rebuilt for rebuilt in rebuilds.values() if rebuilt.leads][-1:]
    ordered = [*leading, *(rebuilt for rebuilt in rebuilds.values() if rebuilt not in leading)]
    first = [rebuilt.answers[0] for rebuilt in ordered if rebuilt.answers]
    if readme is not None and first:
        problems += table_problems(readme, first, first[0] if leading else first[-1])
    return RebuildResult(
        tuple(out / rebuilt.page.relative_to(top) for rebuilt in ordered),
        tuple(problems),
        tuple(remarks),
        tuple(answer for rebuilt in ordered for answer in rebuilt.answers),
    )


def _refuse_moved_plan(root: Path) -> None:
    """Raise ConfigError for a further plan that was taken from those before it, by its shipped figure."""
    courses = root / REPORT / FIGURES / f"{COURSES}.csv"
    if not courses.is_file():
        return
    head, *rows = read_regular(courses).decode(errors="replace").splitlines() or [""]
    shown = {row.partition(",")[0] for row in rows} if head.startswith("cohort,") else set()
    if missing := shown.difference(read_plan(root / PLAN.name).profiles):
        raise ConfigError(
            f"{root} is a further plan without the one before it, which has the profiles "
            f"{', '.join(sorted(missing))}: put it back into the evidence that it is from, and give that"
        )


def _checked_names(root: Path, out: Path, required: bool) -> list[str]:
    packed = packed_results(root)
    if root in packed:
        raise RunDirectoryError(
            f"{root} holds {FILES} itself: give the directory above it, which has the plan"
        )
    if out.resolve().is_relative_to(root.resolve()):
        raise ConfigError(f"{out} is inside the evidence that is checked: give another --out")
    if not packed and required:
        raise RunDirectoryError(f"{root} holds no packed evidence: s2s pack makes it")
    if packed and (damaged := unpacking.damages(root)):
        raise RunDirectoryError("; ".join(damaged))
    return [directory.name for directory in packed]

"""Shipped evidence of all plans: tables, figures and pages rebuilt from records and compared."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from search_to_signal.analysis.figures.course import COURSES
from search_to_signal.analysis.page.plan import HTML
from search_to_signal.analysis.report import FIGURES
from search_to_signal.errors import ConfigError, RunDirectoryError
from search_to_signal.evidence.layout import FILES, packed_results
from search_to_signal.evidence.plan_checks import table_problems
from search_to_signal.evidence.plan_rebuilding import OtherPlans, PlanRebuild, copy_files, rebuild_plan
from search_to_signal.evidence.unpacking import damages
from search_to_signal.progress import Progress
from search_to_signal.provenance.checksums import SUMS, read_sums
from search_to_signal.records.files import read_regular
from search_to_signal.records.manifest import REPORT
from search_to_signal.records.plan import PLAN, evidence_roots, read_plan


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
    _refuse_missing_plan(root)
    _refuse_further_plan(root)
    packed = {plan: _checked_names(plan, out, plan == root) for plan in evidence_roots(root)}
    _refuse_moved_plan(root)
    progress.say(f"{sum(map(len, packed.values()))} packed directories have the bytes of their list")
    with TemporaryDirectory(prefix="s2s-") as temporary:
        top = Path(temporary)
        outputs = {plan: top / plan.relative_to(root) for plan, names in packed.items() if names}
        pages = {plan: output / REPORT / HTML for plan, output in outputs.items()}
        rebuilds: dict[Path, PlanRebuild] = {}
        for plan, output in outputs.items():
            earlier = {name: text for rebuilt in rebuilds.values() for name, text in rebuilt.courses.items()}
            others = OtherPlans(_other_pages(pages, plan), earlier)
            rebuilds[plan] = rebuild_plan(plan, output, packed[plan], others, progress, ship)
        copy_files(top, out)
    unrecorded = [plan.name for plan in packed if plan not in rebuilds]
    problems = [
        line for plan, rebuilt in rebuilds.items() for line in _prefixed(root, plan, "/", rebuilt.problems)
    ]
    remarks = [f"{name}: nothing of this plan is packed yet" for name in unrecorded]
    remarks += [
        line for plan, rebuilt in rebuilds.items() for line in _prefixed(root, plan, ": ", rebuilt.remarks)
    ]
    ordered = _leading_first(list(rebuilds.values()))
    if readme is not None:
        problems += _readme_problems(readme, ordered)
    return RebuildResult(
        tuple(out / rebuilt.page.relative_to(top) for rebuilt in ordered),
        tuple(problems),
        tuple(remarks),
        tuple(answer for rebuilt in ordered for answer in rebuilt.answers),
    )


def _leading_first(rebuilds: Sequence[PlanRebuild]) -> list[PlanRebuild]:
    """Put the last plan whose first study is completely recorded before the others."""
    leading = [rebuilt for rebuilt in rebuilds if rebuilt.leads][-1:]
    return [*leading, *(rebuilt for rebuilt in rebuilds if rebuilt not in leading)]


def _prefixed(root: Path, plan: Path, separator: str, lines: Sequence[str]) -> Iterator[str]:
    """Lines about a plan's evidence, with the directory of a further plan in front."""
    yield from (line if plan == root else f"{plan.name}{separator}{line}" for line in lines)


def _other_pages(pages: Mapping[Path, Path], plan: Path) -> dict[str, str]:
    """The pages of the other plans by title, relative to the page of this one."""
    return {
        read_plan(other / PLAN.name).title: Path(os.path.relpath(page, pages[plan].parent)).as_posix()
        for other, page in pages.items()
        if other != plan
    }


def _readme_problems(readme: Path, rebuilds: Sequence[PlanRebuild]) -> Iterator[str]:
    """``rebuilds`` are in the order in which they are shown."""
    first = [rebuilt.answers[0] for rebuilt in rebuilds if rebuilt.answers]
    if first:
        required = first[0] if rebuilds[0].leads else first[-1]
        yield from table_problems(readme, first, required)


def _refuse_missing_plan(root: Path) -> None:
    """Raise RunDirectoryError for a list whose plan is missing: every file below it would be a problem."""
    for directory in (root, *(path.parent for path in sorted(root.glob(f"*/{SUMS}")))):
        listed = (directory / SUMS).is_file() and PLAN.name in read_sums(directory)
        if listed and not (directory / PLAN.name).is_file():
            raise RunDirectoryError(f"{directory} has no {PLAN.name}, which its {SUMS} lists: restore it")


def _refuse_further_plan(root: Path) -> None:
    above = root.resolve().parent
    if (root / PLAN.name).is_file() and (above / PLAN.name).is_file():
        raise ConfigError(
            f"{root} is a further plan of {above}, made together with the plans before it: give {above}"
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
            f"{root} is a further plan without the one before it, which is that of "
            f"{', '.join(sorted(missing))}: put it back into the evidence that it is from, and give that"
        )


def _checked_names(root: Path, out: Path, required: bool) -> list[str]:
    """The names of the packed directories of a plan, checked; raises as ``rebuild``."""
    packed = packed_results(root)
    if root in packed:
        raise RunDirectoryError(f"{root} holds {FILES} itself: give the directory above, where the plan lies")
    if out.resolve().is_relative_to(root.resolve()):
        raise ConfigError(f"{out} lies in the evidence that is checked: give another --out")
    if not packed and required:
        raise RunDirectoryError(f"{root} holds no packed evidence: s2s pack makes it")
    if packed and (damaged := damages(root)):
        raise RunDirectoryError("; ".join(damaged))
    return [directory.name for directory in packed]

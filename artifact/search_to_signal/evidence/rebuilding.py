"""All that is shown of the shipped evidence, made again from its records and held against what ships."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from search_to_signal.analysis.page.plan import primary_answers, tell, write_plan_report
from search_to_signal.analysis.page.story import Finding, findings
from search_to_signal.analysis.report import HTML, write_evidence
from search_to_signal.analysis.results import NoTableError
from search_to_signal.analysis.tables.catalogue import read_evidence
from search_to_signal.claims.report import write_ledger
from search_to_signal.claims.tables import first_of, load_report
from search_to_signal.errors import ConfigError, RunDirectoryError
from search_to_signal.evidence.packing import (
    FILES,
    list_evidence,
    packed_results,
    packed_runs,
    planned_runs,
)
from search_to_signal.evidence.planned import plan_problems, table_problems
from search_to_signal.evidence.tables import table_differences
from search_to_signal.evidence.unpacking import damages, keep_whole_seeds, unpack_rest, unpack_runs
from search_to_signal.experiments.implementation import implementation
from search_to_signal.progress import Progress
from search_to_signal.records.files import write_atomically
from search_to_signal.records.manifest import REPORT
from search_to_signal.records.partial import Partial, write_partial
from search_to_signal.records.plan import PLAN, plan_sha256, read_plan
from search_to_signal.runtime import mapped

_TABLES = "*.csv"


@dataclass(frozen=True)
class Rebuilt:
    """What came of it: the page, problems of files and tables, and sentences about what is not complete.

    ``answers`` are the primary comparisons of each recorded study, a heading and a pipe table each.
    """

    page: Path
    problems: tuple[str, ...]
    remarks: tuple[str, ...]
    answers: tuple[str, ...]


def rebuild(
    root: Path, out: Path, progress: Progress, ship: bool = False, readme: Path | None = None
) -> Rebuilt:
    """Check packed evidence, make its tables, figures and pages below ``out``, and compare the tables.

    With ``ship`` the tables made now become the shipped ones; ``readme`` is to hold the first study's. What
    lies below ``out`` already is neither compared nor removed. Raises RunDirectoryError where nothing is
    packed below ``root``, and where a packed file is missing, cut or changed, naming every one.
    """
    names = _checked(root, out)
    progress.say(f"{len(names)} packed directories have the bytes of their list")
    with TemporaryDirectory(prefix="s2s-") as temporary:
        made = Path(temporary)
        found = _rebuilt(root, made, names, progress, ship, readme)
        _copy(made, out)
    return replace(found, page=out / found.page.relative_to(made))


def _rebuilt(
    root: Path, out: Path, names: Sequence[str], progress: Progress, ship: bool, readme: Path | None
) -> Rebuilt:
    """``rebuild`` of evidence that was checked, into an empty directory."""
    plan = read_plan(root / PLAN.name)
    if ship:
        list_evidence(root)
    with TemporaryDirectory(prefix="s2s-") as temporary:
        top = Path(temporary)
        remarks = [line for name in names for line in _restore(root / name, top / name, progress)]
        sha256 = plan_sha256(root / PLAN.name)
        problems = list(plan_problems(root, top, plan, sha256))
        story = tell(top, plan, sha256)
        for name in names:
            keep_whole_seeds(top / name)
        tasks = [(top / name, out / name) for name in names]
        reports = dict(zip(names, mapped(_report, tasks), strict=True))
    for name, (_, reason) in reports.items():
        progress.say(f"{name}: {reason or 'tables, figures and page made again'}")
        remarks += [f"{name}: {reason}"] if reason else []
    order = dict.fromkeys(name for study in plan.studies for name in study.profiles)
    told = [name for name in order if name in reports and not reports[name][1]]
    survived: Sequence[Finding] = next((reports[name][0] for name in told if reports[name][0]), [])
    page = write_plan_report(story, out / REPORT, survived, {name: f"../{name}/{HTML}" for name in told})
    write_ledger(out / REPORT, implementation(), first_of([load_report(out / name) for name in told]))
    remarks += [story.counts] if story.partial else []
    if ship:
        _ship(root, out, names)
    problems += _differences(root, out, names)
    answers = primary_answers(story)
    if readme is not None and answers:
        problems += table_problems(readme, answers[0])
    return Rebuilt(page, tuple(problems), tuple(remarks), tuple(answers))


def _checked(root: Path, out: Path) -> list[str]:
    """The names of the packed directories; raises as ``rebuild``."""
    found = packed_results(root)
    if root in found:
        raise RunDirectoryError(f"{root} holds {FILES} itself: give the directory above, where the plan lies")
    if not found:
        raise RunDirectoryError(f"{root} holds no packed evidence: s2s pack makes it")
    if out.resolve().is_relative_to(root.resolve()):
        raise ConfigError(f"{out} lies in the evidence that is checked: give another --out")
    if damaged := damages(root):
        raise RunDirectoryError("; ".join(damaged))
    return [packed.name for packed in found]


def _restore(packed: Path, out: Path, progress: Progress) -> list[str]:
    """Unpack what tables need, and mark what is incomplete; returns sentences about that."""
    names = packed_runs(packed)
    unpack_runs(packed, out, names, (), tokens=False)
    unpack_rest(packed, out)
    progress.say(f"{packed.name}: {len(names)} runs have the bytes of their lists")
    planned = len({*planned_runs(packed), *names})
    if planned == len(names):
        return []
    mark = Partial(len(names), planned)
    write_partial(out, mark)
    return [f"{packed.name}: {mark.words}"]


def _report(task: tuple[Path, Path]) -> tuple[list[Finding], str]:
    """What the tables of one directory answer, or why there are none."""
    directory, out = task
    try:
        evidence = read_evidence(directory)
        write_evidence(evidence, out)
    except NoTableError as error:
        return [], f"no tables: {error}"
    except RunDirectoryError as error:
        return [], f"no tables: {error}".replace(str(directory), directory.name)
    return findings(evidence), ""


def _ship(root: Path, out: Path, names: Sequence[str]) -> None:
    for shipped, made in _places(root, out, names):
        for old in shipped.rglob(_TABLES):
            old.unlink()
        _copy(made, shipped, _TABLES)
    list_evidence(root)


def _copy(source: Path, out: Path, pattern: str = "*") -> None:
    for path in sorted(source.rglob(pattern)):
        if path.is_file():
            place = out / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, path.read_bytes())


def _places(root: Path, out: Path, names: Sequence[str]) -> list[tuple[Path, Path]]:
    return [(root / REPORT, out / REPORT), *((root / name / REPORT, out / name) for name in names)]


def _differences(root: Path, out: Path, names: Sequence[str]) -> Iterator[str]:
    for shipped, made in _places(root, out, names):
        if not shipped.is_dir():
            yield f"{shipped.relative_to(root)}: no tables are shipped: s2s rebuild --ship writes them"
        else:
            where = shipped.relative_to(root).as_posix()
            yield from (f"{where}/{line}" for line in table_differences(shipped, made))

"""All that is shown of the shipped evidence, made again from its records and held against what ships."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from search_to_signal.analysis.page.plan import HTML
from search_to_signal.errors import ConfigError, RunDirectoryError
from search_to_signal.evidence.packing import FILES, packed_results
from search_to_signal.evidence.planned import table_problems
from search_to_signal.evidence.remaking import Remade, copy_files, remake
from search_to_signal.evidence.roots import evidence_roots
from search_to_signal.evidence.unpacking import damages
from search_to_signal.progress import Progress
from search_to_signal.records.manifest import REPORT
from search_to_signal.records.plan import PLAN, read_plan


@dataclass(frozen=True)
class Rebuilt:
    """What came of it: the plans' pages, problems of files and tables, and what is not complete.

    ``answers`` are the primary comparisons of each recorded study, a heading and a pipe table each.
    """

    pages: tuple[Path, ...]
    problems: tuple[str, ...]
    remarks: tuple[str, ...]
    answers: tuple[str, ...]


def rebuild(
    root: Path, out: Path, progress: Progress, ship: bool = False, readme: Path | None = None
) -> Rebuilt:
    """Check packed evidence, make its tables, figures and pages below ``out``, and compare the tables.

    What lies in a directory with a plan of its own below ``root`` goes to that directory below ``out``. With
    ``ship`` the tables made now become the shipped ones. ``readme`` is to hold the first table of a plan: of
    the last one whose first study waits for no seed. What lies below ``out`` already is neither compared nor
    removed. Raises RunDirectoryError where nothing is packed below ``root``, and where a packed file is
    missing, cut or changed, naming every one.
    """
    packed = {place: _checked(place, out, place == root) for place in evidence_roots(root)}
    progress.say(f"{sum(map(len, packed.values()))} packed directories have the bytes of their list")
    with TemporaryDirectory(prefix="s2s-") as temporary:
        made = Path(temporary)
        places = {place: made / place.relative_to(root) for place, names in packed.items() if names}
        pages = {place: there / REPORT / HTML for place, there in places.items()}
        told = {
            place: remake(place, there, packed[place], _others(pages, place), progress, ship)
            for place, there in places.items()
        }
        copy_files(made, out)
    waiting = [f"{place.name}: nothing of this plan is packed yet" for place in packed if place not in told]
    problems = [line for place, one in told.items() for line in _placed(root, place, "/", one.problems)]
    problems += list(_readme_problems(readme, list(told.values()))) if readme is not None else []
    return Rebuilt(
        tuple(out / one.page.relative_to(made) for one in told.values()),
        tuple(problems),
        (
            *waiting,
            *(line for place, one in told.items() for line in _placed(root, place, ": ", one.remarks)),
        ),
        tuple(answer for one in told.values() for answer in one.answers),
    )


def _placed(root: Path, place: Path, mark: str, lines: Sequence[str]) -> Iterator[str]:
    """Lines about the evidence of a further plan, behind its directory."""
    yield from (line if place == root else f"{place.name}{mark}{line}" for line in lines)


def _others(pages: Mapping[Path, Path], place: Path) -> dict[str, str]:
    """The pages of the other plans by title, relative to that of this one."""
    return {
        read_plan(other / PLAN.name).title: Path(os.path.relpath(page, pages[place].parent)).as_posix()
        for other, page in pages.items()
        if other != place
    }


def _readme_problems(readme: Path, told: Sequence[Remade]) -> Iterator[str]:
    first = [one.answers[0] for one in told if one.answers]
    leading = [one.answers[0] for one in told if one.leads] or first
    if first:
        yield from table_problems(readme, first, leading[-1])


def _checked(root: Path, out: Path, required: bool) -> list[str]:
    """The names of the packed directories; raises as ``rebuild``."""
    found = packed_results(root)
    if root in found:
        raise RunDirectoryError(f"{root} holds {FILES} itself: give the directory above, where the plan lies")
    if out.resolve().is_relative_to(root.resolve()):
        raise ConfigError(f"{out} lies in the evidence that is checked: give another --out")
    if not found and required:
        raise RunDirectoryError(f"{root} holds no packed evidence: s2s pack makes it")
    if found and (damaged := damages(root)):
        raise RunDirectoryError("; ".join(damaged))
    return [packed.name for packed in found]

"""Tables, figures, audit and search draws of a results directory, made again from its records and compared.

Nothing here loads a model. What another version of the source made is not compared: it may round otherwise.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from search_to_signal.analysis.tables.matched import matched_page
from search_to_signal.errors import RunDirectoryError, S2SError
from search_to_signal.provenance.blocks import BLOCKS, block_index
from search_to_signal.provenance.checksums import listed_files
from search_to_signal.provenance.png import image_sha256
from search_to_signal.provenance.ro_crate import CRATE, describe_crate
from search_to_signal.provenance.source import source
from search_to_signal.records.anchor import CONTRACT, formula, read_contract
from search_to_signal.records.layers import ANCHOR, AUDIT, COHORT, UPDATES
from search_to_signal.records.manifest import REPORT, read_manifest, runs_below
from search_to_signal.studies.example_tours import tour_problems
from search_to_signal.studies.layers.normalizer_replay import audit_results
from search_to_signal.studies.reproduction import write_report
from search_to_signal.verification.recompute.draws import draw_problems

MATCHED = "matched.md"
# Of the crate: when it was published, and the title that somebody gave.
_FREE = ("datePublished", "name")


def other_source(directory: Path) -> bool:
    """Whether a run of the directory was made by another version of the source than this one."""
    try:
        sources = {read_manifest(run).source.sha256 for run in runs_below(directory)}
    except RunDirectoryError:
        return True
    return sources != {source().sha256}


def rebuilt_problems(directory: Path) -> Iterator[str]:
    """What differs from what the records give, one line each; runs of this source only (``other_source``).

    What is made fastest comes first, for those who stop at the first line.
    """
    with tempfile.TemporaryDirectory(prefix="s2s-") as temporary:
        parts = (
            _packaging(directory),
            _pages(directory),
            tour_problems(directory),
            _draws(directory),
            _audit(directory, Path(temporary) / AUDIT),
            _report(directory, Path(temporary) / REPORT),
        )
        for part in parts:
            yield from _errors_as_lines(part)


def _errors_as_lines(part: Iterator[str]) -> Iterator[str]:
    try:
        yield from part
    except (S2SError, OSError) as error:
        yield str(error)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # Records that contradict each other break the arithmetic of a table; verify names the records.
        yield f"it cannot be made again from these records ({type(error).__name__}: {error})"


def _draws(directory: Path) -> Iterator[str]:
    for run in runs_below(directory):
        try:
            yield from (f"{run.relative_to(directory)}: {problem}" for problem in draw_problems(run))
        except S2SError as error:
            yield f"{run.relative_to(directory)}: {error}"


def _audit(directory: Path, out: Path) -> Iterator[str]:
    if not (directory / COHORT).is_dir() or not (directory / AUDIT).is_dir():
        return
    audit_results(directory, out)
    runs = {run.relative_to(directory / AUDIT).parts[0] for run in runs_below(directory / AUDIT)}
    yield from _differences(directory / AUDIT, out, runs)


def _report(directory: Path, out: Path) -> Iterator[str]:
    if (directory / REPORT).is_dir():
        write_report(directory, out)
        yield from _differences(directory / REPORT, out, set())


def _differences(recorded: Path, made: Path, other: set[str]) -> Iterator[str]:
    """Files that differ, are missing or are too many; folders in ``other`` hold runs and are left alone."""
    found = {p.relative_to(recorded).as_posix() for p in listed_files(recorded)}
    found = {name for name in found if name.split("/")[0] not in other}
    due = {p.relative_to(made).as_posix() for p in listed_files(made)}
    for name in sorted(found ^ due):
        yield f"{recorded.name}/{name}: {'missing' if name in due else 'not what these records give'}"
    for name in sorted(found & due):
        digest = image_sha256 if name.endswith(".png") else Path.read_bytes
        if digest(recorded / name) != digest(made / name):
            yield f"{recorded.name}/{name}: differs from what the records give"


def _pages(directory: Path) -> Iterator[str]:
    page = directory / UPDATES / MATCHED
    if page.is_file() and page.read_text(encoding="utf-8") != matched_page(page.parent):
        yield f"{UPDATES}/{MATCHED}: differs from what the records give"
    if (directory / ANCHOR / CONTRACT).is_file():
        contract = read_contract(directory / ANCHOR)
        if contract.formula != formula(contract.clock):
            yield f"{ANCHOR}/{CONTRACT}: the formula is not the one that budgets follow from"


def _packaging(directory: Path) -> Iterator[str]:
    crate = directory / CRATE
    if crate.is_file() and _described(crate.read_bytes()) != _described(describe_crate(directory, "")):
        yield f"{CRATE}: differs from what the directory holds"
    if (directory / BLOCKS).is_file() and (directory / BLOCKS).read_bytes() != block_index(directory):
        yield f"{BLOCKS}: it is not the index of these files"


def _described(data: bytes) -> object:
    """The graph of a crate without what only whoever sealed it knows."""
    found = json.loads(data)
    for entity in found["@graph"]:
        if entity["@id"] == "./":
            for name in _FREE:
                entity.pop(name, None)
    return found

"""Tables, figures, audit and search draws of a results directory, rebuilt from its records and compared.

No model is loaded. Results of another version of the source are not compared: it may round differently.
"""

import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from search_to_signal.base.errors import RunDirectoryError, S2SError
from search_to_signal.layers.audit.layer import audit_results, has_rounds
from search_to_signal.layers.reproduction import tour_problems, write_report
from search_to_signal.layers.updates.tables import matched_page
from search_to_signal.problems import PROBLEMS
from search_to_signal.records import checksums
from search_to_signal.records.adapters import unshipped
from search_to_signal.records.anchor import CONTRACT, formula, read_contract
from search_to_signal.records.differences import Finding
from search_to_signal.records.files import read_regular
from search_to_signal.records.layers import ANCHOR, AUDIT, COHORT, UPDATES
from search_to_signal.records.manifest import REPORT, Manifest, read_manifest, runs_below
from search_to_signal.records.provenance import source
from search_to_signal.records.reader import HEURISTICS
from search_to_signal.run.replayed import (
    Replay,
    final_population,
    host_search,
    recorded_groups,
    recorded_population,
    recorded_start,
    run_config,
)
from search_to_signal.run.texts import prompt_differs
from search_to_signal.search.hosts import HOSTS
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.verify.recompute import database_findings
from search_to_signal.verify.records import Follower


def search_draw_findings(run: Path) -> Iterator[Finding]:
    """Yield where a run's records are not those that its seed and the recorded scores give.

    Runs of third-party hosts and problems are skipped, since their code is not executed. Raises ConfigError
    for settings of another version, RecordError for files that cannot be read.
    """
    manifest = read_manifest(run)
    built_in = manifest.host in HOSTS and not manifest.of_host.own_loop
    if manifest.facts.problem not in PROBLEMS or not built_in or not has_rounds(run):
        return
    config = run_config(manifest)
    host = HOSTS[config.host](config.host_setup)
    if not _has_parents_population(run, manifest, config.search):
        yield Finding("", "the population that it was given is not the one that its parent ends with")
    search = host_search(host, config)
    follower = Follower(Replay(search, recorded_start(run, search), manifest.facts))
    for recorded in recorded_groups(run):
        asked = partial(
            prompt_differs, recorded.generation.prompt, settings=config.generation, tokenizer=None
        )
        yield from follower.findings(recorded, asked)
    yield from database_findings(run, host, follower.state)


def _has_parents_population(run: Path, manifest: Manifest, settings: SearchSettings) -> bool:
    """Whether a given population is the last archive of the run's parent; true without the parent (D45)."""
    population, parent = recorded_population(run), manifest.facts.parent
    if not population or parent is None or not (run / parent.run / HEURISTICS).is_file():
        return True
    return final_population(run / parent.run, settings) == population


MATCHED = "matched.md"
# Fields of the crate that no record determines: date of publication and title.
_FREE_CRATE_FIELDS = ("datePublished", "name")


def other_source(directory: Path) -> bool:
    """Whether another version of the source made a run of the directory, or a run cannot be read."""
    try:
        sources = {read_manifest(run).source.sha256 for run in runs_below(directory)}
    except RunDirectoryError:
        return True
    return sources != {source().sha256}


def table_findings(directory: Path) -> Iterator[Finding]:
    """Rebuild what follows from the records, fastest parts first, and yield each difference.

    The directory has to come from this version of the source (see ``other_source``). Raises nothing for
    damaged records: an error of a part is a finding, and ends the part.
    """
    with tempfile.TemporaryDirectory(prefix="s2s-") as temporary:
        parts = (
            _packaging_findings(directory),
            _page_findings(directory),
            (Finding("", problem) for problem in tour_problems(directory)),
            _search_draw_findings(directory),
            _audit_findings(directory, Path(temporary) / AUDIT),
            _report_findings(directory, Path(temporary) / REPORT),
        )
        for part in parts:
            yield from _with_errors(part)


def _with_errors(part: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from part
    except (S2SError, OSError) as error:
        yield Finding("", str(error))
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        # Contradictory records break the arithmetic of a table; the consistency checks name the records.
        text = f"it cannot be made again from these records ({type(error).__name__}: {error})"
        yield Finding("", text)


def _search_draw_findings(directory: Path) -> Iterator[Finding]:
    for run in runs_below(directory):
        where = str(run.relative_to(directory))
        try:
            yield from (finding.within(where) for finding in search_draw_findings(run))
        except S2SError as error:
            yield Finding(where, str(error))


def _audit_findings(directory: Path, out: Path) -> Iterator[Finding]:
    if not (directory / COHORT).is_dir() or not (directory / AUDIT).is_dir():
        return
    audit_results(directory, out)
    runs = {run.relative_to(directory / AUDIT).parts[0] for run in runs_below(directory / AUDIT)}
    yield from _compare_files(directory / AUDIT, out, runs)


def _report_findings(directory: Path, out: Path) -> Iterator[Finding]:
    if (directory / REPORT).is_dir():
        write_report(directory, out)
        yield from _compare_files(directory / REPORT, out, set())


def _compare_files(recorded: Path, rebuilt: Path, run_folders: set[str]) -> Iterator[Finding]:
    """Recorded files that differ, are missing or are surplus; ``run_folders`` are not compared."""
    actual = {p.relative_to(recorded).as_posix() for p in checksums.listed_files(recorded)}
    actual = {name for name in actual if name.split("/")[0] not in run_folders}
    expected = {p.relative_to(rebuilt).as_posix() for p in checksums.listed_files(rebuilt)}
    for name in sorted(actual ^ expected):
        text = "missing" if name in expected else "not what these records give"
        yield Finding(f"{recorded.name}/{name}", text)
    for name in sorted(actual & expected):
        digest = checksums.image_sha256 if name.endswith(".png") else checksums.sha256_file
        if digest(recorded / name) != digest(rebuilt / name):
            yield Finding(f"{recorded.name}/{name}", "differs from what the records give")


def _page_findings(directory: Path) -> Iterator[Finding]:
    page = directory / UPDATES / MATCHED
    if page.is_file() and read_regular(page).decode() != matched_page(page.parent):
        yield Finding(f"{UPDATES}/{MATCHED}", "differs from what the records give")
    if (directory / ANCHOR / CONTRACT).is_file():
        contract = read_contract(directory / ANCHOR)
        if contract.formula != formula(contract.clock):
            yield Finding(f"{ANCHOR}/{CONTRACT}", "the formula is not the one that budgets follow from")


def _packaging_findings(directory: Path) -> Iterator[Finding]:
    crate = directory / checksums.CRATE
    if crate.is_file():
        recorded = _crate_content(read_regular(crate), unshipped(directory))
        made_again = _crate_content(checksums.describe_crate(directory, ""))
        if recorded != made_again:
            yield Finding(checksums.CRATE, "differs from what the directory holds")
    if (directory / checksums.BLOCKS).is_file() and not checksums.is_block_index(directory):
        yield Finding(checksums.BLOCKS, "it is not the index of these files")


def _crate_content(data: bytes, absent: frozenset[str] = frozenset()) -> object:
    crate = json.loads(data)
    crate["@graph"] = _without(crate["@graph"], absent)
    for entity in crate["@graph"]:
        if entity["@id"] == "./":
            entity["hasPart"] = _without(entity["hasPart"], absent)
            for name in _FREE_CRATE_FIELDS:
                entity.pop(name, None)
    return crate


def _without(entities: list[dict[str, object]], names: frozenset[str]) -> list[dict[str, object]]:
    return [entity for entity in entities if entity["@id"] not in names]

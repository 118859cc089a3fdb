"""Evidence layer "normalizer replay": whether reward differences survive group normalization.

It runs frozen searches on tasks that no live layer has, and replays the groups of all: the audit covers four
tasks, the live layers two (paper, Controlled Evaluation, Scope). No other table has these runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from search_to_signal.base.errors import ConfigError, IllFormedGroupError, RecordError
from search_to_signal.base.progress import Task
from search_to_signal.base.seeding import stream
from search_to_signal.credit import MAPPINGS, RewardMapping, get_mapping
from search_to_signal.credit.normalizers import DEFAULT, NORMALIZERS, find_normalizer, get_normalizer
from search_to_signal.layers.audit.tables import NO_EXPOSURE, audit_tables, csv_text, page
from search_to_signal.records.checksums import SUMS, read_sums, refuse_other_bytes
from search_to_signal.records.files import RecordWriter
from search_to_signal.records.groups import (
    EXPOSURES,
    ExposureRecord,
    batch_of,
    read_batches,
    read_exposures,
    record_files,
)
from search_to_signal.records.layers import AUDIT, BREADTH, COHORT
from search_to_signal.records.manifest import MANIFEST, read_manifest, run_directories, runs_below
from search_to_signal.records.reader import COMPLETIONS, GENERATIONS, HEURISTICS, STEPS, read_groups
from search_to_signal.report.metrics.replay import (
    EXPOSURE,
    Audit,
    asked_of_all,
    by_problem,
    exposure_tallies,
    summed,
    tally,
)
from search_to_signal.run.planned_runs import Reproduction, tasks_of
from search_to_signal.run.profile import Profile
from search_to_signal.run.replayed import AsRecorded, replayed
from search_to_signal.search.hosts.calm.host import exposures
from search_to_signal.search.hosts.calm.settings import SearchSettings


def tasks(profile: Profile) -> list[Task]:
    return tasks_of(chain(*profile.cell_runs(AUDIT).values()))


def run(reproduction: Reproduction) -> None:
    """Run every cell; raises RunDirectoryError when there are runs of a cell that the profile lacks."""
    reproduction.run_cells(AUDIT)


# Exposures of a recorded run under the alternative definitions of D13, from its records alone.

DRAWS = 1000
"""Draws of the Monte Carlo estimate, for a standard error of 0.016 at most."""
_NEEDED = (MANIFEST, COMPLETIONS, GENERATIONS, HEURISTICS, STEPS)


def has_rounds(run: Path) -> bool:
    """Whether a directory has the records that determine the search states of its groups."""
    return all((run / name).is_file() for name in _NEEDED) and "search" in read_manifest(run).config


def other_exposures(run: Path, name: str) -> Iterator[ExposureRecord]:
    """Yield one record per group of a run; raises RecordError for settings of another version."""
    manifest = read_manifest(run)
    try:
        settings = msgspec.convert(manifest.config["search"], SearchSettings)
    except msgspec.ValidationError as error:
        raise RecordError(f"{run} has search settings that this version cannot read: {error}") from error
    for played in replayed(run, AsRecorded(settings)):
        step = played.recorded.step.step
        rng = stream(manifest.facts.seed, "exposure", step)
        # Draws of the sampler are independent, so the number of hits is binomial with the exact probability.
        sampled = (
            r.exposure if r.exposure is None else rng.binomial(DRAWS, r.exposure) / DRAWS
            for r in played.recorded.group
        )
        unconditional = exposures(played.request.state, played.results, settings, unconditional=True)
        yield ExposureRecord(run=name, step=step, unconditional=unconditional, sampled=tuple(sampled))


PAGE = "audit.md"


def normalizers_of(inputs: Sequence[Path]) -> list[str]:
    """Return the normalizers that recorded runs were trained with, the paper's for records without manifest.

    Raises ConfigError for a third-party normalizer that was not allowed.
    """
    runs = [file.parent for file in record_files(inputs) if (file.parent / MANIFEST).is_file()]
    names = sorted({read_manifest(run).facts.normalizer for run in runs})
    for name in names:
        find_normalizer(name)
    return names or [DEFAULT]


def refuse_changed_inputs(inputs: Sequence[Path]) -> tuple[int, int]:
    """Compare recorded runs with their own checksum lists; returns how many have one, and how many do not.

    A record file from outside counts as one without. Raises RunDirectoryError that names a record file that
    is missing or changed, also one that no mapping reads, and RecordError as ``record_files`` does.
    """
    files = record_files(inputs)
    listed = [file for file in files if (file.parent / SUMS).is_file()]
    for file in listed:
        sums = read_sums(file.parent)
        # Below a run lies its adapter alone, which is no record.
        records = [name for name in sums if "/" not in name]
        refuse_other_bytes(file.parent, sums, dict.fromkeys([*records, file.name]))
    return len(listed), len(files) - len(listed)


def replay(
    inputs: Sequence[Path],
    out: Path,
    mappings: Sequence[str] | None,
    normalizers: Sequence[str],
    top: Path | None = None,
) -> Path:
    """Audit recorded groups under every mapping and normalizer; returns the page, next to its CSV files.

    ``inputs`` are run directories, directories of them, record files, or JSON Lines of third-party groups
    (records/group.schema.json). ``mappings`` and ``normalizers`` are names, entry points or pkg.mod:obj; the
    first normalizer is the page's main one. Without ``mappings`` all built-in ones are replayed whose inputs
    the records contain, and the page names the others. Alternative readings of a decision about one of the
    mappings are replayed with it. File names are relative to ``top``, by default the directory above ``out``.
    Raises ConfigError for an unknown name, RecordError for an unreadable input, IllFormedGroupError where a
    named mapping needs an input that a record lacks.
    """
    names = list(MAPPINGS) if mappings is None else mappings
    if not names or not normalizers:
        raise ConfigError("nothing to replay: name at least one mapping and one normalizer")
    files = record_files(inputs)
    mappings_by_name = {name: get_mapping(name) for name in names}
    normalizers_by_name = {name: get_normalizer(name) for name in normalizers}
    out.mkdir(parents=True, exist_ok=True)
    top = out.resolve().parent if top is None else top.resolve()
    # Of CALM's search alone exposures have alternative definitions.
    runs = {
        _relative_name(run, top): run
        for run in (file.parent for file in files)
        if EXPOSURE in mappings_by_name and has_rounds(run) and read_manifest(run).of_host.calm
    }
    (out / EXPOSURES).unlink(missing_ok=True)
    with RecordWriter(out / EXPOSURES) as records:
        for name, run in runs.items():
            for record in other_exposures(run, name):
                records.write(record)
    audits = (
        tally(problem, batch, mappings_by_name, normalizers_by_name) for problem, batch in read_batches(files)
    )
    result = summed(chain(audits, _exposure_audits(runs, out / EXPOSURES, mappings_by_name)))
    unasked = [name for name in mappings_by_name if name not in asked_of_all(result)]
    if unasked and mappings is not None:
        raise IllFormedGroupError(f"{', '.join(unasked)}: {NO_EXPOSURE}; name other mappings")
    tables = audit_tables(result, {})
    for name, table in tables.items():
        (out / f"{name}.csv").write_text(csv_text(table), encoding="utf-8")
    sizes = {_relative_name(file, top): file.stat().st_size for file in files}
    text = page(result, tables, sizes, default=normalizers[0], unasked=unasked)
    # A path of other bytes than UTF-8 is printed as the bytes that it has.
    (out / PAGE).write_text(text, encoding="utf-8", errors="surrogateescape")
    return out / PAGE


def audit_results(results: Path, out: Path) -> Path:
    """Audit the groups of a results directory under every normalizer and every applicable mapping.

    The normalizers that its runs were trained with come first. Returns and raises as ``replay``.
    """
    recorded = [
        *run_directories(results / COHORT),
        *runs_below(results / BREADTH),
        *runs_below(results / AUDIT),
    ]
    trained = normalizers_of(recorded) if recorded else []
    return replay(recorded, out, None, list(dict.fromkeys([*trained, *NORMALIZERS])), results)


def _exposure_audits(
    runs: Mapping[str, Path], file: Path, mappings: Mapping[str, RewardMapping]
) -> Iterator[Audit]:
    exposures = read_exposures(file)
    for name, run in runs.items():
        groups = list(read_groups(run))
        tallies = exposure_tallies(batch_of(groups), mappings, exposures[name])
        yield Audit({}, {}, {}, {}, by_problem(groups[0][0].problem, tallies))


def _relative_name(file: Path, top: Path) -> str:
    # Names relative to the results directory stay the same when it is moved.
    full = file.resolve()
    return str(full.relative_to(top)) if full.is_relative_to(top) else str(file)

"""Commands that read records: report, replay, compare and trace."""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.base.progress import counted, one_line, slow_progress
from search_to_signal.cli.options import AGAIN, Add, add_repeated, allow_code, load_allowed, show
from search_to_signal.records.files import storage_errors

if TYPE_CHECKING:
    from search_to_signal.report.comparison import DirectoryComparison, Metric
    from search_to_signal.report.tables.cells import Table

_LONGEST_SETTING = 30
_SHOWN_RUNS = 3


def _report(arguments: argparse.Namespace) -> None:
    """Make tables, figures and pages of a results directory."""
    from search_to_signal.layers.reproduction import write_report
    from search_to_signal.records.manifest import MANIFEST
    from search_to_signal.report.build import HTML
    from search_to_signal.study.container import refuse_packed

    load_allowed(arguments)
    refuse_packed(arguments.directory, "s2s report")
    if arguments.out is None and (arguments.directory / MANIFEST).is_file():
        raise ConfigError(
            f"{arguments.directory} is a single run and its checksums cover all its files: give --out PAGE, "
            "another directory for the report (which s2s claims --results PAGE reads)"
        )
    if arguments.out is None:
        _refuse_unallowed(arguments.directory)
        _refuse_listed(arguments.directory)
    out = arguments.out or arguments.directory / "report"
    with storage_errors(out, AGAIN):
        page = write_report(arguments.directory, out)
    show(page)
    print(f"s2s: open {page.with_name(HTML)} in a browser")
    print(f"s2s: report in {page.parent}")


def _refuse_unallowed(directory: Path) -> None:
    """Raise ConfigError for third-party code that was not allowed, whose tables a report would lack."""
    from search_to_signal.credit import find_mapping
    from search_to_signal.credit.normalizers import find_normalizer
    from search_to_signal.records.manifest import read_manifest, runs_below

    every = [read_manifest(run).facts for run in runs_below(directory)]
    try:
        for mapping in sorted({facts.mapping for facts in every if ":" in facts.mapping}):
            find_mapping(mapping)
        for normalizer in sorted({facts.normalizer for facts in every if ":" in facts.normalizer}):
            find_normalizer(normalizer)
    except ConfigError as error:
        raise ConfigError(f"{error}; or give --out for a report without these tables") from error


def _refuse_listed(directory: Path) -> None:
    """Raise ConfigError for a report that is checksummed and that this version would make otherwise.

    s2s run goes on with its own version alone: nobody could list the new report, or make the old one again.
    """
    from search_to_signal.records.checksums import SUMS
    from search_to_signal.records.manifest import read_manifest, runs_below
    from search_to_signal.records.provenance import source

    here = source().sha256
    if (directory / SUMS).is_file() and any(
        read_manifest(r).source.sha256 != here for r in runs_below(directory)
    ):
        raise ConfigError(
            f"{directory} already has a report, made by another version of the source, in its checksums: "
            "give --out PAGE, another directory for the new report"
        )


def _replay(arguments: argparse.Namespace) -> None:
    """Recompute rewards and advantages from records.

    Records have to match their run's SHA256SUMS. The recorded rewards and advantages are not compared: s2s
    verify does that.
    """
    from search_to_signal.layers.audit.layer import normalizers_of, refuse_changed_inputs, replay

    for directory in arguments.directories:
        if not directory.is_dir():
            raise RunDirectoryError(f"there is no directory {directory}: check the path")
    listed, unlisted = refuse_changed_inputs(arguments.directories)
    mappings = arguments.mapping or None
    normalizers = arguments.normalizer or normalizers_of(arguments.directories)
    with storage_errors(arguments.out, AGAIN):
        page = replay(arguments.directories, arguments.out, mappings, normalizers)
    show(page)
    without = f"; without a list: {counted(unlisted, 'record file')}" if unlisted else ""
    print(f"compared: the records of {counted(listed, 'run')} with their SHA256SUMS{without}")
    print("not compared: the recorded rewards and advantages (s2s verify compares them)")
    print(f"s2s: replay in {arguments.out}")


def _compare(arguments: argparse.Namespace) -> int:
    """Compare two results directories, or two runs: settings, metrics, and the first record that differs.

    Ends with 0 where settings and records are equal, with 1 where they differ.
    """
    from search_to_signal.report.comparison import compare
    from search_to_signal.study.container import refuse_packed

    for directory in (arguments.first, arguments.second):
        refuse_packed(directory, "s2s compare")
    comparison = compare(arguments.first, arguments.second)
    for line in _comparison_lines(comparison):
        print(one_line(line))
    counts = f"{len(comparison.settings)} settings and {len(comparison.records)} record files differ"
    state = "EQUAL" if comparison.equal else "DIFFERENT"
    print(f"s2s: {state}: {comparison.runs} runs in both, {counts}")
    return 0 if comparison.equal else 1


def _comparison_lines(comparison: "DirectoryComparison") -> Iterator[str]:
    for side, names in (("first", comparison.only_first), ("second", comparison.only_second)):
        yield from (f"only in the {side}: {name}" for name in names)
    for setting in comparison.settings:
        values = " | ".join(map(_shortened, (setting.first, setting.second)))
        yield f"setting {setting.name}: {values} ({_run_names(setting.runs)})"
    changed = [metric for metric in comparison.metrics if metric.first != metric.second]
    for metric in changed:
        numbers = " | ".join(map(_number, (metric.first, metric.second)))
        yield f"metric {metric.run} {metric.name}: {numbers}{_change(metric)}"
    metrics = len(comparison.metrics)
    yield f"{metrics - len(changed)} of {metrics} metrics are equal"
    for record in comparison.records:
        fields = ", ".join(record.fields) or "one of the files ends here, or the line is unreadable"
        yield f"first different record: {record.file}:{record.line}: {fields}"


def _change(metric: "Metric") -> str:
    if metric.first is None or metric.second is None:
        return ""
    return f" ({metric.second - metric.first:+.4f})"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SETTING else f"{text[:_LONGEST_SETTING]}..."


def _run_names(runs: tuple[str, ...]) -> str:
    rest = len(runs) - _SHOWN_RUNS
    return ", ".join(runs[:_SHOWN_RUNS]) + (f" and {rest} more runs" if rest > 0 else "")


def _trace(arguments: argparse.Namespace) -> None:
    """Print a number of a table, its formula and the records behind it."""
    if arguments.show < 0:
        raise ConfigError(f"--show {arguments.show}: give 0 or more record lines")
    load_allowed(arguments)
    from search_to_signal.report.tables.catalogue import unread_layers
    from search_to_signal.study.unpacking import readable

    unread = unread_layers(arguments.table or "")
    try:
        with ExitStack() as stack:
            with slow_progress("reading records") as progress:
                opened = readable(arguments.directory, progress=progress, left_out=unread)
                directory = stack.enter_context(opened)
                lines = _trace_lines(arguments, directory)
            for line in lines:
                print(line)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunDirectoryError(f"cannot read {error.filename}: {error.strerror}; restore it") from error


def _trace_lines(arguments: argparse.Namespace, directory: Path) -> Iterator[str]:
    from search_to_signal.records.plan import PLAN
    from search_to_signal.report.build import row_values, table_names, table_parts, trace_cell
    from search_to_signal.report.results import Results
    from search_to_signal.report.tables.catalogue import TRACED, build, catalogue
    from search_to_signal.study.unpacking import keep_whole_seeds

    planned = (arguments.directory / PLAN.name).is_file()
    if directory != arguments.directory and not planned:
        keep_whole_seeds(directory)
    if planned:
        table = _plan_table(arguments, directory)
    elif arguments.table is None:
        return table_names(catalogue(Results(directory), TRACED))
    else:
        table = build(Results(directory), arguments.table)
    if arguments.row is None:
        return table_parts(table)
    if arguments.column is None:
        return row_values(table, table.row(arguments.row))
    return trace_cell(table, arguments.row, arguments.column, directory, arguments.show)


def _plan_table(arguments: argparse.Namespace, directory: Path) -> "Table":
    """The outcomes of a plan, or what is asked besides, which is computed only where it is named."""
    from search_to_signal.records.amendments import closed_studies, read_amendments
    from search_to_signal.records.plan import PLAN, read_plan
    from search_to_signal.study.conclusions import add_exploratory_questions, split_exploratory
    from search_to_signal.study.formatting import (
        EXPLORATORY,
        NAME,
        build_exploratory_table,
        build_outcome_table,
    )
    from search_to_signal.study.verdicts import compute_outcomes

    path = arguments.directory / PLAN.name
    if arguments.table not in (None, NAME, EXPLORATORY):
        below = arguments.directory / "PROFILE"
        raise ConfigError(
            f"only the tables {NAME} and {EXPLORATORY} of a plan can be traced: the tables of a profile are "
            f"in {below}"
        )
    plan = read_plan(path)
    closed = closed_studies(read_amendments(path, plan))
    if arguments.table != EXPLORATORY:
        return build_outcome_table(compute_outcomes(directory, plan, closed), plan)
    found = compute_outcomes(directory, add_exploratory_questions(plan), closed)
    return build_exploratory_table(split_exploratory(plan, found)[1], plan)


def register(add: Add) -> None:
    page = add(_report, "s2s report results/embedded")
    page.add_argument("directory", type=Path, help="results directory")
    page.add_argument("--out", type=Path, help="where to write (default: DIRECTORY/report)")
    allow_code(page, "mapping", "normalizer")
    replay = add(_replay, "s2s replay results/embedded/cohort --out audit")
    replay.add_argument("directories", type=Path, nargs="+", help="runs, or directories of runs")
    add_repeated(replay, "--mapping", "name or pkg.mod:obj", otherwise="the paper's")
    add_repeated(replay, "--normalizer", "name or pkg.mod:obj", otherwise="the runs' own")
    replay.add_argument("--out", type=Path, required=True, help="where to write the audit")
    compare = add(_compare, "s2s compare results/embedded /mnt/other/results/embedded")
    compare.add_argument("first", type=Path, help="results directory, or run")
    compare.add_argument("second", type=Path, help="another of the same kind")
    trace = add(_trace, "s2s trace results/embedded core_results native 'Final best' --show 2")
    trace.add_argument("directory", type=Path, help="results directory, or shipped evidence")
    trace.add_argument("table", nargs="?", help="a table's name (default: list the tables)")
    trace.add_argument("row", nargs="?", help="a row's label (default: list rows and columns)")
    trace.add_argument("column", nargs="?", help="a column's heading (default: print the row)")
    allow_code(trace, "mapping", "normalizer")
    trace.add_argument("--show", type=int, default=0, metavar="N", help="print the first N records as well")

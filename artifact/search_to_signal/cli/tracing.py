"""The command that leads from a number of a table to its records."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from search_to_signal.cli.base import Add, allow_code, load_allowed
from search_to_signal.errors import ConfigError, RunDirectoryError


def _trace(arguments: argparse.Namespace) -> int:
    if arguments.show < 0:
        raise ConfigError(f"--show {arguments.show}: give 0 or more record lines")
    load_allowed(arguments)
    from search_to_signal.evidence.unpacking import readable

    try:
        with readable(arguments.directory) as directory:
            for line in _lines(arguments, directory):
                print(line)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunDirectoryError(f"cannot read {error.filename}: {error.strerror}; restore it") from error
    return 0


def _lines(arguments: argparse.Namespace, directory: Path) -> Iterator[str]:
    from search_to_signal.analysis.page.tracing import row_values, table_names, table_parts, trace_cell
    from search_to_signal.analysis.plan.lines import outcome_table
    from search_to_signal.analysis.plan.outcomes import outcomes
    from search_to_signal.analysis.results import Results
    from search_to_signal.analysis.tables.catalogue import TRACED, Catalogue, build, catalogue
    from search_to_signal.records.plan import PLAN, read_plan

    plan = arguments.directory / PLAN.name
    if plan.is_file():
        table = outcome_table(outcomes(directory, read_plan(plan)), read_plan(plan))
        if arguments.table is None:
            return table_names(Catalogue((table,), {}))
        if arguments.table != table.name:
            raise ConfigError(
                f"the plan has one table, {table.name}: a profile's tables stand in its directory"
            )
    else:
        results = Results(directory)
        if arguments.table is None:
            return table_names(catalogue(results, TRACED))
        table = build(results, arguments.table)
    if arguments.row is None:
        return table_parts(table)
    if arguments.column is None:
        return row_values(table, table.row(arguments.row))
    cell = table.cell(arguments.row, arguments.column)
    where = f"{table.name} / {arguments.row} / {arguments.column}"
    return trace_cell(cell, where, directory, arguments.show)


def register(add: Add) -> None:
    """Add trace."""
    trace = add(
        "trace",
        _trace,
        "the records, lines and formula behind a number of a table",
        "s2s trace results/embedded core_results native 'Final best' --show 2",
    )
    trace.add_argument("directory", type=Path, help="results directory, or one of shipped evidence")
    trace.add_argument("table", nargs="?", help="a table's name (default: list the tables)")
    trace.add_argument("row", nargs="?", help="a row's label (default: list rows and columns)")
    trace.add_argument("column", nargs="?", help="a column's heading (default: print the row)")
    allow_code(trace, "mapping", "normalizer")
    trace.add_argument("--show", type=int, default=0, metavar="N", help="print the first N records as well")

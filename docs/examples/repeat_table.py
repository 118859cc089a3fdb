"""Repeated runs against the runs of the cohort: how many groups have equal records."""

from search_to_signal.analysis.results import Results
from search_to_signal.analysis.tables.cells import Row, Table, percent_cell

NOTE = "Every group of a repeated run is compared with that of the run of its seed, field by field."


def repeat(results: Results) -> Table:
    """Equal groups by run."""
    first, rows = {run.name: run for run in results.cohort}, []
    for again in results.runs("repeat"):
        live = first[again.name]
        equal = sum(one == other for one, other in zip(live.groups, again.groups, strict=True))
        origins = (live.all_completions, again.all_completions)
        cell = percent_cell(equal, len(again.groups), "equal groups / groups", *origins)
        rows.append(Row(again.name, (cell,)))
    return Table("repeat", "Repeated runs", "repeat", ("Equal groups (%)",), tuple(rows), "Run", NOTE)

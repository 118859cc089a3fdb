"""Repeated runs against the runs of the cohort: how many groups have equal records."""

from collections.abc import Iterator

from search_to_signal.report.results import Results
from search_to_signal.report.tables.cells import Line, percent_cell, table

NOTE = "Every group of a repeated run is compared with that of the run of its seed, field by field."


@table("Repeated runs", NOTE, layer="repeat", label="Run")
def repeat(results: Results) -> Iterator[Line]:
    """Equal groups by run."""
    first = {run.name: run for run in results.cohort}
    for again in results.runs("repeat"):
        live = first[again.name]
        equal = sum(one == other for one, other in zip(live.groups, again.groups, strict=True))
        origins = (live.all_completions, again.all_completions)
        cell = percent_cell(equal, len(again.groups), "equal groups / groups", *origins)
        yield again.name, {"Equal groups (%)": cell}

"""The first results of a results directory: tables, a figure, and a page that says what they are."""

from collections.abc import Sequence
from pathlib import Path

from search_to_signal.analysis.catalogue import Catalogue, catalogue
from search_to_signal.analysis.cells import Table
from search_to_signal.analysis.figures import best_so_far_figure
from search_to_signal.analysis.results import Results
from search_to_signal.analysis.runs import RecordedRun
from search_to_signal.analysis.tables import to_markdown, write_table
from search_to_signal.problems import get_problem

# The paper's evidence layers by what a table calls them; the first two are no runs.
LAYERS = {
    "audit": "Normalizer replay",
    "updates": "Matched update",
    "cohort": "Formal live cohort",
    "restart": "Frozen restart",
    "breadth": "Directional breadth",
    "anchor": "Resource anchor",
    "probe": "Common-context probe",
    "api": "API system reference",
}
_SCALE = (
    "Model: {model}, a small language model made for this artifact. These are results at embedded scale; "
    "they are not results of the paper's 7B models and confirm none of its numbers."
)
_SMOKE = "**Smoke run: it shows that the path works and is no evidence of anything else.**"


def report(directory: Path, out: Path) -> Path:
    """Write every table of a results directory, a figure and a page; returns the page.

    Smoke runs get tables named smoke_*, so that none can be taken for a formal one. Raises
    RunDirectoryError as load_runs does.
    """
    results = Results(directory)
    runs, found = results.cohort, catalogue(results)
    out.mkdir(parents=True, exist_ok=True)
    for table in found.tables:
        write_table(table, out)
    problem = get_problem(str(runs[0].config["problem"]))
    best_so_far_figure(runs, out, f"minus {problem.unit}")
    page = out / "report.md"
    page.write_text(_page(results, found), encoding="utf-8")
    return page


def _page(results: Results, found: Catalogue) -> str:
    config = results.cohort[0].config
    where = f"{config['problem']} ({config['split']} instances), {config['groups']} groups of " + str(
        config["generation"]["group_size"]
    )
    parts = [
        "# What ran",
        _SMOKE if results.smoke else "",
        f"Live search on {where} completions. {_SCALE.format(model=config['model'])}",
        "![Best score so far](best_so_far.png)",
        "Lines are means over seeds, bands the range of the seeds; the data are in best_so_far.csv.",
        *(part for table in found.tables for part in _section(table)),
        "## Where the time went",
        to_markdown(_time_rows(results.cohort)),
        "## Evidence layers",
        to_markdown(_layer_rows(results, found)),
        "## Tables that do not exist",
        "".join(f"- `{name}`: {reason}\n" for name, reason in found.absent.items()),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _section(table: Table) -> tuple[str, str, str]:
    return f"## {table.title}", table.note, to_markdown(table.text_rows())


def _time_rows(runs: Sequence[RecordedRun]) -> list[list[str]]:
    rows = [["Run", "Groups per minute", "Generation (%)", "Evaluation (%)", "Update (%)", "Else (%)"]]
    for run in runs:
        timing = run.manifest.timing
        if timing is not None:
            parts = (timing.generation, timing.evaluation, timing.update, timing.other)
            shares = [f"{100 * part / timing.total:.1f}" for part in parts]
            rows.append([run.directory.name, f"{timing.groups_per_minute:.1f}", *shares])
    return rows


def _layer_rows(results: Results, found: Catalogue) -> list[list[str]]:
    ran = {table.layer for table in found.tables}
    ran |= {name for name in ("audit", "updates") if (results.directory / name).is_dir()}
    what = "ran on smoke records" if results.smoke else "ran at embedded scale"
    return [
        ["Layer", "State"],
        *([name, what if key in ran else "has not run"] for key, name in LAYERS.items()),
    ]

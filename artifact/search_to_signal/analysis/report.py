"""The first results of a results directory: tables, a figure, and a page that says what they are."""

from collections.abc import Sequence
from pathlib import Path

from search_to_signal.analysis.core_table import condition_rows, seed_rows, validity_gains
from search_to_signal.analysis.figures import best_so_far_figure
from search_to_signal.analysis.runs import RecordedRun, load_runs
from search_to_signal.analysis.tables import to_markdown, write_table
from search_to_signal.problems import get_problem
from search_to_signal.records.manifest import COHORT

LAYERS = (
    "Normalizer replay",
    "Matched update",
    "Formal live cohort",
    "Frozen restart",
    "Directional breadth",
    "Resource anchor",
    "Common-context probe",
    "API system reference",
)
_SCALE = (
    "Model: {model}, a small language model made for this artifact. These are results at embedded scale; "
    "they are not results of the paper's 7B models and confirm none of its numbers."
)
_SMOKE = "**Smoke run: it shows that the path works and is no evidence of anything else.**"


def report(directory: Path, out: Path) -> Path:
    """Write the report of the runs in a directory; returns its page.

    Smoke runs get tables named smoke_*, so that none can be taken for a formal one. Raises
    RunDirectoryError as load_runs does.
    """
    cohort = directory / COHORT
    runs = load_runs(cohort if cohort.is_dir() else directory)
    out.mkdir(parents=True, exist_ok=True)
    smoke = runs[0].config["purpose"] != "formal"
    prefix = "smoke_" if smoke else ""
    tables = {"core_results": condition_rows(runs), "core_seeds": seed_rows(runs)}
    for name, rows in tables.items():
        write_table(rows, out, f"{prefix}{name}")
    problem = get_problem(str(runs[0].config["problem"]))
    best_so_far_figure(runs, out, f"minus {problem.unit}")
    page = out / "report.md"
    audited = (directory / "audit" / "audit.md").is_file()
    page.write_text(_page(runs, smoke, audited), encoding="utf-8")
    return page


def _page(runs: Sequence[RecordedRun], smoke: bool, audited: bool) -> str:
    config = runs[0].config
    where = f"{config['problem']} ({config['split']} instances), {config['groups']} groups of " + str(
        config["generation"]["group_size"]
    )
    gains = validity_gains(runs)
    parts = [
        "# What ran",
        _SMOKE if smoke else "",
        f"Live search on {where} completions. {_SCALE.format(model=config['model'])}",
        "## Core results",
        "Mean ± sample standard deviation over seeds; higher is better throughout.",
        to_markdown(condition_rows(runs)),
        to_markdown(seed_rows(runs)),
        "## Best so far",
        "![Best score so far](best_so_far.png)",
        "Lines are means over seeds, bands the range of the seeds; the data are in best_so_far.csv.",
        "## Validity against the frozen model" if len(gains) > 1 else "",
        to_markdown(gains) if len(gains) > 1 else "",
        "## Where the time went",
        to_markdown(_time_rows(runs)),
        "## Evidence layers",
        to_markdown(_layer_rows(smoke, audited)),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _time_rows(runs: Sequence[RecordedRun]) -> list[list[str]]:
    rows = [["Run", "Groups per minute", "Generation (%)", "Evaluation (%)", "Update (%)", "Else (%)"]]
    for run in runs:
        timing = run.manifest.timing
        if timing is not None:
            parts = (timing.generation, timing.evaluation, timing.update, timing.other)
            shares = [f"{100 * part / timing.total:.1f}" for part in parts]
            rows.append([run.directory.name, f"{timing.groups_per_minute:.1f}", *shares])
    return rows


def _layer_rows(smoke: bool, audited: bool) -> list[list[str]]:
    ran = {
        "Normalizer replay": audited,
        "Formal live cohort": not smoke,
    }
    what = "ran on smoke records" if smoke else "ran at embedded scale"
    return [["Layer", "State"], *([layer, what if ran.get(layer) else "has not run"] for layer in LAYERS)]

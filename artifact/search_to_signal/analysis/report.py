"""The report of a results directory: every table, every figure, and two pages that describe them.

Equal records give equal bytes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.analysis.figures import DrawnFigures, draw_all
from search_to_signal.analysis.page.facts import Facts, describe, layer_times, read_facts, time_rows
from search_to_signal.analysis.page.ledger import NAMES, JudgedLedger, read_ledger
from search_to_signal.analysis.page.pictures import embed_picture
from search_to_signal.analysis.page.summary import FIGURE, build_findings, find_best_lineage
from search_to_signal.analysis.page.tracing import ShownTable, show_table
from search_to_signal.analysis.tables.catalogue import NOT_RUN, Evidence, read_evidence
from search_to_signal.analysis.tables.cells import Table
from search_to_signal.analysis.tables.files import to_markdown, write_table
from search_to_signal.package_data import render
from search_to_signal.records.layers import get_layer, in_paper_order

FIGURES = "figures"
HTML, MARKDOWN = "report.html", "report.md"
_HEADLINE = "core_results"
_SMOKE = "**Smoke run: it shows that the path works and is no evidence of anything else.**"
_EMBEDDED = (
    "Small language models made for this artifact: {models}. These are results at embedded scale; "
    "they are not results of the paper's 7B models and confirm none of its numbers."
)
_OTHER = "Model: {models}. These are the runs of this directory; no number of the paper is pooled with them."


def report(directory: Path, out: Path, ledger: Callable[[Path], None] | None = None) -> Path:
    """Write tables, figures, report.html and the short report.md; returns the latter.

    ``ledger`` is called with ``out`` after the tables are written, to judge the paper's numbers with them;
    analysis does not import the claims package. Tables and figures of smoke runs are named smoke_*, so that
    they cannot be mistaken for formal ones. Raises RunDirectoryError as load_runs does.
    """
    return write_evidence(read_evidence(directory), out, ledger)


def write_evidence(evidence: Evidence, out: Path, ledger: Callable[[Path], None] | None = None) -> Path:
    """Write the report of evidence that is read already; see ``report``."""
    facts = read_facts(evidence.results.directory)
    out.mkdir(parents=True, exist_ok=True)
    for table in evidence.catalogue.tables:
        write_table(table, out)
    drawn = draw_all(evidence, out / FIGURES)
    if ledger is not None:
        ledger(out)
    verdicts = read_ledger(out)
    values = _page_values(evidence, drawn, facts, verdicts)
    html = render("search_to_signal.analysis.page", "page.html", **values)
    (out / HTML).write_text(html, encoding="utf-8")
    page = out / MARKDOWN
    page.write_text("\n\n".join(_parts(evidence, drawn, facts, verdicts)) + "\n", encoding="utf-8")
    return page


def _parts(
    evidence: Evidence, drawn: DrawnFigures, facts: Facts, verdicts: JudgedLedger | None
) -> Iterator[str]:
    tables = evidence.tables
    yield "# What ran"
    if evidence.results.smoke:
        yield _SMOKE
    if lacking := evidence.results.partial.words:
        waits = evidence.results.partial.waits
        yield f"**{lacking}: this is not the plan's outcome.**" if waits else lacking
    scale = _EMBEDDED if facts.embedded else _OTHER
    yield f"{_search(evidence)} {scale.format(models=', '.join(facts.cards))}"
    yield from _section(tables[_HEADLINE])
    if "paired" in tables:
        yield from _section(tables["paired"], " minus frozen")
    yield "## Where the time went"
    yield to_markdown(time_rows(facts.runs)).strip()
    yield "## Evidence layers"
    states = [[layer.name, state] for layer, state in evidence.layers.items()]
    yield to_markdown([["Layer", "State"], *states]).strip()
    yield "## What else is there"
    if verdicts is not None:
        yield _judged(verdicts)
    yield _contents(evidence, drawn)


def _contents(evidence: Evidence, drawn: DrawnFigures) -> str:
    here = f"{len(evidence.catalogue.tables)} tables and {len(drawn.figures)} figures"
    absent = f"{len(evidence.catalogue.absent)} tables and {len(drawn.absent)} figures"
    return (
        f"{here} are here, {absent} are not: {HTML} holds them and the reasons. `s2s trace` leads from every "
        "number to its records."
    )


def _search(evidence: Evidence) -> str:
    run = evidence.results.cohort[0]
    facts, groups = run.facts, f"{run.facts.groups} groups of {run.facts.group_size} completions"
    host = f" by the {run.manifest.host} host" if run.manifest.of_host.own_loop else ""
    untrained = " The model stands behind an endpoint and is not trained." if run.config.get("served") else ""
    return f"Live search{host} on {facts.problem} ({facts.split} instances), {groups}.{untrained}"


def _judged(verdicts: JudgedLedger) -> str:
    counts = ", ".join(f"{len(rows)} {name}" for name, rows in verdicts.by_verdict.items())
    ours = f"{verdicts.estimated} have our own estimate beside them"
    return f"The paper's numbers: {verdicts.total} entries, {counts}; {ours}."


def _section(table: Table, ending: str = "") -> Iterator[str]:
    """Yield a table, or only the rows with labels that end in ``ending``."""
    head, *rows = table.text_rows()
    yield f"## {table.title}"
    yield table.note
    yield to_markdown([head, *(row for row in rows if row[0].endswith(ending))]).strip()


@dataclass(frozen=True)
class Picture:
    """A figure of the page: name, text, PNG as a data URI, width in pixels, and tables with its numbers."""

    name: str
    title: str
    caption: str
    source: str
    width: int
    tables: tuple[str, ...]


def _page_values(
    evidence: Evidence, drawn: DrawnFigures, facts: Facts, ledger: JudgedLedger | None
) -> Mapping[str, Any]:
    config, pictures = evidence.results.cohort[0].config, _pictures(evidence, drawn)
    return {
        "findings": build_findings(evidence),
        "first_picture": next((picture for picture in pictures if picture.name == FIGURE), None),
        "smoke": evidence.results.smoke,
        "partial": evidence.results.partial,
        "embedded": facts.embedded,
        "models": " and ".join(facts.cards),
        "config": config,
        "conditions": list(dict.fromkeys(run.condition for run in evidence.results.cohort)),
        "seeds": sorted({run.seed for run in evidence.results.cohort}),
        "unit": evidence.unit,
        "facts": describe(facts),
        "layers": evidence.layers,
        "not_run": NOT_RUN,
        "layer_times": layer_times(facts.runs.values()),
        "time_rows": time_rows(facts.runs),
        "settings": _settings(config),
        "lineage": find_best_lineage(evidence),
        "pictures": [picture for picture in pictures if picture.name != FIGURE],
        "absent_figures": drawn.absent,
        "headline": show_table(evidence.table(_HEADLINE)),
        "sections": _by_layer([t for t in evidence.catalogue.tables if not t.name.endswith(_HEADLINE)]),
        "absent": evidence.catalogue.absent,
        "ledger": ledger,
        "layer_names": NAMES,
        "allowed": _allowed(evidence),
    }


def _allowed(evidence: Evidence) -> str:
    """Return the command-line options that allow third-party mappings and normalizers of the runs."""
    every = [run.facts for run in evidence.results.cohort]
    mappings = [f"--mapping {facts.mapping} " for facts in every]
    normalizers = [f"--normalizer {facts.normalizer} " for facts in every]
    return "".join(option for option in dict.fromkeys([*mappings, *normalizers]) if ":" in option)


def _pictures(evidence: Evidence, drawn: DrawnFigures) -> list[Picture]:
    known = {name: table.name for name, table in evidence.tables.items()}
    return [
        Picture(
            path.stem,
            plot.title,
            plot.caption,
            *embed_picture(path),
            tuple(known[name] for name in plot.tables if name in known),
        )
        for plot, path in drawn.figures
    ]


def _by_layer(tables: Sequence[Table]) -> dict[str, list[ShownTable]]:
    """Group tables by the name of their layer, in the paper's order."""
    sections: dict[str, list[ShownTable]] = {layer.name: [] for layer in in_paper_order()}
    for table in tables:
        sections[get_layer(table.layer).name].append(show_table(table))
    return {name: catalogue for name, catalogue in sections.items() if catalogue}


def _settings(config: Mapping[str, Any]) -> str:
    """Format the settings that all runs of the cohort share."""
    shared = {key: value for key, value in config.items() if key not in ("condition", "seed", "label")}
    return msgspec.json.format(msgspec.json.encode(shared, order="sorted"), indent=2).decode("utf-8")

"""The results of a results directory: every table, every figure, and two pages that say what they are."""

from collections.abc import Callable, Iterator
from pathlib import Path

from search_to_signal.analysis.figures import Drawn, draw_all
from search_to_signal.analysis.page.facts import Facts, read_facts, time_rows
from search_to_signal.analysis.page.layers import layer_states
from search_to_signal.analysis.page.ledger import JudgedLedger, read_ledger
from search_to_signal.analysis.page.render import render
from search_to_signal.analysis.tables.catalogue import Evidence, read_evidence
from search_to_signal.analysis.tables.cells import Row, Table
from search_to_signal.analysis.tables.files import to_markdown, write_table

FIGURES = "figures"
HTML, MARKDOWN = "report.html", "report.md"
_SMOKE = "**Smoke run: it shows that the path works and is no evidence of anything else.**"
_EMBEDDED = (
    "Small language models made for this artifact: {models}. These are results at embedded scale; "
    "they are not results of the paper's 7B models and confirm none of its numbers."
)
_OTHER = "Model: {models}. These are the runs of this directory; no number of the paper is pooled with them."


def report(directory: Path, out: Path, ledger: Callable[[Path], None] | None = None) -> Path:
    """Write tables, figures, report.html and the short report.md; returns the latter.

    ``ledger`` is called with ``out`` when the tables are there, to judge the paper's numbers beside them: a
    room that analysis does not know. Tables and figures of smoke runs are named smoke_*, so that none can be
    taken for a formal one. Raises RunDirectoryError as load_runs does.
    """
    return write_evidence(read_evidence(directory), out, ledger)


def write_evidence(evidence: Evidence, out: Path, ledger: Callable[[Path], None] | None = None) -> Path:
    """``report`` of a directory whose tables are there."""
    facts = read_facts(evidence.results.directory)
    out.mkdir(parents=True, exist_ok=True)
    for table in evidence.found.tables:
        write_table(table, out)
    drawn = draw_all(evidence, out / FIGURES)
    if ledger is not None:
        ledger(out)
    verdicts = read_ledger(out)
    (out / HTML).write_text(render(evidence, drawn, facts, verdicts), encoding="utf-8")
    page = out / MARKDOWN
    page.write_text("\n\n".join(_parts(evidence, drawn, facts, verdicts)) + "\n", encoding="utf-8")
    return page


def _parts(evidence: Evidence, drawn: Drawn, facts: Facts, verdicts: JudgedLedger | None) -> Iterator[str]:
    tables = evidence.tables
    yield "# What ran"
    if evidence.smoke:
        yield _SMOKE
    if evidence.partial:
        yield f"**{evidence.partial}: this is not the plan's outcome.**"
    scale = _EMBEDDED if facts.embedded else _OTHER
    yield f"{_search(evidence)} {scale.format(models=', '.join(facts.cards))}"
    yield from _section(tables["core_results"])
    if "paired" in tables:
        yield from _section(tables["paired"], " minus frozen")
    yield "## Where the time went"
    yield to_markdown(time_rows(facts.runs)).strip()
    yield "## Evidence layers"
    states = layer_states(evidence)
    yield to_markdown([["Layer", "State"], *([s.layer.name, s.state] for s in states)]).strip()
    yield "## What else is there"
    if verdicts is not None:
        yield _judged(verdicts)
    yield _contents(evidence, drawn)


def _contents(evidence: Evidence, drawn: Drawn) -> str:
    here = f"{len(evidence.found.tables)} tables and {len(drawn.figures)} figures"
    absent = f"{len(evidence.found.absent)} tables and {len(drawn.absent)} figures"
    return (
        f"{here} are here, {absent} are not: {HTML} holds them and the reasons. `s2s trace` leads from every "
        "number to its records."
    )


def _search(evidence: Evidence) -> str:
    run = evidence.results.cohort[0]
    facts = run.facts
    groups = f"{facts.groups} groups of {facts.group_size} completions"
    host = " by the released host" if run.manifest.host == "released" else ""
    untrained = " The model stands behind an endpoint and is not trained." if run.config.get("served") else ""
    return f"Live search{host} on {facts.problem} ({facts.split} instances), {groups}.{untrained}"


def _judged(verdicts: JudgedLedger) -> str:
    counts = ", ".join(f"{len(rows)} {name}" for name, rows in verdicts.by_verdict.items())
    ours = f"{verdicts.estimated} have our own estimate beside them"
    return f"The paper's numbers: {verdicts.total} entries, {counts}; {ours}."


def _section(table: Table, ending: str = "") -> Iterator[str]:
    """A table, or those of its rows over seeds whose label ends so."""
    rows = [row for row in table.rows if row.label.endswith(ending)]
    yield f"## {table.title}"
    yield table.note
    yield to_markdown([[table.label, *table.columns], *map(_texts, rows)]).strip()


def _texts(row: Row) -> list[str]:
    return [row.label, *(cell.text() for cell in row.cells)]

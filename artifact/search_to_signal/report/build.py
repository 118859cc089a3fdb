"""The report of a results directory: every table, every figure, and two pages that describe them.

Equal records give equal bytes. Verdicts on the paper's numbers are what ``s2s claims`` wrote beside it.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.base.errors import RunDirectoryError, reason
from search_to_signal.base.package_data import render
from search_to_signal.records.files import read_regular
from search_to_signal.records.layers import get_layer, in_paper_order
from search_to_signal.report.figures import DrawnFigures, draw_all
from search_to_signal.report.figures.plot import embed_picture
from search_to_signal.report.summary import (
    FIGURE,
    Facts,
    build_findings,
    describe,
    find_best_lineage,
    layer_times,
    read_facts,
    time_rows,
)
from search_to_signal.report.tables.catalogue import NOT_RUN, Evidence, read_evidence
from search_to_signal.report.tables.cells import Table, to_markdown, write_table
from search_to_signal.report.tracing import formulas, full_value, row_origins, trace_command

LEDGER = Path("claims") / "claims.csv"
_LEDGER_COLUMNS = (
    *("id", "where", "layer", "quantity", "published", "unit", "reason"),
    *("direction", "embedded", "comparison", "beside"),
)
MISSING = "no counterpart"
NAMES = {"protocol": "Settings", **{layer.key: layer.name for layer in in_paper_order()}}
# Verdicts in the order of the page; others come last.
ORDER = (
    *("inconsistent", "text and equation disagree", "implemented otherwise"),
    *("consistent", "implemented as published", "not derivable"),
)

LedgerRow = Mapping[str, str]


@dataclass(frozen=True)
class JudgedLedger:
    """The entries of a ledger by verdict, in the order of ORDER."""

    by_verdict: Mapping[str, tuple[LedgerRow, ...]]

    @property
    def total(self) -> int:
        return sum(map(len, self.by_verdict.values()))

    @property
    def counts(self) -> list[tuple[str, list[int]]]:
        """Per layer, in the paper's order: the number of entries, then those with each verdict."""
        counted = [Counter(row["layer"] for row in rows) for rows in self.by_verdict.values()]
        layers = [*NAMES, *sorted(set().union(*counted) - set(NAMES))]
        rows = [(name, [counts[name] for counts in counted]) for name in layers]
        return [(NAMES.get(name, name), [sum(row), *row]) for name, row in rows if any(row)]

    @property
    def estimated(self) -> int:
        return self.directions.total()

    @property
    def directions(self) -> Counter[str]:
        """The number of entries by direction; entries without a counterpart are left out."""
        return Counter(direction for _, direction in self._given)

    @property
    def compared(self) -> Counter[str]:
        """The number of comparisons by direction: entries with the same numbers count once."""
        return Counter(direction for _, direction in set(self._given))

    @property
    def _given(self) -> list[tuple[str, str]]:
        """Comparison and direction of every entry that has a direction."""
        rows = (row for rows in self.by_verdict.values() for row in rows)
        return [
            (row["comparison"], row["direction"]) for row in rows if row["direction"] not in ("", MISSING)
        ]


def read_ledger(report: Path) -> JudgedLedger | None:
    """Read the ledger of a report; None where none was written.

    Raises RunDirectoryError for one that cannot be read.
    """
    path = report / LEDGER
    if not path.is_file():
        return None
    try:
        rows = list(csv.DictReader(io.StringIO(read_regular(path).decode())))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunDirectoryError(
            f"cannot read {path}: {reason(error)}; make it again with s2s claims"
        ) from error
    if any(None in row.values() or not {*_LEDGER_COLUMNS, "verdict"} <= set(row) for row in rows):
        raise RunDirectoryError(f"{path} lacks columns: make it again with s2s claims")
    names = dict.fromkeys(row["verdict"] for row in rows)
    verdicts = sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    return JudgedLedger({name: tuple(row for row in rows if row["verdict"] == name) for name in verdicts})


FIGURES = "figures"
HTML, MARKDOWN, LEDGER_HTML, TABLES = "report.html", "report.md", "ledger.html", "tables"
_HEADLINE = "core_results"


def report(directory: Path, out: Path, ledger: Callable[[Path], None] | None = None) -> Path:
    """Write tables, figures, report.html with a page per table beside it, and the short report.md; returns
    the latter.

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
    values = _page_values(evidence, drawn, facts, read_ledger(out))
    pages: dict[str, tuple[str, Mapping[str, Any]]] = {HTML: ("page.html", {}), MARKDOWN: ("page.md", {})}
    if values["ledger"] is not None:
        pages[LEDGER_HTML] = "ledger.html", {}
    for table in evidence.catalogue.tables:
        values_of = {"table": table, "layer": get_layer(table.layer).name}
        pages[f"{TABLES}/{table.name}.html"] = "table.html", values_of
    (out / TABLES).mkdir(exist_ok=True)
    for name, (template, own) in pages.items():
        text = render("search_to_signal.report", template, **values, **own)
        (out / name).write_text(text, encoding="utf-8")
    return out / MARKDOWN


def _page_values(
    evidence: Evidence, drawn: DrawnFigures, facts: Facts, ledger: JudgedLedger | None
) -> Mapping[str, Any]:
    cohort = evidence.results.cohort
    run, headline, paired = cohort[0], evidence.table(_HEADLINE), evidence.tables.get("paired")
    known = {name: table.name for name, table in evidence.tables.items()}
    pictures = [
        {
            "name": path.stem,
            "title": plot.title,
            "caption": plot.caption,
            **embed_picture(path)._asdict(),
            "tables": [known[name] for name in plot.tables if name in known],
        }
        for plot, path in drawn.figures
    ]
    layers: dict[str, list[Table]] = {layer.name: [] for layer in in_paper_order()}
    for table in evidence.catalogue.tables:
        if table is not headline:
            layers[get_layer(table.layer).name].append(table)
    # The short page has the headline, and of the paired differences those to frozen runs.
    sections = [(headline, headline.text_rows())]
    if paired is not None:
        head, *rows = paired.text_rows()
        sections.append((paired, [head, *(row for row in rows if row[0].endswith(" minus frozen"))]))
    shared = {key: value for key, value in run.config.items() if key not in ("condition", "seed", "label")}
    # The options that allow third-party parts of these runs.
    options = [
        *(f"--mapping {one.facts.mapping} " for one in cohort),
        *(f"--normalizer {one.facts.normalizer} " for one in cohort),
    ]
    return {
        "findings": build_findings(evidence),
        "first_picture": next((picture for picture in pictures if picture["name"] == FIGURE), None),
        "smoke": evidence.results.smoke,
        "partial": evidence.results.partial,
        "embedded": facts.embedded,
        "models": " and ".join(facts.cards),
        "config": run.config,
        "conditions": list(dict.fromkeys(one.condition for one in cohort)),
        "seeds": sorted({one.seed for one in cohort}),
        "unit": evidence.unit,
        "facts": describe(facts),
        "layers": evidence.layers,
        "not_run": NOT_RUN,
        "layer_times": layer_times(facts.runs.values()),
        "time_rows": time_rows(facts.runs),
        "settings": msgspec.json.format(msgspec.json.encode(shared, order="sorted"), indent=2).decode(),
        "lineage": find_best_lineage(evidence),
        "pictures": [picture for picture in pictures if picture["name"] != FIGURE],
        "absent_figures": drawn.absent,
        "headline": headline,
        "full_value": full_value,
        "formulas": formulas,
        "row_origins": row_origins,
        "trace_command": trace_command,
        "sections": {name: tables for name, tables in layers.items() if tables},
        "absent": evidence.catalogue.absent,
        "ledger": ledger,
        "layer_names": NAMES,
        "markdown": to_markdown,
        "run": run,
        "cards": list(facts.cards),
        "sections_of_text": sections,
        "layer_rows": [
            ["Layer", "State"],
            *([layer.name, state] for layer, state in evidence.layers.items()),
        ],
        "tables": len(evidence.catalogue.tables),
        "figures": len(drawn.figures),
        "page": HTML,
        "ledger_page": LEDGER_HTML,
        "tables_folder": TABLES,
        "allowed": "".join(option for option in dict.fromkeys(options) if ":" in option),
    }

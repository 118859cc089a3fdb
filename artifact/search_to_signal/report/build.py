"""The report of a results directory: every table, every figure, and two pages that describe them.

Equal records give equal bytes. A cell of a table is traced to the lines of records behind it, for a terminal
and for the page. Verdicts on the paper's numbers are what ``s2s claims`` wrote beside it.
"""

import csv
import io
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from search_to_signal.base.errors import RunDirectoryError, reason
from search_to_signal.base.package_data import render
from search_to_signal.records.files import read_lines, read_regular
from search_to_signal.records.layers import get_layer, in_paper_order
from search_to_signal.report import summary
from search_to_signal.report.figures import DrawnFigures, draw_all
from search_to_signal.report.figures.plot import embed_picture
from search_to_signal.report.results import Origin
from search_to_signal.report.tables.catalogue import NOT_RUN, Catalogue, Evidence, read_evidence
from search_to_signal.report.tables.cells import Cell, Row, Table, to_markdown, write_table

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
    facts = summary.read_facts(evidence.results.directory)
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
    evidence: Evidence, drawn: DrawnFigures, facts: summary.Facts, ledger: JudgedLedger | None
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
        "findings": summary.build_findings(evidence),
        "first_picture": next((picture for picture in pictures if picture["name"] == summary.FIGURE), None),
        "smoke": evidence.results.smoke,
        "partial": evidence.results.partial,
        "embedded": facts.embedded,
        "models": " and ".join(facts.cards),
        "config": run.config,
        "conditions": list(dict.fromkeys(one.condition for one in cohort)),
        "seeds": sorted({one.seed for one in cohort}),
        "unit": evidence.unit,
        "facts": summary.describe(facts),
        "layers": evidence.layers,
        "not_run": NOT_RUN,
        "layer_times": summary.layer_times(facts.runs.values()),
        "time_rows": summary.time_rows(facts.runs),
        "settings": msgspec.json.format(msgspec.json.encode(shared, order="sorted"), indent=2).decode(),
        "lineage": summary.find_best_lineage(evidence),
        "pictures": [picture for picture in pictures if picture["name"] != summary.FIGURE],
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


_WIDTH = 160
_LONGEST = 60
# Columns of estimates, to which the columns Low and High of their table belong.
_ESTIMATES = ("Estimate", "Mean")
_HASH = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")


def line_ranges(lines: Sequence[int] | None) -> str:
    """Format rising line numbers as ranges such as ``1-240, 301``; None means all lines."""
    if lines is None:
        return "all lines"
    if not lines:
        return "no lines"
    return ("line " if len(lines) == 1 else "lines ") + ", ".join(_joined(lines))


def _joined(lines: Sequence[int]) -> Iterator[str]:
    start = last = lines[0]
    for line in lines[1:]:
        if line != last + 1:
            yield _range(start, last)
            start = line
        last = line
    yield _range(start, last)


def _range(start: int, last: int) -> str:
    return f"{start}" if start == last else f"{start}-{last}"


def trace_cell(table: Table, row: str, column: str, directory: Path, shown: int = 0) -> Iterator[str]:
    """Yield lines of text: the number as tables print it, with its interval where the table has one.

    Then its full value, spread, n and formula, and every origin with ``shown`` of its records. Origins are
    below ``directory``. Raises ConfigError for an unknown row or column, OSError when a record file is gone.
    """
    cell = table.cell(row, column)
    interval = ""
    if column in _ESTIMATES and {"Low", "High"} <= set(table.columns):
        interval = f" [{table.cell(row, 'Low').text()}, {table.cell(row, 'High').text()}]"
    yield f"{table.name} / {row} / {column}: {cell.text()}{interval}"
    yield f"  value    {cell.text() if cell.value is None else repr(cell.value)}"
    if cell.spread is not None:
        yield f"  spread   {cell.spread!r} (sample standard deviation)"
    yield f"  n        {cell.n}"
    yield f"  formula  {cell.formula}"
    for origin in cell.origins:
        yield f"  records  {origin.path}: {line_ranges(origin.lines)}"
        wanted = None if origin.lines is None else set(origin.lines)
        numbered = enumerate(read_lines(directory / origin.path), start=1)
        chosen = ((n, line) for n, line in numbered if wanted is None or n in wanted)
        for number, line in islice(chosen, shown):
            # Hashes are shortened to eight digits, and the text to one or two lines of a terminal.
            plain = _HASH.sub(r"\1…", line.decode(errors="replace").rstrip("\n"))
            yield f"    {number}: {plain if len(plain) <= _WIDTH else f'{plain[:_WIDTH]}…'}"


def table_names(tables: Catalogue) -> Iterator[str]:
    """Yield a line per table, and one per absent table with the why."""
    width = max(map(len, [*(table.name for table in tables.tables), *tables.absent]), default=0)
    for table in tables.tables:
        yield f"{table.name:{width}}  {table.title} ({table.layer}; {len(table.rows)} rows)"
    for name, why in tables.absent.items():
        yield f"{name:{width}}  absent: {why}"


def table_parts(table: Table) -> Iterator[str]:
    yield f"{table.name}: {table.title}. {table.note}"
    yield "columns"
    yield from (f"  {column}" for column in table.columns)
    yield f"rows ({table.label})"
    yield from (f"  {row.label}" for row in table.rows)


def row_values(table: Table, row: Row) -> Iterator[str]:
    width = max(map(len, table.columns))
    yield f"{table.name} / {row.label}"
    for column, cell in zip(table.columns, row.cells, strict=True):
        yield f"  {column:{width}}  {cell.text()}  (n = {cell.n})"


def full_value(cell: Cell) -> str:
    """Format a value in full, with its deviation and n."""
    full = cell.text() if cell.value is None else repr(cell.value)
    spread = "" if cell.spread is None else f" ± {cell.spread!r}"
    return f"{full}{spread}, n = {cell.n}"


def trace_command(table: Table, row: str) -> str:
    return f"s2s trace . {shlex.join([table.name, row])} COLUMN"


def formulas(table: Table, column: int) -> list[str]:
    """The formulas of a column, of which rows over seeds have another than rows of a run."""
    return list(dict.fromkeys(row.cells[column].formula for row in table.rows))


def row_origins(row: Row) -> str:
    """The records behind a row, in short."""
    return short_origins([origin for cell in row.cells for origin in cell.origins])


def short_origins(origins: Sequence[Origin]) -> str:
    """Format origins, equal ones merged: ``cohort/{native-s1,native-s2}/steps.jsonl: all lines``."""
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    for origin in origins:
        folders, _, name = origin.path.rpartition("/")
        above, _, folder = folders.rpartition("/")
        groups.setdefault((above, name, _short_ranges(origin.lines)), {})[folder] = None
    texts = []
    for (above, name, lines), runs in groups.items():
        inner = "".join(runs) if len(runs) == 1 else f"{{{','.join(runs)}}}"
        texts.append(f"{'/'.join(part for part in (above, inner, name) if part)}: {lines}")
    return "; ".join(texts)


def _short_ranges(lines: Sequence[int] | None) -> str:
    """Format line ranges, or the number of lines where the ranges are longer than ``_LONGEST``."""
    if lines is not None and len(lines) > _LONGEST:
        # Two dozen ranges are always longer than that.
        first = list(islice(_joined(lines), 24))
        if len(first) == 24:
            return f"{len(lines)} lines"
    text = line_ranges(lines)
    return text if len(text) <= _LONGEST else f"{len(lines or ())} lines"

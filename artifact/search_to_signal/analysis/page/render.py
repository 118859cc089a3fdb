"""From evidence to the bytes of the page; equal records give equal bytes."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from search_to_signal.analysis.figures import Drawn
from search_to_signal.analysis.page.facts import Facts, describe, layer_times, time_rows
from search_to_signal.analysis.page.layers import layer_states
from search_to_signal.analysis.page.ledger import NAMES, JudgedLedger
from search_to_signal.analysis.page.lineage import best_lineage
from search_to_signal.analysis.page.story import FIGURE, findings
from search_to_signal.analysis.page.tracing import ShownTable, show_table
from search_to_signal.analysis.tables.catalogue import Evidence
from search_to_signal.analysis.tables.cells import Table
from search_to_signal.records.layers import get_layer, in_paper_order

_HEADLINE = "core_results"
_PIXELS_PER_INCH = 140


@dataclass(frozen=True)
class Picture:
    """A figure: base name, words, PNG as a data URI, width in pixels, and tables of the same numbers."""

    name: str
    title: str
    caption: str
    source: str
    width: int
    tables: tuple[str, ...]


def render(evidence: Evidence, drawn: Drawn, facts: Facts, ledger: JudgedLedger | None) -> str:
    """The page as text."""
    loader = PackageLoader("search_to_signal.analysis.page")
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html").render(**_content(evidence, drawn, facts, ledger))


def _content(
    evidence: Evidence, drawn: Drawn, facts: Facts, ledger: JudgedLedger | None
) -> Mapping[str, Any]:
    config, pictures = evidence.results.cohort[0].config, _pictures(evidence, drawn)
    return {
        "findings": findings(evidence),
        "first_picture": next((picture for picture in pictures if picture.name == FIGURE), None),
        "smoke": evidence.smoke,
        "partial": evidence.partial,
        "embedded": facts.embedded,
        "models": " and ".join(facts.cards),
        "config": config,
        "conditions": list(dict.fromkeys(run.condition for run in evidence.results.cohort)),
        "seeds": sorted({run.seed for run in evidence.results.cohort}),
        "unit": evidence.unit,
        "facts": describe(facts),
        "layers": layer_states(evidence),
        "layer_times": layer_times(facts.runs),
        "time_rows": time_rows(facts.runs),
        "settings": _settings(config),
        "lineage": best_lineage(evidence),
        "pictures": [picture for picture in pictures if picture.name != FIGURE],
        "absent_figures": drawn.absent,
        "headline": show_table(evidence.table(_HEADLINE)),
        "sections": _sections([t for t in evidence.found.tables if not t.name.endswith(_HEADLINE)]),
        "absent": evidence.found.absent,
        "ledger": ledger,
        "layer_names": NAMES,
    }


def _pictures(evidence: Evidence, drawn: Drawn) -> list[Picture]:
    known = {name: table.name for name, table in evidence.tables.items()}
    return [
        Picture(
            path.stem,
            plot.title,
            plot.caption,
            f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode('ascii')}",
            round(plot.size[0] * _PIXELS_PER_INCH),
            tuple(known[name] for name in plot.tables if name in known),
        )
        for plot, path in drawn.figures
    ]


def _sections(tables: Sequence[Table]) -> dict[str, list[ShownTable]]:
    """Tables by the name of their layer, in the paper's order."""
    sections: dict[str, list[ShownTable]] = {layer.name: [] for layer in in_paper_order()}
    for table in tables:
        sections[get_layer(table.layer).name].append(show_table(table))
    return {name: found for name, found in sections.items() if found}


def _settings(config: Mapping[str, Any]) -> str:
    """The protocol of the cohort, without what its runs differ in."""
    shared = {key: value for key, value in config.items() if key not in ("condition", "seed", "label")}
    return msgspec.json.format(msgspec.json.encode(shared, order="sorted"), indent=2).decode("utf-8")

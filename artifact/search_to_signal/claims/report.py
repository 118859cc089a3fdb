"""The ledger of a report: verdicts on the paper's numbers, with our own estimates next to them."""

from collections.abc import Mapping
from pathlib import Path

from search_to_signal.claims.ledger import load_ledger
from search_to_signal.claims.page import write
from search_to_signal.claims.tables import ClaimTable, load_report
from search_to_signal.claims.verdicts import Implementation, judge_claims

FOLDER = "claims"


def write_ledger(
    report: Path, facts: Implementation | None = None, tables: Mapping[str, ClaimTable] | None = None
) -> None:
    """Judge every entry with the tables of a report; writes claims.csv and claims.md into report/claims.

    ``facts`` are the settings that this repository implements; ``tables`` replaces the report's own tables,
    for several reports together. Raises LedgerError where ledger or tables are damaged.
    """
    ledger = load_ledger()
    write(
        ledger,
        judge_claims(ledger, load_report(report) if tables is None else tables, facts),
        report / FOLDER,
    )

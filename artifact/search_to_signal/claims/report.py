"""The ledger beside a report: verdicts on the paper's numbers, with our own estimates next to them."""

from collections.abc import Mapping
from pathlib import Path

from search_to_signal.claims.ledger import load_ledger
from search_to_signal.claims.page import write
from search_to_signal.claims.tables import Table, load_report
from search_to_signal.claims.verdicts import Implementation, judge

FOLDER = "claims"


def write_ledger(
    report: Path, facts: Implementation | None = None, tables: Mapping[str, Table] | None = None
) -> None:
    """Judge every entry beside the tables of a report; writes claims.csv and claims.md into report/claims.

    ``facts`` is what this repository implements, ``tables`` are those of several reports where it is not one.
    Raises LedgerError where ledger or tables are damaged.
    """
    ledger = load_ledger()
    write(ledger, judge(ledger, load_report(report) if tables is None else tables, facts), report / FOLDER)

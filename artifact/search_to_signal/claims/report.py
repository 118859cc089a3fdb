"""The ledger of a report: verdicts on the paper's numbers, with our own estimates next to them."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from search_to_signal.claims.feasibility import Feasibility, check_feasibility
from search_to_signal.claims.ledger import Ledger, load_ledger
from search_to_signal.claims.page import write
from search_to_signal.claims.tables import ClaimTable, load_report
from search_to_signal.claims.verdicts import Implementation, judge_claims

FOLDER = "claims"


def write_ledger(
    report: Path,
    facts: Implementation | None = None,
    tables: Mapping[str, ClaimTable] | None = None,
    lacking: str = "",
) -> None:
    """Judge every entry with the tables of a report; writes claims.csv and claims.md into report/claims.

    ``facts`` are the settings that this repository implements; ``tables`` replaces the report's own tables,
    for several reports together; ``lacking`` says which runs are still to come. Raises LedgerError where
    ledger or tables are damaged.
    """
    ledger, feasibility = _published()
    own = load_report(report) if tables is None else tables
    findings = judge_claims(ledger, own, facts, awaited=bool(lacking))
    write(ledger, feasibility, findings, report / FOLDER, lacking)


@cache  # what the paper published is the same in every report
def _published() -> tuple[Ledger, Feasibility]:
    ledger = load_ledger()
    return ledger, check_feasibility(ledger)

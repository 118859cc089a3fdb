"""The command that judges the paper's numbers."""

import argparse
from pathlib import Path

from search_to_signal.cli.base import Add
from search_to_signal.errors import ConfigError, LedgerError


def _claims(arguments: argparse.Namespace) -> int:
    from search_to_signal.claims.coverage import load_numbers, uncovered
    from search_to_signal.claims.loading import load_ledger
    from search_to_signal.claims.page import summary, terminal, write
    from search_to_signal.claims.tables import load_report
    from search_to_signal.claims.verdicts import judge
    from search_to_signal.experiments.implementation import implementation

    ledger = load_ledger()
    if problems := uncovered(ledger, load_numbers()):
        raise LedgerError(f"the ledger does not account for the document: {'; '.join(problems[:5])}")
    if arguments.document is not None:
        return _document(arguments.document)
    report = load_report(arguments.results / "report") if arguments.results else None
    findings = judge(ledger, report, implementation())
    print(terminal(ledger, findings))
    if arguments.out is not None:
        write(ledger, findings, arguments.out)
    print(f"s2s: {summary(findings)}")
    return 0


def _document(path: Path) -> int:
    from search_to_signal.claims.coverage import differences

    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    problems = differences(content)
    for problem in problems:
        print(f"PROBLEM {problem}")
    print(f"s2s: {'FAILED' if problems else 'OK'}: {len(problems)} problems")
    return 1 if problems else 0


def register(add: Add) -> None:
    """Add claims."""
    text = "a verdict for every number of the paper"
    claims = add("claims", _claims, text, "s2s claims --results results/embedded --out claims")
    claims.add_argument("--results", type=Path, help="a results directory whose report to compare with")
    claims.add_argument("--out", type=Path, help="where to write claims.csv and claims.md")
    claims.add_argument("--document", type=Path, help="check the ledger against the paper's LaTeX source")

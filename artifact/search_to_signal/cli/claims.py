"""The command that compares the paper's numbers with results."""

import argparse
from pathlib import Path

from search_to_signal.base.errors import ConfigError, LedgerError, RunDirectoryError
from search_to_signal.cli.options import AGAIN, Add
from search_to_signal.records.files import refuse_special_files, storage_errors


def _claims(arguments: argparse.Namespace) -> int:
    """Judge every number of the paper.

    Prints the count of each verdict, a table of them by layer, then what does not fit.
    """
    from search_to_signal.claims.ledger import find_uncovered, load_numbers
    from search_to_signal.claims.page import (
        awaited_note,
        judge_published,
        published,
        summary,
        terminal,
        write,
    )
    from search_to_signal.claims.settings import implementation
    from search_to_signal.claims.tables import load_reports
    from search_to_signal.records.amendments import find_awaited_runs, read_amendments
    from search_to_signal.records.plan import PLAN, read_plan

    ledger, feasibility = published()
    if problems := find_uncovered(ledger, load_numbers()):
        raise LedgerError(f"the ledger does not account for the document: {'; '.join(problems[:5])}")
    if arguments.results is not None:
        refuse_special_files(arguments.results)
        _refuse_rebuilt(arguments.results)
        _refuse_damaged(arguments.results)
    plan, report, lacking = None, None, ""
    if arguments.results is not None:
        path = arguments.results / PLAN.name
        plan = read_plan(path) if path.is_file() else None
        report, sources = load_reports(arguments.results, plan.profiles if plan else ())
        lacking = find_awaited_runs(arguments.results, sources)
    findings = judge_published(implementation(), report, awaited=bool(lacking))
    print(f"s2s: {summary(findings)}")
    print(terminal(ledger, feasibility, findings, arguments.notes))
    if plan is not None:
        for amendment in read_amendments(path, plan):
            if amendment.what == "notes":
                continue
            studies = ", ".join(amendment.studies)
            print(f"{amendment.words} closes {studies}: their missing runs will not be recorded")
    if lacking:
        print(awaited_note(lacking))
    if arguments.out is not None:
        with storage_errors(arguments.out, AGAIN):
            write(ledger, feasibility, findings, arguments.out, lacking)
    return 0


def _refuse_rebuilt(results: Path) -> None:
    """Raise ConfigError for what s2s rebuild wrote: no roster there says which runs are awaited."""
    from search_to_signal.claims.page import FOLDER
    from search_to_signal.claims.tables import REPORT as PAGE
    from search_to_signal.records.manifest import REPORT
    from search_to_signal.study.container import packed_results

    within = results.name == REPORT or (results / PAGE).is_file()
    top = results.resolve().parent if within else results
    verdicts = top / REPORT / FOLDER / "claims.md"
    if verdicts.is_file() and not (top / REPORT / PAGE).is_file() and not packed_results(top):
        raise ConfigError(
            f"{results} was made by s2s rebuild and does not list missing runs: read its verdicts in "
            f"{verdicts}, or give --results the evidence that it was made from"
        )


def _refuse_damaged(results: Path) -> None:
    """Raise RunDirectoryError where packed evidence, or that in which ``results`` lies, is not as listed."""
    from search_to_signal.records.checksums import SUMS
    from search_to_signal.study.container import packed_results
    from search_to_signal.study.unpacking import damages

    packed = packed_results(results)
    root = results.resolve().parent if results in packed else results
    if packed and (root == results or (root / SUMS).is_file()) and (damaged := damages(root)):
        raise RunDirectoryError("; ".join(damaged))


def register(add: Add) -> None:
    claims = add(_claims, "s2s claims --results results/embedded --out claims")
    text = "what to compare the paper with: a results directory, a report, or shipped evidence"
    claims.add_argument("--results", type=Path, help=text)
    claims.add_argument("--out", type=Path, help="where to write claims.csv and claims.md")
    claims.add_argument("--notes", action="store_true", help="print the notes on single checks as well")

"""Commands that check what is on disk."""

import argparse
from pathlib import Path

from search_to_signal.cli.base import Add, allow_mappings, load_allowed
from search_to_signal.progress import one_line


def _verify(arguments: argparse.Namespace) -> int:
    from search_to_signal.provenance.verify import verify

    load_allowed(arguments)
    verdict = verify(arguments.directory, programs=arguments.tables)
    problems = list(verdict.problems)
    promises = [] if arguments.tables else ["without --tables, tables, figures and audit are not made again"]
    if arguments.tables:
        found, promise = _tables(arguments.directory)
        problems += found
        promises.append(promise)
    for problem in problems:
        print(f"PROBLEM {one_line(problem)}")
    state = "FAILED" if problems else "OK"
    print(f"s2s: {state}: {verdict.files} files, {verdict.runs} runs, {len(problems)} problems")
    for promise in promises:
        print(f"s2s: {promise}")
    return 1 if problems else 0


def _tables(directory: Path) -> tuple[list[str], str]:
    """The problems of ``--tables``, and what it promises."""
    from search_to_signal.experiments import rebuilt

    if rebuilt.other_source(directory):
        return [], "tables not compared: made by another version of the source than this one"
    return rebuilt.rebuilt_problems(directory), rebuilt.PROMISE


def register(add: Add) -> None:
    """Add verify."""
    check = add("verify", _verify, "check checksums and records", "s2s verify results/embedded")
    check.add_argument("directory", type=Path)
    allow_mappings(check)
    check.add_argument(
        "--tables",
        action="store_true",
        help="make tables, figures, audit and search draws again from the records, and compare (seconds)",
    )

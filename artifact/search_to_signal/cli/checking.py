"""Commands that check what is on disk."""

import argparse
from pathlib import Path

from search_to_signal.cli.base import Add, allow_mappings, load_allowed
from search_to_signal.progress import one_line


def _verify(arguments: argparse.Namespace) -> int:
    from search_to_signal.provenance.verify import verify

    load_allowed(arguments)
    verdict = verify(arguments.directory)
    for problem in verdict.problems:
        print(f"PROBLEM {one_line(problem)}")
    state = "FAILED" if verdict.problems else "OK"
    print(f"s2s: {state}: {verdict.files} files, {verdict.runs} runs, {len(verdict.problems)} problems")
    return 1 if verdict.problems else 0


def register(add: Add) -> None:
    """Add verify."""
    check = add("verify", _verify, "check checksums and records", "s2s verify results/embedded")
    check.add_argument("directory", type=Path)
    allow_mappings(check)

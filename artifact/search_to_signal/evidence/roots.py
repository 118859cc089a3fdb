"""Where evidence lies: a directory with a plan, and directly in it further ones with plans of their own."""

from collections.abc import Iterator
from pathlib import Path

from search_to_signal.records.amendments import AMENDMENTS
from search_to_signal.records.plan import PLAN

BESIDE = (PLAN.name, AMENDMENTS)
"""The plan's files: they lie at the top, beside the packed directories."""


def evidence_roots(directory: Path) -> list[Path]:
    """The directory, and those in it that hold a plan and its evidence, by name."""
    return [directory, *_nested(directory)]


def own_files(root: Path) -> Iterator[Path]:
    """The files of packed evidence, sorted: those of further plans in it are theirs."""
    nested = set(_nested(root))
    return (
        path for path in sorted(root.rglob("*")) if path.is_file() and not nested.intersection(path.parents)
    )


def _nested(directory: Path) -> list[Path]:
    return [plan.parent for plan in sorted(directory.glob(f"*/{PLAN.name}"))]

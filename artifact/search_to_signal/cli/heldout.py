"""The command that evaluates what a cohort discovered."""

import argparse
from pathlib import Path

from search_to_signal.cli.base import Add, allow_code, load_allowed
from search_to_signal.progress import progress_display


def _heldout(arguments: argparse.Namespace) -> int:
    from search_to_signal.experiments.layers.heldout import heldout
    from search_to_signal.experiments.layers.settings import HeldoutSettings

    load_allowed(arguments)
    settings = HeldoutSettings(instances=arguments.instances, slots=arguments.slots)
    with progress_display() as progress:
        out = heldout(arguments.directory, settings, progress)
    print(f"s2s: held-out evaluation in {out}")
    return 0


def register(add: Add) -> None:
    """Add heldout."""
    command = add(
        "heldout",
        _heldout,
        "evaluate a cohort's final heuristics on held-out instances, and what its programs do",
        "s2s heldout results/embedded --instances 8",
    )
    command.add_argument("directory", type=Path, help="results directory with a complete cohort")
    command.add_argument("--instances", type=int, help="of each split, the first so many (default: all)")
    allow_code(command, "problem")
    command.add_argument("--slots", type=int, default=1, help="evaluations side by side (default: 1)")

"""The matched update layer."""

import argparse
from pathlib import Path

from search_to_signal.cli.base import Add, show
from search_to_signal.progress import progress_display


def _updates(arguments: argparse.Namespace) -> int:
    from search_to_signal.experiments.layers.settings import UpdateSettings
    from search_to_signal.experiments.layers.updates import matched_updates
    from search_to_signal.normalizer import NORMALIZERS, get_normalizer
    from search_to_signal.records.manifest import runs_below
    from search_to_signal.rewards import MAPPINGS, get_mapping

    for mapping in arguments.mapping:
        get_mapping(mapping)
    for normalizer in arguments.normalizer:
        get_normalizer(normalizer)
    settings = UpdateSettings(
        groups=arguments.groups,
        withheld=arguments.withheld,
        mappings=tuple(arguments.mapping or MAPPINGS),
        normalizers=tuple(arguments.normalizer or NORMALIZERS),
    )
    runs = [run for directory in arguments.directories for run in runs_below(directory)]
    with progress_display() as progress:
        page = matched_updates(runs, arguments.out, settings, progress)
    show(page)
    print(f"s2s: matched updates in {arguments.out}")
    return 0


def register(add: Add) -> None:
    """Add updates."""
    updates = add(
        "updates",
        _updates,
        "update one adapter by every mapping's credit on the same recorded groups",
        "s2s updates results/embedded/cohort --out updates",
    )
    updates.add_argument("directories", type=Path, nargs="+", help="runs, or directories of runs")
    updates.add_argument("--out", type=Path, required=True, help="where to write records and page")
    for option in ("--mapping", "--normalizer"):
        updates.add_argument(
            option, action="append", default=[], help="name or pkg.mod:obj; repeat it (default: all of ours)"
        )
    updates.add_argument("--groups", type=int, default=3, help="consecutive groups to step on (default: 3)")
    updates.add_argument("--withheld", type=int, default=1, help="groups behind them to look at (default: 1)")

"""Commands that read records."""

import argparse
from pathlib import Path

from search_to_signal.cli.base import AGAIN, Add, allow_code, load_allowed, show
from search_to_signal.errors import ConfigError
from search_to_signal.records.files import storage_errors


def _report(arguments: argparse.Namespace) -> int:
    from search_to_signal.analysis.report import HTML, report
    from search_to_signal.claims.report import write_ledger
    from search_to_signal.experiments.implementation import implementation
    from search_to_signal.records.manifest import MANIFEST

    load_allowed(arguments)
    if arguments.out is None and (arguments.directory / MANIFEST).is_file():
        raise ConfigError(
            f"{arguments.directory} is one run, checksummed as it is: give --out for its report"
        )
    out = arguments.out or arguments.directory / "report"
    with storage_errors(out, AGAIN):
        page = report(arguments.directory, out, lambda written: write_ledger(written, implementation()))
    show(page)
    print(f"s2s: open {page.with_name(HTML)} in a browser")
    print(f"s2s: report in {page.parent}")
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    from search_to_signal.experiments.layers.normalizer_replay import normalizers_of, replay
    from search_to_signal.rewards import MAPPINGS

    mappings = arguments.mapping or list(MAPPINGS)
    normalizers = arguments.normalizer or normalizers_of(arguments.directories)
    with storage_errors(arguments.out, AGAIN):
        page = replay(arguments.directories, arguments.out, mappings, normalizers)
    show(page)
    print(f"s2s: replay in {arguments.out}")
    return 0


def register(add: Add) -> None:
    """Add report and replay."""
    page = add(
        "report", _report, "tables, figures and page of a results directory", "s2s report results/embedded"
    )
    page.add_argument("directory", type=Path)
    page.add_argument("--out", type=Path, help="where to write (default: DIRECTORY/report)")
    allow_code(page, "mapping", "normalizer")
    replay = add(
        "replay",
        _replay,
        "recompute rewards and advantages from records",
        "s2s replay results/embedded/cohort --out audit",
    )
    replay.add_argument("directories", type=Path, nargs="+")
    replay.add_argument(
        "--mapping", action="append", help="name or pkg.mod:obj; repeat it (default: the paper's)"
    )
    replay.add_argument(
        "--normalizer", action="append", help="name or pkg.mod:obj; repeat it (default: those of the runs)"
    )
    replay.add_argument("--out", type=Path, required=True, help="where to write the audit")

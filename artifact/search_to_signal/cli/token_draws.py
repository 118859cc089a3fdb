"""``s2s verify --draws``: recorded tokens, compared with the random numbers that drew them."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from search_to_signal.cli.options import allow_code, sample_seed
from search_to_signal.cli.output import print_problems
from search_to_signal.errors import ConfigError
from search_to_signal.progress import Progress, counted, one_line, progress_display

if TYPE_CHECKING:
    from search_to_signal.verification.findings import Finding
    from search_to_signal.verification.token_draws.drawn_tokens import RunDraws

# The number of printed problems of one run.
_SHOWN = 10


def draw_findings(arguments: argparse.Namespace) -> list["Finding"]:
    """Read recorded tokens, print a line for each run, and return the findings.

    Raises ConfigError where no token can be read.
    """
    from search_to_signal.verification.recompute.tools import Sample
    from search_to_signal.verification.token_draws.drawn_tokens import TokenDrawOptions, check_draws

    if arguments.updates is not None and arguments.updates < 0:
        raise ConfigError("--updates takes a number of at least 0")
    sample = None
    if arguments.sample is not None:
        seed = sample_seed(arguments)
        print(f"reading {counted(arguments.sample, 'group')} of every run: --seed {seed} draws the same")
        sample = Sample(seed, arguments.sample)
    options = TokenDrawOptions(sample, tuple(arguments.model), arguments.adapters, arguments.updates)
    with progress_display() as progress:
        runs = []
        for draws in check_draws(arguments.directory, options, progress):
            runs.append(draws)
            _print_run(draws, progress)
    _print_unread(runs)
    if not any(draws.tally.tokens or draws.findings for draws in runs):
        raise ConfigError("no token could be read: the lines above say what is missing")
    tokens, unequal = (sum(getattr(draws.tally, name) for draws in runs) for name in ("tokens", "unequal"))
    print(
        f"draws: {counted(sum(draws.groups for draws in runs), 'group')} of "
        f"{counted(sum(draws.groups > 0 for draws in runs), 'run')}, {counted(tokens, 'token')}, all but "
        f"{unequal} those that the numbers draw"
    )
    return [finding.within(draws.name) for draws in runs for finding in draws.findings]


def _print_run(draws: "RunDraws", progress: Progress) -> None:
    tally = draws.tally
    if tally.tokens:
        differ = (
            f"{tally.unequal} differ, at most {tally.farthest:.2g} away in log-odds (rounding explains "
            f"{tally.bound}), together {tally.together:.2g} (rounding explains {tally.allowed:.2g})"
        )
        progress.say(
            f"{draws.name}: {counted(draws.groups, 'group')}, {counted(tally.tokens, 'token')}: "
            f"{differ if tally.unequal else 'all are those that the numbers draw'}{_adapter_text(draws)}"
        )
    print_problems([finding.within(draws.name) for finding in draws.findings[:_SHOWN]], progress.say)
    if draws.findings[_SHOWN:]:
        progress.say(f"PROBLEM {draws.name}: and {len(draws.findings) - _SHOWN} more")


def _adapter_text(draws: "RunDraws") -> str:
    if not draws.updates:
        return ""
    text = f"; {draws.equal} of {counted(draws.updates, 'adapter')} made again have the recorded bits"
    if draws.adapter_distance is not None and draws.equal < draws.updates:
        text += f", the final one is {draws.adapter_distance:.2g} of the smaller one's size away"
    return text


def _print_unread(runs: Iterable["RunDraws"]) -> None:
    counts: dict[str, list[tuple[str, int]]] = {}
    for draws in runs:
        for reason, groups in draws.unread.items():
            counts.setdefault(reason, []).append((draws.name, groups))
    for reason, counts_by_run in counts.items():
        total, names = sum(groups for _, groups in counts_by_run), [name for name, _ in counts_by_run]
        first = ", ".join(names[:3]) + (", ..." if names[3:] else "")
        print(one_line(f"NOT CHECKED {counted(total, 'group')} of {first}: {reason}"))


def add_draws(check: argparse.ArgumentParser) -> None:
    """Add the option --draws and the options that belong to it alone."""
    check.add_argument(
        "--draws",
        action="store_true",
        help="read every recorded token once through its model, here, against the numbers that drew it",
    )
    check.add_argument(
        "--updates",
        type=int,
        metavar="N",
        help="with --draws: make N updates of a run again (default: all, none where they give other bits)",
    )
    check.add_argument(
        "--adapters", type=Path, metavar="DIR", help="with --draws: where s2s retrain wrote adapters"
    )
    allow_code(check, "rule", note="with --draws: ")

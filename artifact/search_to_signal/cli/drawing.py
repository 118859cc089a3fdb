"""``s2s verify --draws``: recorded tokens against the numbers that drew them."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from search_to_signal.cli.base import allow_code, sample_seed
from search_to_signal.errors import ConfigError
from search_to_signal.progress import Progress, counted, one_line, progress_display

if TYPE_CHECKING:
    from search_to_signal.verification.token_draws.drawn_tokens import RunFound

# Problems of one run that are printed.
_SHOWN = 10


def draw_problems(arguments: argparse.Namespace) -> list[str]:
    """Read what can be read, print a line per run, and return the problems; ConfigError where nothing can."""
    from search_to_signal.verification.recompute.tools import Sample
    from search_to_signal.verification.token_draws.drawn_tokens import Options, check_draws

    if arguments.updates is not None and arguments.updates < 0:
        raise ConfigError("--updates takes a number of at least 0")
    sample = None
    if arguments.sample is not None:
        seed = sample_seed(arguments)
        print(f"reading {counted(arguments.sample, 'group')} of every run: --seed {seed} draws the same")
        sample = Sample(seed, arguments.sample)
    options = Options(sample, tuple(arguments.model), arguments.adapters, arguments.updates)
    with progress_display() as progress:
        done = []
        for found in check_draws(arguments.directory, options, progress):
            done.append(found)
            _say(found, progress)
    _say_left_out(done)
    if not any(found.tally.tokens or found.problems for found in done):
        raise ConfigError("no token could be read: the lines above say what is missing")
    tokens, unequal = (sum(getattr(found.tally, name) for found in done) for name in ("tokens", "unequal"))
    print(
        f"draws: {counted(sum(found.groups for found in done), 'group')} of "
        f"{counted(sum(found.groups > 0 for found in done), 'run')}, {counted(tokens, 'token')}, all but "
        f"{unequal} those that the numbers draw"
    )
    return [problem for found in done for problem in found.problems]


def _say(found: "RunFound", progress: Progress) -> None:
    tally = found.tally
    if tally.tokens:
        differ = (
            f"{tally.unequal} differ, at most {tally.farthest:.2g} away in log-odds (rounding explains "
            f"{tally.bound}), together {tally.together:.2g} (rounding explains {tally.allowed:.2g})"
        )
        progress.say(
            f"{found.name}: {counted(found.groups, 'group')}, {counted(tally.tokens, 'token')}: "
            f"{differ if tally.unequal else 'all are those that the numbers draw'}{_adapters(found)}"
        )
    for problem in found.problems[:_SHOWN]:
        progress.say(f"PROBLEM {one_line(f'{found.name}: {problem}')}")
    if found.problems[_SHOWN:]:
        progress.say(f"PROBLEM {found.name}: and {len(found.problems) - _SHOWN} more")


def _adapters(found: "RunFound") -> str:
    if not found.updates:
        return ""
    text = f"; {found.equal} of {counted(found.updates, 'adapter')} made again have the recorded bits"
    if found.apart is not None and found.equal < found.updates:
        text += f", the final one is {found.apart:.2g} of its size away"
    return text


def _say_left_out(done: Iterable["RunFound"]) -> None:
    places: dict[str, list[tuple[str, int]]] = {}
    for found in done:
        for reason, groups in found.left_out.items():
            places.setdefault(reason, []).append((found.name, groups))
    for reason, runs in places.items():
        total, names = sum(groups for _, groups in runs), [name for name, _ in runs]
        first = ", ".join(names[:3]) + (", ..." if names[3:] else "")
        print(one_line(f"NOT CHECKED {counted(total, 'group')} of {first}: {reason}"))


def add_draws(check: argparse.ArgumentParser) -> None:
    """Add the level and its own options."""
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

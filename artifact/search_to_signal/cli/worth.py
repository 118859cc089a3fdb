"""The command that asks whether a search paid."""

import argparse
from pathlib import Path

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.progress import one_line, slow_progress
from search_to_signal.cli.options import Add


def _worth(arguments: argparse.Namespace) -> None:
    """Did a search, or its training, pay? Its best beside what the same effort buys otherwise.

    Give the log of a run, or a directory of several runs. They are compared with independent answers to the
    first prompt, other runs (--against), and the start with random numbers (--tune).
    """
    from search_to_signal.audit import report
    from search_to_signal.audit.loss import Beside, Loss
    from search_to_signal.study.search_runs import SearchRun, read_runs
    from search_to_signal.study.worth import worth

    if arguments.tune is not None and arguments.tune < 1:
        raise ConfigError("--tune takes a number of at least 1")
    if {*arguments.paths} & {*arguments.against}:
        raise ConfigError("--against names a run that is asked about: give others")
    runs, against = (read_runs(paths, arguments.reward) for paths in (arguments.paths, arguments.against))
    tuned: tuple[SearchRun, ...] = ()
    if arguments.tune is not None:
        from search_to_signal.study.tuning import tuned_runs

        with slow_progress("changing the start's numbers") as progress:
            tuned = tuned_runs(runs[0], len(runs), arguments.tune, progress)
    found = worth(runs, against, tuned, arguments.by).section()
    also = Beside(None, Loss(), {"worth": found})
    if arguments.out is not None:
        report.write(None, arguments.out, one_line(", ".join(map(str, arguments.paths))), also=also)
    print(report.as_json(None, also) if arguments.json else "\n".join(found.lines))


def register(add: Add) -> None:
    command = add(_worth, "s2s worth results/cohort/native-s*[0-9] --against results/cohort/frozen-s*[0-9]")
    text = "a log of OpenEvolve, ShinkaEvolve, LLM4AD or s2s, or a directory of several"
    command.add_argument("paths", nargs="+", type=Path, metavar="PATH", help=text)
    text = "runs without what shall have paid, such as training, from the same start"
    command.add_argument("--against", nargs="+", default=[], type=Path, metavar="PATH", help=text)
    text = "equal effort: calls of the evaluator (the default where logged), answers, tokens or seconds"
    command.add_argument("--by", choices=("calls", "answers", "tokens", "seconds"), help=text)
    text = "problems of s2s only: for each run, try so many random changes of its start's numbers"
    command.add_argument("--tune", type=int, metavar="TRIES", help=text)
    command.add_argument("--reward", metavar="NAME", help="the score, if the log has several")
    command.add_argument("--out", type=Path, metavar="DIR", help="write a page and JSON there")
    command.add_argument("--json", action="store_true", help="print everything as JSON")

"""The command that asks whether a search paid."""

import argparse
import json
from pathlib import Path

from search_to_signal.base.progress import one_line
from search_to_signal.cli.options import Add


def _worth(arguments: argparse.Namespace) -> None:
    """Did a search, or its training, pay? Its best beside what the same effort buys otherwise.

    Give the log of a run, or a directory with those of several. Beside them: independent answers to the first
    prompt, other runs (--against), the start with random numbers (--tune).
    """
    from search_to_signal.audit import report
    from search_to_signal.audit.loss import Beside, Loss
    from search_to_signal.study.search_runs import read_runs
    from search_to_signal.study.worth import worth

    runs, against = (read_runs(paths, arguments.reward) for paths in (arguments.paths, arguments.against))
    found = worth(runs, against, unit=arguments.by).section()
    if arguments.out is not None:
        title = one_line(", ".join(map(str, arguments.paths)))
        report.write(None, arguments.out, title, also=Beside(None, Loss(), {"worth": found}))
    if arguments.json:
        print(json.dumps(found.document, indent=2))
    else:
        print("\n".join(found.lines))


def register(add: Add) -> None:
    command = add(_worth, "s2s worth results/cohort/native-s* --against results/cohort/frozen-s*")
    text = "a log of OpenEvolve, ShinkaEvolve, LLM4AD or s2s, or a directory of several"
    command.add_argument("paths", nargs="+", type=Path, metavar="PATH", help=text)
    text = "runs without what shall have paid, such as training, from the same start"
    command.add_argument("--against", nargs="+", default=[], type=Path, metavar="PATH", help=text)
    text = "equal effort: calls of the evaluator (the default where logged), answers, tokens or seconds"
    command.add_argument("--by", choices=("calls", "answers", "tokens", "seconds"), help=text)
    command.add_argument("--reward", metavar="NAME", help="the score, if the log has several")
    command.add_argument("--out", type=Path, metavar="DIR", help="write a page and JSON there")
    command.add_argument("--json", action="store_true", help="print everything as JSON")

"""Commands around the released host."""

import argparse
import sys
from collections import Counter
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from search_to_signal.base.errors import EXTRAS, require
from search_to_signal.base.progress import progress_display
from search_to_signal.cli.options import Add

_NOT_COMPARED = 11


def _conformance(arguments: argparse.Namespace) -> int:
    """Compare our host with a CALM checkout, whose code runs with your rights.

    Prints a line per finding, then a line that counts them by family, with the draws behind them. What the
    checkout itself prints is left out; progress goes to standard error. Exit codes: 0 all equal; 1 something
    differs; 11 nothing differs, but something was not compared; 12 the checkout is another revision, or lacks
    a file, a signature or an option of the released host, and none of its code ran; 130 Ctrl-C or SIGTERM.
    """
    require(*EXTRAS["run"])
    from search_to_signal.search.hosts.released.host import quiet
    from search_to_signal.search.hosts.released.intervention import stoppable
    from search_to_signal.verify.conformance.comparison import conform
    from search_to_signal.verify.conformance.pair import Agreement

    counts, families, draws = Counter({kind: 0 for kind in Agreement}), Counter[str](), Counter[str]()
    findings = partial(
        conform,
        arguments.calm,
        arguments.problem,
        arguments.check,
        arguments.programs,
        arguments.draws,
        any_revision=arguments.any_revision,
        words=arguments.words,
    )
    # Threads of the host print at any time; those of Ray print the output of its workers.
    report = sys.stdout
    with stoppable() as stop, progress_display(stream=sys.stderr) as progress, quiet(), ExitStack() as stack:
        for problem, check, finding in stack.enter_context(closing(findings(progress=progress))):
            stop.check()
            counts[finding.verdict.agreement] += 1
            families[check] += 1
            draws[check] += finding.draws
            detail = f" ({finding.detail})" if finding.detail else ""
            line = f"{problem:5} {check:12} {finding.verdict.value:17} {finding.subject}{detail}"
            print(line, file=report, flush=True)
    stop.check()
    tally = ", ".join(f"{count} {kind.value}" for kind, count in counts.items())
    ends = {Agreement.DIFFERS: ("DIFFERS", 1), Agreement.NOT_COMPARED: ("NOT COMPARED", _NOT_COMPARED)}
    state, code = next((ends[kind] for kind in ends if counts[kind]), ("EQUAL", 0))
    parts = (f"{name} {families[name]}" + f" ({draws[name]} draws)" * (draws[name] > 0) for name in families)
    print(f"s2s: {state}: {tally}; of {', '.join(parts)}")
    return code


def _released(arguments: argparse.Namespace) -> None:
    """Run a CALM checkout, whose code runs with your rights, with one of our mappings.

    With model_name online/NAME an endpoint answers, with one completion per round, and nothing is trained.
    """
    require(*EXTRAS["run"])
    from search_to_signal.run.released import Order, run_released

    order = Order(
        calm=arguments.calm,
        config=arguments.config,
        out=arguments.out,
        mapping=arguments.mapping,
        normalizer=arguments.normalizer,
        problem=arguments.problem,
        seed=arguments.seed,
        any_revision=arguments.any_revision,
    )
    with progress_display() as progress:
        run_released(order, progress)
    print(f"s2s: records in {arguments.out}")


def register(add: Add) -> None:
    compare = add(_conformance, "s2s conformance --calm ../CALM --problem tsp")
    compare.add_argument("--calm", type=Path, required=True, help="directory of the checkout")
    compare.add_argument("--problem", action="append", help="tsp, obp, cvrp or op; repeat it (default: all)")
    compare.add_argument("--check", action="append", help="one family of checks; repeat it (default: all)")
    compare.add_argument("--programs", type=int, default=6, help="generated programs per problem")
    compare.add_argument("--draws", type=int, default=5000, help="prompts drawn per state; seeded")
    compare.add_argument("--words", type=Path, help="TOML file with fingerprints (default: pin.toml)")
    compare.add_argument(
        "--any-revision", action="store_true", help="also compare a revision that is not the pinned one"
    )
    example = "--calm ../CALM --config configs/tsp/local.yaml --mapping factorized --out run"
    run = add(_released, f"s2s released {example}")
    run.add_argument("--calm", type=Path, required=True, help="directory of the checkout")
    run.add_argument("--config", required=True, help="configuration of the checkout, or a file of yours")
    run.add_argument("--problem", help="tsp, obp, cvrp or op: refuse a configuration of another problem")
    run.add_argument("--mapping", default="native", help="name or pkg.mod:obj")
    run.add_argument("--normalizer", default="group", help="only group: the host's trainer has no other")
    run.add_argument("--seed", type=int, default=42, help="seed of the host's random draws (default: 42)")
    run.add_argument("--out", type=Path, required=True, help="run directory")
    run.add_argument(
        "--any-revision",
        action="store_true",
        help="accept another revision than artifact/calm/pin.toml names",
    )

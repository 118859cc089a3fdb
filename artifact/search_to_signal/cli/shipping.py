"""Commands that pack results to ship them, restore packed results, and rebuild tables from them."""

import argparse
from pathlib import Path

from search_to_signal.base.errors import ConfigError, RunDirectoryError
from search_to_signal.base.progress import counted, one_line, progress_display
from search_to_signal.cli.options import AGAIN, Add, add_repeated, print_result, refuse_no_time
from search_to_signal.records.files import storage_errors

_MB = 1e6
_SHOWN = 10
_LISTED = 40
_TIMEOUT_S = 1800.0


def _pack(arguments: argparse.Namespace) -> None:
    """Pack finished runs of results directories, to ship them; runs packed before stay as they are."""
    from search_to_signal.records.plan import PLAN, read_plan
    from search_to_signal.study.container import list_evidence
    from search_to_signal.study.packing import pack
    from search_to_signal.study.plan_checks import planned_orders, shortened

    plan = read_plan(arguments.into / PLAN.name) if (arguments.into / PLAN.name).is_file() else None
    known = plan.profiles if plan else ()
    for results in arguments.directory:
        if plan and results.resolve().name not in known:
            names = ", ".join(known)
            raise ConfigError(
                f"{results} is not named like a profile of {arguments.into / PLAN.name}, which has {names}"
            )
    with storage_errors(arguments.into, AGAIN), progress_display() as progress:
        for results in arguments.directory:
            name = results.resolve().name
            orders = planned_orders(plan, name) if plan else []
            out = arguments.into / name
            result = pack(results, out, arguments.adapters, arguments.model, progress, orders)
            counts = f"{result.written} runs packed, {result.kept} packed before"
            left_out = f", {len(result.unfinished)} unfinished left out" if result.unfinished else ""
            progress.say(f"{name}: {counts}{left_out}; {result.size / _MB:.1f} MB")
            if result.replaced:
                progress.say(f"{name}: in place of what was packed before: {shortened(result.replaced)}")
            if result.waiting:
                waiting = shortened(result.waiting)
                progress.say(f"{name}: not packed until earlier seeds are finished: {waiting}")
        list_evidence(arguments.into)
    print(f"s2s: packed into {arguments.into}")


def _unpack(arguments: argparse.Namespace) -> int:
    """Unpack packed results, byte for byte, and check them against their own checksums."""
    from search_to_signal.study.container import packed_results
    from search_to_signal.study.unpacking import is_left_out, is_rebuilt, lacks_ids, unpack

    directories = packed_results(arguments.directory)
    if not directories:
        raise RunDirectoryError(f"{arguments.directory} holds no packed evidence: give artifact/evidence")
    wrong = 0
    for packed in directories:
        name = packed.resolve().name
        out = arguments.out / name
        with storage_errors(out, f"remove it, and {AGAIN}"), progress_display() as progress:
            problems, without_ids = unpack(packed, out, arguments.model, progress)
        left_out = [problem for problem in problems if is_left_out(problem, problems)]
        rebuilt = [problem for problem in problems if is_rebuilt(problem)]
        lacking = [problem for problem in problems if without_ids and lacks_ids(problem)]
        others = [problem for problem in problems if problem not in (*left_out, *rebuilt, *lacking)]
        wrong += len(others) + bool(without_ids)
        if without_ids:
            print(f"PROBLEM {name}: {without_ids}")
        for problem in others[:_SHOWN]:
            print(f"PROBLEM {name}: {one_line(problem)}")
        if others[_SHOWN:]:
            print(f"... and {len(others) - _SHOWN} more")
        if left_out:
            print(
                f"{name}: {len(left_out)} files were not packed: final adapters, "
                "which s2s retrain makes, and files of interrupted runs"
            )
        if rebuilt:
            print(f"{name}: {len(rebuilt)} files of its report differ when this version makes them")
        if not others:
            print(f"{name}: every other file has its recorded bytes")
    return print_result(wrong, f"unpacked into {arguments.out}, {counted(wrong, 'problem')}")


def _rebuild(arguments: argparse.Namespace) -> int:
    """Check packed evidence, make its tables, figures and pages again, and compare the tables."""
    from search_to_signal.study.rebuilding import rebuild

    with storage_errors(arguments.out, AGAIN), progress_display() as progress:
        readme = arguments.readme or _own_results_page(arguments.directory)
        result = rebuild(arguments.directory, arguments.out, progress, arguments.ship, readme)
    for answer in result.answers:
        print(f"\n{answer}")
    for problem in result.problems[:_LISTED]:
        print(f"PROBLEM {one_line(problem)}")
    if result.problems[_LISTED:]:
        print(f"... and {len(result.problems) - _LISTED} more")
    for remark in result.remarks:
        print(one_line(remark))
    pages = " and ".join(map(str, result.pages))
    number = len(result.problems)
    return print_result(number, f"{counted(number, 'problem')}; open {pages}")


def _standings(arguments: argparse.Namespace) -> int:
    """Score the best program of every condition on held-out instances, to compare with published heuristics.

    With --every-run, also score the final best of every run, to compare it with the heuristic that the run
    began with. With --check nothing is written: the recorded scores are compared with scores made now.
    """
    from search_to_signal.study.scored_standings import recomputed_differences, score_best_programs

    root = arguments.directory
    refuse_no_time("--timeout", arguments.timeout)
    if arguments.check is not None and arguments.check < 1:
        raise ConfigError(f"--check {arguments.check}: give a number of instances of at least 1")
    if arguments.slots < 1:
        raise ConfigError(f"--slots {arguments.slots}: give a number of at least 1")
    with storage_errors(root, AGAIN), progress_display() as progress:
        if arguments.check is None:
            scores = score_best_programs(
                root, arguments.timeout, arguments.slots, arguments.every_run, progress
            )
            print(f"s2s: scores in {scores}; s2s rebuild --ship puts them on the page")
            return 0
        problems = recomputed_differences(root, arguments.check, arguments.slots, progress)
    for problem in problems[:_LISTED]:
        print(f"PROBLEM {one_line(problem)}")
    number, count = len(problems), counted(arguments.check, "instance")
    return print_result(number, f"{counted(number, 'problem')}, on the first {count} of each size")


def _own_results_page(evidence: Path) -> Path | None:
    """Return this checkout's page with the first table, where ``evidence`` is its shipped evidence."""
    from search_to_signal.base.package_data import EVIDENCE

    page = EVIDENCE.parents[1] / "docs" / "results.md"
    return page if evidence.resolve() == EVIDENCE.resolve() and page.is_file() else None


_TOKENIZERS = "your own model, whose tokenizer gives the token ids"


def register(add: Add) -> None:
    pack = add(_pack, "s2s pack results/evidence/main --into artifact/evidence")
    pack.add_argument("directory", type=Path, nargs="+", help="results directories")
    pack.add_argument("--into", type=Path, required=True, help="each gets a directory of its name in here")
    weights = "runs to pack with their final adapters, such as 'cohort/*-s42'; about 0.9 MB each"
    add_repeated(pack, "--adapters", weights, metavar="PATTERN")
    add_repeated(pack, "--model", _TOKENIZERS, Path, metavar="DIR")
    unpack = add(_unpack, "s2s unpack artifact/evidence --out results/unpacked")
    unpack.add_argument("directory", type=Path, help="packed evidence, or one packed results directory")
    unpack.add_argument("--out", type=Path, required=True, help="each gets a directory of its name in here")
    add_repeated(unpack, "--model", _TOKENIZERS, Path, metavar="DIR")
    rebuild = add(_rebuild, "s2s rebuild artifact/evidence --out results/shipped")
    rebuild.add_argument("directory", type=Path, help="packed evidence with its plan")
    rebuild.add_argument("--out", type=Path, required=True, help="directory for tables, figures and pages")
    rebuild.add_argument(
        "--readme",
        type=Path,
        metavar="FILE",
        help="a page that has to show the first table (default: the checkout's)",
    )
    rebuild.add_argument("--ship", action="store_true", help="replace the shipped tables by the new ones")
    standings = add(_standings, "s2s standings artifact/evidence --check 4")
    standings.add_argument("directory", type=Path, help="packed evidence with its plan")
    standings.add_argument(
        "--check",
        type=int,
        metavar="N",
        help="write nothing, and compare the recorded scores of the first N instances",
    )
    every = "also evaluate the best final program of every run; later calls do so, too"
    standings.add_argument("--every-run", action="store_true", help=every)
    slots = "programs evaluated side by side (default: %(default)s)"
    standings.add_argument("--slots", type=int, metavar="N", default=1, help=slots)
    limit = "processor seconds of a program on all instances of a size (default: %(default)s)"
    standings.add_argument("--timeout", type=float, default=_TIMEOUT_S, metavar="SECONDS", help=limit)

"""All checks on a checkout, problem by problem."""

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from search_to_signal.conformance.answers import evaluators, parsing, rewards
from search_to_signal.conformance.data import data
from search_to_signal.conformance.draws import operators, parents
from search_to_signal.conformance.findings import HostFinding, Verdict, attempted, reason
from search_to_signal.conformance.host_pair import HostPair
from search_to_signal.conformance.options import options
from search_to_signal.conformance.prompts import prompts
from search_to_signal.conformance.reference_side import ReferenceSide
from search_to_signal.conformance.states import collapse, components, stagnation, transition
from search_to_signal.conformance.ties import ties
from search_to_signal.errors import ConfigError
from search_to_signal.evaluation.pool import EvaluationPool
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.hosts.released.checkout import NAMES, ReleasedCheckout, opened
from search_to_signal.hosts.released.host import quiet, released_host
from search_to_signal.hosts.released.interface import offered, require_interface
from search_to_signal.hosts.released.revision import known_words, require_checkout, require_pinned
from search_to_signal.hosts.released.trainer import settings_of
from search_to_signal.problems import get_problem
from search_to_signal.progress import PlainProgress, Progress, counted

Check = Callable[[HostPair], Iterator[HostFinding]]

_ALL: tuple[Check, ...] = (
    *(options, data, prompts, operators, parents, collapse, stagnation, ties, components, parsing),
    *(transition, rewards, evaluators),
)
CHECKS: dict[str, Check] = {check.__name__: check for check in _ALL}
"""By name, those that run many programs last."""


def conform(
    path: Path,
    problems: Iterable[str] | None,
    checks: Iterable[str] | None,
    programs: int,
    draws: int,
    split: str = "train",
    any_revision: bool = False,
    words: Path | None = None,
    progress: Progress | None = None,
) -> Generator[tuple[str, str, HostFinding], None, None]:
    """Yield (problem, check, finding) as they are made.

    Without ``problems`` or ``checks``, all; a problem of which the checkout has nothing is then not compared
    (D41). ``split`` names our instances; the released host has its training set. ``words`` is a file with
    fingerprints of the prompts' words, by default pin.toml (HOST.md, point 31). What cannot be compared,
    because the checkout raises there or its time is up, is a finding "not compared" with its reason, and the
    rest goes on. Raises ConfigError for an unknown name. Raises HostError, naming file and fact, before any
    code of the checkout runs, for another revision (unless ``any_revision``, D40) and another interface.
    """
    path, problems = path.resolve(), None if problems is None else list(problems)
    require_checkout(path)
    if not any_revision:
        require_pinned(path)
    available = offered(path)
    wanted = _known("--problem", problems, NAMES)
    asked = _known("--check", checks, CHECKS)
    if min(programs, draws) < 1:
        raise ConfigError("--programs and --draws count from 1")
    known = known_words(words)
    require_interface(path, [name for name in wanted if name in available or problems is not None])
    with opened(path) as checkout, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the seed of TSP takes a mean of nothing
        for name in wanted:
            if name not in available:
                missing = f"the checkout has no problems/{NAMES[name]}.py and no configs/{NAMES[name]}"
                yield name, "all", HostFinding("all", Verdict.UNKNOWN, missing)
                continue
            with ExitStack() as stack:
                pair = partial(_pair, stack, checkout, name, programs, draws, known, split)
                yield from _compared(pair, name, asked, progress)


def _known(option: str, given: Iterable[str] | None, known: Iterable[str]) -> list[str]:
    names = list(known if given is None else given)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"{option} {unknown[0]}: give one of {', '.join(known)}")
    return names


def _compared(
    made: Callable[[], HostPair], name: str, checks: list[str], progress: Progress | None
) -> Iterator[tuple[str, str, HostFinding]]:
    report = progress or PlainProgress(stream=None)
    report.update(name, 0, len(checks) + 1, "our evaluator and the seed")
    try:
        pair = made()
    except (Exception, SystemExit) as error:
        yield name, "all", HostFinding("all", Verdict.UNKNOWN, reason(error))
        return
    for done, check in enumerate(checks, start=1):
        for count, finding in enumerate(attempted("rest", CHECKS[check], pair)):
            report.update(name, done, len(checks) + 1, f"{check}, {counted(count + 1, 'finding')}")
            yield name, check, finding
    report.update(name, len(checks) + 1, len(checks) + 1)


def _pair(
    stack: ExitStack,
    checkout: ReleasedCheckout,
    name: str,
    count: int,
    draws: int,
    words: Mapping[str, str],
    split: str,
) -> HostPair:
    problem = get_problem(name)
    with quiet():
        theirs = released_host(checkout, name)
    given = checkout.options(name)  # the trainer's own are changed by what it is asked
    settings = settings_of(given)
    pool = stack.enter_context(EvaluationPool(problem, split, EvaluationSettings(replay="off")))
    ours = ReferenceSide(problem, pool, settings, split)
    seed, template = (checkout.named(name, given, option) for option in ("seed_algo_fp", "template_fp"))
    return HostPair(problem, ours, theirs, settings, given, seed, template, count, draws, words)

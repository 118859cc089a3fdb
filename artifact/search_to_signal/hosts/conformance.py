"""Does the released host do what ours does? One host beside the other, subject by subject."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from search_to_signal.evaluation.pool import EvaluationPool
from search_to_signal.evaluation.settings import EvaluationSettings
from search_to_signal.hosts.bank import crowd, groups, odd_answers, programs
from search_to_signal.hosts.base import Host, HostError, Played
from search_to_signal.hosts.findings import Finding, Verdict, arrays, numbers, things
from search_to_signal.hosts.frequencies import chances, frequencies, kind_of
from search_to_signal.hosts.reference import ReferenceHost
from search_to_signal.hosts.released.checkout import Checkout, opened
from search_to_signal.hosts.released.host import released_host, seeded
from search_to_signal.hosts.released.intervention import settings_of
from search_to_signal.numerics import Floats
from search_to_signal.problems import get_problem
from search_to_signal.problems.base import Problem
from search_to_signal.problems.data import euclidean
from search_to_signal.problems.op import fused_euclidean
from search_to_signal.programs.canonical import program_sha256
from search_to_signal.records.schema import Operator
from search_to_signal.search.settings import SearchSettings
from search_to_signal.search.state import Member, SearchState, state_of
from search_to_signal.seeding import stream

_MOST_TRIES = 100


@dataclass(frozen=True)
class Bench:
    """Both hosts of one problem, and how much to ask them."""

    problem: Problem
    ours: Host
    theirs: Host
    settings: SearchSettings
    seed_code: str
    programs: int
    draws: int

    @cached_property
    def codes(self) -> list[str]:
        """The bank of programs."""
        return programs(self.problem, self.programs)

    @cached_property
    def seed(self) -> Member:
        """The released seed, as our evaluator scores it."""
        scores = self.ours.scores(self.seed_code)
        if scores is None:
            raise HostError("our evaluator cannot run the released seed heuristic")
        code = self.seed_code.strip()
        idea = code.splitlines()[0].lstrip("# ")
        return Member(idea, code, scores[-1], None, 0, 0, program_sha256(code))

    @cached_property
    def odd(self) -> tuple[Played, Played]:
        """What each makes of the odd answers, from a state of the seed alone."""
        texts = tuple(odd_answers(self.problem, self.codes[0]).values())
        return self.both(state_of([self.seed], [self.seed]), texts)

    @cached_property
    def moves(self) -> list[tuple[Played, Played]]:
        """What each makes of a few groups, from a state of the seed alone and from two crowds."""
        states = [crowd(self.problem, self.seed, size) for size in (1, 6, 12)]
        wanted = (None, Operator.INJECTION, None)
        return [
            self.both(state, texts, operator)
            for state, texts, operator in zip(states, groups(self.codes, self.seed_code), wanted, strict=True)
        ]

    def both(
        self, state: SearchState, texts: tuple[str, ...], wanted: Operator | None = None
    ) -> tuple[Played, Played]:
        """Both play one group, on a prompt that the released host asks, if it can be with that operator."""
        asked = self.theirs.ask(state)
        for _ in range(_MOST_TRIES):
            if asked.operator in (wanted or asked.operator,):
                break
            asked = self.theirs.ask(state)
        return self.ours.play(state, asked, texts), self.theirs.play(state, asked, texts)


def data(bench: Bench) -> Iterator[Finding]:
    """Training instances: each of our arrays is sought among theirs, distances also from coordinates."""
    theirs = [array for given in bench.theirs.arrays() for array in _with_distances(given)]
    for ours in bench.ours.arrays():
        if ours.ndim < 2 and len(ours) < 100:
            continue
        alike = [
            arrays("", *map(_without_diagonal, (ours, one))) for one in theirs if one.shape == ours.shape
        ]
        best = min(alike, key=lambda finding: list(Verdict).index(finding.verdict), default=None)
        if best is not None:
            yield replace(best, subject=f"instances {ours.shape}")


def seeds(bench: Bench) -> Iterator[Finding]:
    """The released seed heuristic under both evaluators, and ours in its place."""
    for name, code in (("released seed", bench.seed_code), ("our seed", bench.problem.seed.code)):
        yield numbers(name, bench.ours.scores(code), bench.theirs.scores(code))
    ours, released = bench.ours.scores(bench.problem.seed.code), bench.ours.scores(bench.seed_code)
    yield numbers("our seed as the released one", ours and ours[-1:], released and released[-1:])


def bank(bench: Bench) -> Iterator[Finding]:
    """Generated programs under both evaluators."""
    for number, code in enumerate(bench.codes):
        yield numbers(f"program {number}", bench.ours.scores(code), bench.theirs.scores(code))


def parsing(bench: Bench) -> Iterator[Finding]:
    """The typed outcome of every odd answer."""
    ours, theirs = bench.odd
    names = odd_answers(bench.problem, bench.codes[0])
    for name, one, other in zip(names, ours.outcomes, theirs.outcomes, strict=True):
        yield things(name, one.value, other.value)


def rewards(bench: Bench) -> Iterator[Finding]:
    """Native rewards of the odd answers and of every group."""
    for number, (ours, theirs) in enumerate([bench.odd, *bench.moves]):
        yield numbers(f"group {number}", (*ours.rewards, 0.0), (*theirs.rewards, 0.0))


def sampling(bench: Bench) -> Iterator[Finding]:
    """How often each operator and set of parents is asked for, against our exact chances."""
    for size in (1, 5, 14):
        state = crowd(bench.problem, bench.seed, size)
        counted = Counter(kind_of(bench.theirs.ask(state)) for _ in range(bench.draws))
        yield frequencies(f"{size} members", counted, chances(state, bench.settings))


def transitions(bench: Bench) -> Iterator[Finding]:
    """The state after each group, and after a collapse."""
    for number, (ours, theirs) in enumerate(bench.moves):
        yield from _states(f"group {number}", ours.after, theirs.after)
    full = replace(crowd(bench.problem, bench.seed, 12), injected=("a part",))
    yield from _states("collapse", bench.ours.collapsed(full), bench.theirs.collapsed(full))


CHECKS: dict[str, Callable[[Bench], Iterator[Finding]]] = {
    check.__name__: check for check in (data, seeds, bank, parsing, rewards, sampling, transitions)
}


def conform(
    path: Path,
    problems: Iterable[str],
    checks: Iterable[str],
    programs: int,
    draws: int,
    split: str = "train",
) -> Iterator[tuple[str, str, Finding]]:
    """Yield (problem, check, finding) as they are made.

    ``split`` names our instances; the released host has its training set. A check that the checkout does
    not allow, because it lacks something or raises, is one finding "not compared" that says why. Raises
    HostError when the path is no checkout.
    """
    with opened(path) as checkout, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the seed of TSP takes a mean of nothing
        for name in problems:
            with ExitStack() as stack:
                bench: Bench | HostError = _bench(stack, checkout, name, programs, draws, split)
                for check in checks:
                    for finding in _guarded(CHECKS[check], bench):
                        yield name, check, finding


def _bench(
    stack: ExitStack, checkout: Checkout, name: str, count: int, draws: int, split: str
) -> "Bench | HostError":
    problem = get_problem(name)
    try:
        theirs = released_host(checkout, name)
        code = checkout.seed_code(name)
        settings = settings_of(theirs.trainer.calm_args)
    except (HostError, AttributeError, TypeError, OSError) as error:
        return HostError(f"{type(error).__name__}: {error}")
    pool = stack.enter_context(EvaluationPool(problem, split, EvaluationSettings(replay="off")))
    ours = ReferenceHost(problem, pool, settings, stream(0, "conformance", name), split)
    seeded(0)
    return Bench(problem, ours, theirs, settings, code, count, draws)


def _guarded(check: Callable[[Bench], Iterator[Finding]], bench: "Bench | HostError") -> Iterator[Finding]:
    if isinstance(bench, HostError):
        yield Finding("all", Verdict.UNKNOWN, str(bench))
        return
    found = 0
    try:
        for finding in check(bench):
            found += 1
            yield finding
    except Exception as error:  # noqa: BLE001 - code of others; what it raises is what we report
        yield Finding("rest", Verdict.UNKNOWN, f"{type(error).__name__}: {error}")
        return
    if not found:
        yield Finding("all", Verdict.DIFFERS, "nothing of ours was found among theirs")


def _with_distances(given: Floats) -> Iterator[Floats]:
    yield given
    if given.ndim == 3 and given.shape[2] in (2, 3):
        places = np.asarray(given[:, :, -2:], dtype=np.float64)
        yield from (places, euclidean(places), fused_euclidean(places))
        if given.shape[2] == 3:
            yield given[:, :, 0]


def _without_diagonal(array: Floats) -> Floats:
    """A copy whose diagonal is zero where the last two axes are one: hosts mark it in several ways."""
    array = np.array(array, dtype=np.float64)
    if array.ndim >= 2 and array.shape[-1] == array.shape[-2]:
        diagonal = np.arange(array.shape[-1])
        array[..., diagonal, diagonal] = 0.0
    return array


def _states(subject: str, ours: SearchState, theirs: SearchState) -> Iterator[Finding]:
    both = [[member.score for member in state.archive] for state in (ours, theirs)]
    if len(both[0]) != len(both[1]):
        yield things(f"{subject}, archive size", len(both[0]), len(both[1]))
    else:
        yield numbers(f"{subject}, archive", both[0], both[1])
    ids = [[member.id[:8] for member in state.archive] for state in (ours, theirs)]
    yield things(f"{subject}, members and their order", *ids)
    yield things(f"{subject}, stagnation", ours.stagnation, theirs.stagnation)
    yield things(f"{subject}, injected components", ours.injected, theirs.injected)

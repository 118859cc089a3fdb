"""Both hosts of one problem, and the states, answers and draws that several checks look at."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, chi2

from search_to_signal.base.errors import HostError
from search_to_signal.base.numerics import Floats
from search_to_signal.base.seeding import derive_seed
from search_to_signal.credit import get_mapping
from search_to_signal.problems.base import Problem
from search_to_signal.records.groups import Candidate, ExternalGroup, external_batch
from search_to_signal.records.schema import Operator, Outcome
from search_to_signal.sandbox.pool import EvaluationPool
from search_to_signal.sandbox.programs import Proposal, parse, program_sha256
from search_to_signal.search.hosts.calm.prompts import CROSSOVER, OPERATORS, operator_probabilities
from search_to_signal.search.hosts.calm.selection import crossover_pairs, primary
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import SearchState, state_of
from search_to_signal.search.hosts.calm.transition import collapsed, transition
from search_to_signal.search.hosts.released.host import (
    MOST_TRIES,
    AskedPrompt,
    NotComparableError,
    PlayedGroup,
    ReleasedHost,
    seeded,
)
from search_to_signal.search.member import Evaluated, Member
from search_to_signal.verify.conformance.findings import HostFinding, Verdict
from search_to_signal.verify.conformance.questions import answer, crowded_state, programs

# Our search as a side of the conformance check: rooms search, evaluation and rewards, put together.


@dataclass(frozen=True)
class ReferenceSide:
    """Our host for one problem; ``pool`` evaluates on the instances of ``split``."""

    problem: Problem
    pool: EvaluationPool
    settings: SearchSettings
    split: str = "train"

    def arrays(self) -> Sequence[NDArray[Any]]:
        """The arrays of the instances, those of one name and shape stacked."""
        instances = self.problem.instances(self.split)
        named = [[instance[name] for instance in instances] for name in instances[0]]
        alike = [len({array.shape for array in arrays}) == 1 for arrays in named]
        return [
            array
            for arrays, same in zip(named, alike, strict=True)
            for array in ([np.stack(arrays)] if same else arrays)
        ]

    def scores(self, code: str) -> tuple[float, ...] | None:
        """Score on every instance, then their mean, by the isolated evaluator; None for a failure."""
        (evaluation,) = self.pool.evaluate([code])
        return None if evaluation.score is None else (*evaluation.per_instance, evaluation.score)

    def play(self, state: SearchState, asked: AskedPrompt, texts: Sequence[str]) -> PlayedGroup:
        """Judge the answers to a prompt, and move the state."""
        results = [self._judged(text) for text in texts]
        rewards = self._native(state, asked, results)
        step = 1 + max(member.step for member in state.archive)
        after, _ = transition(state, results, operator=asked.operator, step=step, settings=self.settings)
        scores = tuple(result.score for result in results)
        return PlayedGroup(tuple(result.outcome for result in results), scores, rewards, after.listed())

    def collapsed(self, state: SearchState) -> SearchState:
        return collapsed(state).listed()

    def _judged(self, text: str) -> Evaluated:
        proposal = parse(text)
        if not isinstance(proposal, Proposal):
            return Evaluated(proposal.outcome)
        (evaluation,) = self.pool.evaluate([proposal.code])
        return Evaluated(evaluation.outcome, proposal.idea, proposal.code, evaluation.score, response=text)

    @staticmethod
    def _native(state: SearchState, asked: AskedPrompt, results: Sequence[Evaluated]) -> tuple[float, ...]:
        candidates = tuple(Candidate(result.outcome, result.score) for result in results)
        bases = tuple(state.archive[position].score for position in asked.bases)
        rewards = get_mapping("native")(external_batch([ExternalGroup(candidates, bases=bases)]))
        return tuple(float(reward) for reward in rewards.reward[0])


# How often a host asks which prompt, against the exact chances of ours.

UNLIKELY = 1e-6
"""Frequencies differ when chance alone would take them further apart less often than this."""
FEWEST = 5

Kind = tuple[Operator, tuple[int, ...]]
"""The operator of a prompt, and the positions of its heuristics in the order in which it shows them."""


def chances(state: SearchState, settings: SearchSettings) -> dict[Kind, float]:
    """Exact chance of each kind of prompt, as ``selection`` has it."""
    by_kind: defaultdict[Kind, float] = defaultdict(float)
    alone = primary(len(state.archive), settings)
    for operator, chance in zip(OPERATORS, operator_probabilities(len(state.archive), settings), strict=True):
        if operator != CROSSOVER:
            by_kind.update({(operator, (i,)): float(chance * share) for i, share in enumerate(alone)})
        elif chance:
            for pair, share in np.ndenumerate(_pairs(state, len(alone))):
                shown = sorted(pair, key=lambda position: state.archive[position].score)[::-1]
                by_kind[operator, tuple(shown)] += float(chance * share)
    return {kind: chance for kind, chance in by_kind.items() if chance > 0}


def crossovers(state: SearchState, settings: SearchSettings) -> dict[Kind, float]:
    """The same among crossovers."""
    pairs = {kind: chance for kind, chance in chances(state, settings).items() if kind[0] == CROSSOVER}
    return {kind: chance / sum(pairs.values()) for kind, chance in pairs.items()}


def _pairs(state: SearchState, head: int) -> Floats:
    scores = np.array([member.score for member in state.archive[:head]])
    return crossover_pairs(scores, np.array([state.distances(first) for first in state.archive[:head]]))


def frequencies(subject: str, counted: Counter[Any], expected: Mapping[Any, float]) -> HostFinding:
    """Whether counts fit exact chances; a kind that ours never draws decides at once.

    Kinds due at least five times go into Pearson's test, all others together into an exact binomial one; the
    smaller of the two p-values counts, doubled.
    """
    draws = sum(counted.values())
    impossible = draws - sum(counted[kind] for kind in expected)
    if impossible:
        detail = f"{impossible} of {draws} draws are impossible for ours"
        return HostFinding(subject, Verdict.DIFFERS, detail, draws)
    common = [kind for kind, due in expected.items() if due * draws >= FEWEST]
    rare = 1.0 - sum(expected[kind] for kind in common)
    seen = draws - sum(counted[kind] for kind in common)
    values = [_pearson([counted[kind] for kind in common], [expected[kind] for kind in common])]
    if len(common) < len(expected):
        values.append(float(binomtest(seen, draws, min(max(rare, 0.0), 1.0)).pvalue))
    chance = min(1.0, len(values) * min(values))
    verdict = Verdict.CLOSE if chance >= UNLIKELY else Verdict.DIFFERS
    return HostFinding(subject, verdict, f"{draws} draws, {len(expected)} kinds, p = {chance:.3g}", draws)


def _pearson(counts: Sequence[int], chances: Sequence[float]) -> float:
    """Pearson's p-value of counts, given how many there are in all."""
    if len(counts) < 2:
        return 1.0
    seen, due = np.array(counts), np.array(chances) / sum(chances) * sum(counts)
    return float(chi2.sf(((seen - due) ** 2 / due).sum(), len(counts) - 1))


@dataclass(frozen=True)
class HostPair:
    """Both hosts of one problem, and how much to ask them.

    ``options`` are the checkout's own, ``seed_code`` and ``template`` what they name; ``programs`` are
    generated, ``draws`` are prompts per state. ``words`` are fingerprints of texts by name (HOST.md, 31).
    """

    problem: Problem
    ours: ReferenceSide
    theirs: ReleasedHost
    settings: SearchSettings
    options: Any
    seed_code: str
    template: str
    programs: int
    draws: int
    words: Mapping[str, str]

    @cached_property
    def codes(self) -> list[str]:
        """The bank of programs."""
        return programs(self.problem, self.programs)

    @cached_property
    def seed(self) -> Member:
        """The released seed, as our evaluator scores it."""
        code = self.seed_code.strip()
        idea = code.splitlines()[0].lstrip("# ")
        return Member(idea, code, self._score(self.seed_code), None, 0, 0, program_sha256(code))

    @cached_property
    def child(self) -> tuple[str, float]:
        """A program that runs, and its score."""
        return self.codes[0], self._score(self.codes[0])

    def members(self, scores: list[float]) -> SearchState:
        """A state of made-up members with these scores, and the seed heuristic outside of it."""
        made = crowded_state(self.problem, self.seed, len(scores) + 1).archive
        others = [member for member in made if member is not self.seed and member.id != self.seed.id]
        scored = [replace(member, score=score) for member, score in zip(others, scores, strict=True)]
        return state_of(scored, [self.seed]).listed()

    def kinds(self, name: str, state: SearchState, wanted: Operator | None = None) -> list[Kind]:
        """The kinds of ``draws`` prompts in a state, drawn once under a name.

        Of one operator where one is wanted: then prompts are told by what they show, not by their words.
        """
        if name not in self._drawn:
            with self.seeded(name):
                asked = islice(self.theirs.asks(state, wanted, named=wanted is None), self.draws)
                self._drawn[name] = [(one.operator, one.shown) for one in asked]
        return self._drawn[name]

    @cached_property
    def _drawn(self) -> dict[str, list[Kind]]:
        return {}

    def asked(
        self,
        state: SearchState,
        name: str,
        wanted: Operator | None = None,
        bases: tuple[int, ...] | None = None,
    ) -> AskedPrompt:
        """A prompt of the released host in a state, of this operator and these bases where they are given."""
        with self.seeded(name):
            for asked in islice(self.theirs.asks(state, wanted), MOST_TRIES):
                if bases in (None, asked.bases):
                    return asked
        raise HostError(f"calm_trainer.py: no prompt shows the members {bases} in {MOST_TRIES} draws")

    def creation(self) -> tuple[SearchState, AskedPrompt]:
        """A state whose members are equal and say the same, and the prompt that crossover makes of it."""
        score = self.child[1] + 1.0
        first, second = self.members([score, score]).archive
        state = state_of([first, replace(second, idea=first.idea)], [self.seed])
        with self.seeded("creation"):
            return state, self.theirs.creation(state)

    def both(
        self, state: SearchState, asked: AskedPrompt, texts: tuple[str, ...]
    ) -> tuple[PlayedGroup, PlayedGroup]:
        """Both judge the answers to one prompt, ours first.

        Raises NotComparableError when programs fail there alone and so does the released seed, which tells of
        this machine and not of a rule.
        """
        ours, theirs = self.ours.play(state, asked, texts), self.theirs.play(state, asked, texts)
        stopped = any(
            our in (Outcome.VALID, Outcome.RANDOMNESS) and their is Outcome.RUNTIME_FAILURE
            for our, their in zip(ours.outcomes, theirs.outcomes, strict=True)
        )
        if stopped and not self._seed_runs:
            raise NotComparableError("the released host calls its own seed heuristic a runtime failure here")
        return ours, theirs

    @cached_property
    def released_seed(self) -> tuple[float, ...] | None:
        """The released seed by the released evaluator; raises what that raises."""
        return self.theirs.evaluated(self.seed_code)

    @cached_property
    def _seed_runs(self) -> bool:
        state = self.members([self.seed.score])
        played = self.theirs.play(state, self.asked(state, "seed"), (answer(self.seed_code),))
        return played.outcomes == (Outcome.VALID,)

    @contextmanager
    def seeded(self, name: str) -> Iterator[None]:
        """Seed what the released host draws from by a name, so that no check moves another's draws."""
        with seeded(derive_seed(0, "conformance", self.problem.name, name)):
            yield

    def _score(self, code: str) -> float:
        scores = self.ours.scores(code)
        if scores is None:
            raise HostError("our evaluator cannot run a program that the checks need")
        return scores[-1]

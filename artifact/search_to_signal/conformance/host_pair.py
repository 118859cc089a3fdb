"""Both hosts of one problem, and the states, answers and draws that several checks look at."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from search_to_signal.conformance.frequencies import Kind
from search_to_signal.conformance.questions import answer, crowded_state, programs
from search_to_signal.conformance.reference_side import ReferenceSide
from search_to_signal.errors import HostError
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.calm.state import SearchState, state_of
from search_to_signal.hosts.compared import AskedPrompt, NotComparableError, PlayedGroup
from search_to_signal.hosts.released.host import MOST_TRIES, ReleasedHost, seeded
from search_to_signal.problems.base import Problem
from search_to_signal.programs.canonical import program_sha256
from search_to_signal.records.schema import Operator, Outcome
from search_to_signal.search.member import Member
from search_to_signal.seeding import derive_seed


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

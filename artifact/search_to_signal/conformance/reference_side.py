"""Our search as a side of the conformance check: rooms search, evaluation and rewards, put together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.evaluation.pool import EvaluationPool
from search_to_signal.hosts.calm.collapse import collapsed
from search_to_signal.hosts.calm.settings import SearchSettings
from search_to_signal.hosts.calm.state import SearchState
from search_to_signal.hosts.calm.transition import transition
from search_to_signal.hosts.compared import AskedPrompt, PlayedGroup
from search_to_signal.problems.base import Problem
from search_to_signal.programs.parsing import Proposal, parse
from search_to_signal.records.external import Candidate, ExternalGroup, external_batch
from search_to_signal.rewards import get_mapping
from search_to_signal.search.evaluated import Evaluated


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

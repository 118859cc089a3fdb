"""Rounds per second of the search with a scripted generator and a trivial evaluator.

    python tests/benchmarks/search_benchmark.py

Processor time of this process, best of three; parsing and program hashes are part of a round.
"""

import time
from dataclasses import replace

import numpy as np

from search_to_signal.problems.base import Heuristic
from search_to_signal.records.schema import Outcome
from search_to_signal.sandbox.programs import OPENING, Proposal, parse
from search_to_signal.search.hosts.calm.host import Draw, plan_round
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import initial_state
from search_to_signal.search.hosts.calm.transition import transition
from search_to_signal.search.member import Evaluated, seed_member

ROUNDS, GROUP = 250, 4


def scripted(rng: np.random.Generator) -> list[list[str]]:
    """Completions with ideas of thirty words that follow a natural distribution of words."""
    words = np.minimum(rng.zipf(1.3, size=(ROUNDS, GROUP, 30)), 5000)
    return [
        [
            f"{{{{{OPENING} {' '.join(map(str, idea))}}}}}\n```python\ndef f(a):\n    return a * {i}\n```"
            for i, idea in enumerate(group)
        ]
        for group in words
    ]


def judged(text: str, score: float) -> Evaluated:
    proposal = parse(text)
    assert isinstance(proposal, Proposal)
    return Evaluated(Outcome.VALID, proposal.idea, proposal.code, score)


def rounds_per_second(seed: int) -> float:
    """Every completion parsed, valid, new and admitted: the archive grows as fast as it can."""
    rng, settings = np.random.default_rng(seed), SearchSettings()
    groups = scripted(rng)
    state = initial_state(seed_member(Heuristic("seed", "x = 1"), -10.0))

    def render(draw: Draw) -> str:
        return draw.operator + "".join(parent.code for parent in draw.parents)

    started = time.process_time()
    for step, group in enumerate(groups):
        draw = plan_round(replace(state, stagnation=0), rng, settings, render)
        results = [judged(text, score) for text, score in zip(group, rng.normal(size=GROUP), strict=True)]
        state, _ = transition(draw.state, results, operator=draw.operator, step=step, settings=settings)
    assert len(state.archive) > ROUNDS * GROUP * 0.99
    return ROUNDS / (time.process_time() - started)


if __name__ == "__main__":
    best = max(rounds_per_second(seed) for seed in range(3))
    print(f"{best:.0f} rounds per second, {GROUP} completions each, the archive growing to {ROUNDS * GROUP}")

"""Rewards and archives against a transcription of the host's rules that shares nothing with the package."""

import numpy as np
from tests.oracles.host_rules import FAILED, OPENING, Archive, native_reward

from search_to_signal.credit import get_mapping
from search_to_signal.problems.base import Heuristic
from search_to_signal.records.groups import Candidate, ExternalGroup, external_batch
from search_to_signal.records.schema import Outcome
from search_to_signal.sandbox.programs import Proposal, parse
from search_to_signal.search.hosts.calm.host import plan_round
from search_to_signal.search.hosts.calm.prompts import INJECTION, OPERATORS
from search_to_signal.search.hosts.calm.settings import SearchSettings
from search_to_signal.search.hosts.calm.state import SearchState, state_of
from search_to_signal.search.hosts.calm.transition import transition
from search_to_signal.search.member import Evaluated, seed_member

ROUNDS = 6_000
GROUPS = 1_500
SETTINGS = SearchSettings(population_size=5, collapse_speed=0.0, collapse_threshold=4)
OUTCOMES = [Outcome.VALID] * 8 + [Outcome(name) for name in FAILED]


def near(score: float, rng: np.random.Generator) -> float:
    """A score around another: equal, a hair, an ulp or about 1e-7 away, zero, or somewhere else."""
    sign = rng.choice([-1.0, 1.0])
    apart = [0.0, 10.0 ** rng.uniform(-18, -6), 1e-7, np.spacing(score)]
    others = [0.0, -(10.0 ** rng.uniform(-9, 3))]
    return float(rng.choice([*(score + sign * distance for distance in apart), *others]))


def drawn_round(rng: np.random.Generator) -> tuple[list[float], list[tuple[Outcome, float | None]]]:
    """Bases, best or not first, and four completions that copy, improve, degrade or fail."""
    scale = 10.0 ** rng.uniform(-8, 4)
    bases = [float(-scale * (1 + rng.random())) for _ in range(rng.integers(0, 4))]
    around = bases or [-scale]
    outcomes = [OUTCOMES[rng.integers(len(OUTCOMES))] for _ in range(4)]
    return bases, [
        (outcome, near(float(rng.choice(around)), rng) if outcome is Outcome.VALID else None)
        for outcome in outcomes
    ]


def test_native_rewards_are_the_rules_to_the_bit() -> None:
    """On 6,000 random rounds, copies and zero denominators among them."""
    rng = np.random.default_rng(14)
    rounds = [drawn_round(rng) for _ in range(ROUNDS)]
    groups = [
        ExternalGroup(tuple(Candidate(outcome, score) for outcome, score in group), bases=tuple(bases))
        for bases, group in rounds
    ]
    ours = get_mapping("native")(external_batch(groups)).reward
    theirs = np.array(
        [
            [native_reward(outcome.value, score or 0.0, bases) for outcome, score in group]
            for bases, group in rounds
        ]
    )
    assert ours.tobytes() == theirs.tobytes()
    assert min((theirs == -0.6000000000000001).sum(), (theirs > 1).sum(), (theirs == 0).sum()) > 500


def drawn_response(rng: np.random.Generator, number: int) -> str:
    """An idea in braces or without, a block, and perhaps an announcement before, in or after them."""
    told = rng.choice(["a [b]", "tabu (list)", f"part {'abcdefghij'[rng.integers(10)]}"])
    told = f"The new component {told} has been introduced."
    inside, after = (told if rng.integers(2) else "" for _ in range(2))
    idea = f"{OPENING} go {rng.choice(['near', 'far'])} first, number {number}. {inside}"
    stated = idea if rng.integers(3) == 0 else f"{{{{{idea}}}}}"
    fence = rng.choice(["\n", "\n```\n", " ```x``` \n"])
    return f"{stated}{fence}```python\nx = {number}\n```\n{after}"


def evaluated(text: str, score: float | None) -> Evaluated:
    """What the search sees of a response."""
    proposal = parse(text)
    assert isinstance(proposal, Proposal)
    outcome = Outcome.RUNTIME_FAILURE if score is None else Outcome.VALID
    return Evaluated(outcome, proposal.idea, proposal.code, score, response=text)


def compare(state: SearchState, archive: Archive) -> None:
    """Members in their order, components and counter."""
    assert [(member.idea, member.score) for member in state.archive] == archive.listed
    assert (list(state.injected), state.stagnation) == (archive.components, archive.stuck)


def drawn_score(rng: np.random.Generator) -> float:
    """A score on a grid, or a few hairs of 4e-8 beside it."""
    return float(-rng.integers(1, 12) + rng.integers(-3, 4) * 4e-8)


def drawn_seeds(rng: np.random.Generator) -> list[tuple[str, float]]:
    """One to three seeds, exact ties and the best score of all among them."""
    scores = rng.choice([-0.5, -0.5, -8.0, drawn_score(rng)], size=rng.integers(1, 4))
    return [(f"{OPENING} begin in way {number}", float(score)) for number, score in enumerate(scores)]


def begun(seeds: list[tuple[str, float]]) -> SearchState:
    """A search that holds these seeds."""
    members = [seed_member(Heuristic(idea, f"x = {idea[-1]}"), score) for idea, score in seeds]
    return state_of(members, members)


def test_archives_are_the_rules_after_every_group() -> None:
    """Through 1,500 random groups in 15 searches, collapses among them."""
    rng, collapses = np.random.default_rng(41), 0
    for number in range(GROUPS):
        if number % 100 == 0:
            seeds = drawn_seeds(rng)
            state, archive = begun(seeds), Archive(list(seeds), 5, 4, seeds)
        draw = plan_round(state, rng, SETTINGS, lambda draw: draw.operator)
        collapsed = archive.begin()
        assert draw.collapsed == collapsed
        compare(draw.state, archive)
        texts = [drawn_response(rng, 4 * number + index) for index in range(4)]
        group = [(text, drawn_score(rng) if rng.random() < 0.7 else None) for text in texts]
        operator = OPERATORS[rng.integers(len(OPERATORS))]
        results = [evaluated(text, score) for text, score in group]
        state, _ = transition(draw.state, results, operator=operator, step=number, settings=SETTINGS)
        archive.end(operator == INJECTION, group)
        compare(state, archive)
        collapses += collapsed
    assert collapses > 50
    assert len(archive.components) > 5

"""The released host behind the common interface, for one problem, without a model."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_to_signal.hosts.base import Asked, HostError, Played
from search_to_signal.hosts.released.checkout import NAMES, Checkout
from search_to_signal.hosts.released.trainer import (
    Prompts,
    bases_of,
    content,
    load,
    operator_of,
    outcome_of,
    policy_of,
    score_of,
    snapshot,
    witnessed,
)
from search_to_signal.programs.canonical import program_sha256
from search_to_signal.records.schema import Outcome
from search_to_signal.search.state import Member, SearchState

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ReleasedHost:
    """A released trainer that was never given a model: ``trainer`` has the attributes that search needs."""

    checkout: Checkout
    policy: type[Any]
    trainer: Any

    def arrays(self) -> Sequence[NDArray[Any]]:
        """Every numeric array within the training instances, those of one place and shape also stacked."""
        found: dict[str, list[NDArray[Any]]] = {}
        for place, array in _leaves(self.trainer.instances, "", 0):
            found.setdefault(place, []).append(array)
        stacked = [np.stack(one) for one in found.values() if len({array.shape for array in one}) == 1]
        return [*stacked, *(array for one in found.values() for array in one)]

    def scores(self, code: str) -> tuple[float, ...] | None:
        """Score on every instance where it keeps them, then their mean; None for a failure."""
        policy = policy_of(self.policy, Member("", code, 0.0, None, 0, 0, program_sha256(code)))
        policy.perf = policy.perfs = None
        try:
            returned = policy.run_one_episode_sync(self.trainer.instances, TIMEOUT_S)
        except Exception:  # noqa: BLE001 - whatever a heuristic raises is its failure
            return None
        perf = returned if policy.perf is None else policy.perf
        perfs = () if policy.perfs is None else tuple(float(one) for one in policy.perfs)
        return None if perf is None else (*perfs, float(np.mean(perf)))

    def ask(self, state: SearchState) -> Asked:
        """Draw one prompt, and read operator and bases off its text."""
        load(self.trainer, self.policy, state)
        prompt = self._prompt()
        kept = snapshot(self.trainer).archive
        shown = bases_of(prompt, kept)
        positions = tuple(i for i, member in enumerate(kept) if member in shown)
        return Asked(operator_of(prompt, shown), positions, prompt)

    def play(self, state: SearchState, asked: Asked, texts: Sequence[str]) -> Played:
        """Let its own reward function judge the answers and move the population."""
        load(self.trainer, self.policy, state)
        prompts = [[{"role": "user", "content": asked.prompt}] for _ in texts]
        completions = [[{"role": "assistant", "content": text}] for text in texts]
        with witnessed(self.policy) as seen:
            rewards = tuple(float(reward) for reward in self.trainer.reward_func(prompts, completions))
        after = snapshot(self.trainer)
        outcomes = tuple(outcome_of(reward) for reward in rewards)
        scores = tuple(
            score_of(text, seen, after.archive, lambda code: None) if outcome is Outcome.VALID else None
            for text, outcome in zip(texts, outcomes, strict=True)
        )
        return Played(outcomes, scores, rewards, after)

    def collapsed(self, state: SearchState) -> SearchState:
        """The state in which it draws a prompt when the stagnation threshold is reached."""
        load(self.trainer, self.policy, state)
        self.trainer.age_stuck = self.trainer.calm_args.max_stuck_threshold
        self._prompt()
        return snapshot(self.trainer)

    def _prompt(self) -> str:
        rows = self.trainer.prepare_dataset()
        rows = getattr(self.trainer, "train_dataset", None) if rows is None else rows
        if rows is None or not len(rows):
            raise HostError("prepare_dataset gave no prompts, neither returned nor as train_dataset")
        return content(rows[0]["prompt"])


def released_host(checkout: Checkout, problem: str) -> ReleasedHost:
    """A host for one of our problems; raises HostError where the checkout has another interface."""
    module = checkout.module(f"problems.{NAMES[problem]}")
    policy = checkout.module("heuristic").HeuristicPolicy
    kind = checkout.module("calm_trainer").Trainer
    options = checkout.options(problem)
    options.n_prompts = 1
    trainer = object.__new__(kind)
    environment = module.Environment()
    fields = {
        "algos": [],
        "seed_algos": [],
        "used_prompts": Prompts(),
        "injected_components": Prompts(),
        "age_stuck": 0,
        "log_step": 0,
        "train_epoch": 0,
        "population_size": options.population_size,
        "calm_args": options,
        "problem": module,
        "env": environment,
        "instances": environment.training_dataset(),
    }
    for name, value in fields.items():
        setattr(trainer, name, value)
    return ReleasedHost(checkout, policy, trainer)


def seeded(seed: int) -> None:
    """Seed the generators that the released host draws from; it seeds nothing itself."""
    random.seed(seed)
    np.random.seed(seed % 2**32)


def _leaves(value: Any, place: str, depth: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Numeric arrays within lists, mappings, tensors and plain objects; items of a list share a place."""
    if depth > 5 or isinstance(value, str | bytes | type):
        return
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "iuf" and value.ndim:
            yield place, value
        return
    if isinstance(value, list | tuple) and value and all(isinstance(item, int | float) for item in value):
        yield place, np.array(value)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item, f"{place}[]", depth + 1)
    elif isinstance(value, dict) or hasattr(value, "__dict__"):
        named = value if isinstance(value, dict) else vars(value)
        for name, item in named.items():
            yield from _leaves(item, f"{place}.{name}", depth + 1)

"""A host and a rule of somebody else: programs stand on a shelf, and groups are trained on in pairs."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from search_to_signal.learner.adapter import adapter_sha256
from search_to_signal.learner.base import LearnerSetup, StepResult, TrainingGroup
from search_to_signal.learner.grpo_loss import token_group, token_log_probabilities
from search_to_signal.learner.optimizer import dump_state, load_state
from search_to_signal.records.manifest import Database
from search_to_signal.records.schema import RuleFacts
from search_to_signal.search.host import HostSetup, Request, Transition
from search_to_signal.search.hosts.calm.prompts import SIMPLIFICATION, build_prompt
from search_to_signal.search.member import Evaluated, Member, event_of

SHELF = 2


class State(msgspec.Struct, frozen=True):
    """Every program ever kept, and how many groups there were; a shelf has room for the newest ``SHELF``."""

    archive: tuple[Member, ...]
    groups: int = 0

    @property
    def shelf(self) -> tuple[Member, ...]:
        """What the next prompt is made of."""
        return self.archive[-SHELF:]


class Shelves:
    """Keeps every valid completion, also the same one twice, and shows one of the newest."""

    def __init__(self, setup: HostSetup) -> None:
        self._problem = setup.problem

    def start(self, seed: Member) -> State:
        """The seed alone."""
        return State((seed,))

    def propose(self, state: State, rng: np.random.Generator) -> Request:
        """Ask for a variant of what is on the shelf."""
        parent = state.shelf[rng.integers(len(state.shelf))]
        prompt = build_prompt(self._problem, SIMPLIFICATION, (parent,))
        return Request(prompt, SIMPLIFICATION, (parent,), (parent,), state.archive, state)

    def update(self, request: Request, results: Sequence[Evaluated], step: int) -> Transition:
        """Keep whatever has a score."""
        new = tuple(
            Member(found.idea, found.code, found.score, request.operator, step, index, found.id)
            for index, found in enumerate(results)
            if found.score is not None
        )
        events = tuple(event_of(found, found.score is not None) for found in results)
        after = State((*request.archive, *new), request.state.groups + 1)
        return Transition(after, events, new, after.archive)

    def exposures(self, request: Request, results: Sequence[Evaluated]) -> tuple[float | None, ...]:
        """Half for whatever is kept alone: the other place is taken."""
        return tuple(None if found.score is None else 1.0 / SHELF for found in results)

    def database(self, state: State) -> Database:
        """The shelf, which is not the archive."""
        return Database(groups=state.groups, islands=(tuple(m.id for m in state.shelf),), waiting=())


class BatchedLearner:
    """Steps along advantage times log-probability, of so many groups at once."""

    def __init__(self, setup: LearnerSetup, size: int) -> None:
        self.model, self._pad_id, self._size = setup.model.eval(), setup.pad_id, size
        self._trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self._optimizer = torch.optim.SGD(self._trained.values(), lr=0.01)
        self._waiting: list[tuple[list[int], list[list[int]], list[float]]] = []

    def step(self, group: TrainingGroup) -> StepResult:
        """Wait, or step on all that waited."""
        ids = [list(ids) for ids in group.completion_ids]
        self._waiting.append((list(group.prompt_ids), ids, group.advantages.tolist()))
        if len(self._waiting) < self._size:
            return StepResult(None, None, None, 0, adapter_sha256(self.model))
        tokens = 0
        for prompt, completions, advantages in self._waiting:
            batch = token_group(prompt, completions, self._pad_id, self.model.device)
            scores = (token_log_probabilities(self.model, batch) * batch.completion_mask).sum(dim=1)
            (-(torch.tensor(advantages).to(scores) * scores).mean()).backward()
            tokens += batch.training_tokens
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._waiting.clear()
        return StepResult(None, None, None, tokens, adapter_sha256(self.model))

    def dump(self) -> bytes:
        """Adapter, optimizer and what waits."""
        return msgspec.msgpack.encode((dump_state(self._trained, self._optimizer), self._waiting))

    def load(self, data: bytes) -> None:
        """Go on from ``dump``."""
        state, waiting = msgspec.msgpack.decode(data)
        self._waiting = [tuple(group) for group in waiting]
        load_state(state, self._trained, self._optimizer)


class Batched:
    """The rule; ``groups`` is how many it takes for a step."""

    def check(self, settings: Mapping[str, Any]) -> None:
        """Whatever else there is would not be read."""

    def facts(self, settings: Mapping[str, Any]) -> RuleFacts:
        """A step for so many groups."""
        return RuleFacts(groups_per_step=settings["groups"])

    def learner(self, setup: LearnerSetup) -> BatchedLearner:
        """A learner that nothing waits for."""
        return BatchedLearner(setup, setup.settings["groups"])


batched = Batched()
